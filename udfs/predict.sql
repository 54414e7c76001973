-- The value that a regression predicts for a row: predict_value('model', row).
-- A class is not a number: of a classifier this is an error, and not NULL as where nothing can be predicted.
-- Functions are DuckDB's own wherever this is read: a file that is opened may have macros of their names.
CREATE OR REPLACE TEMP MACRO predict_value(model, features) AS system.main.list_extract(system.main.list_transform(
  system.main.list_value(predict(model, features)),
  lambda found: CASE WHEN system.main.struct_extract(found, 'probabilities') IS NULL
    THEN system.main.struct_extract(found, 'value')
    ELSE CAST(system.main.error(system.main.concat(
      'predict_value is for regression, and model "', model, '" is a classifier: ',
      'predict() has its prediction and probabilities'
    )) AS DOUBLE) END
), 1);

-- The probability of the positive class that a binary classifier predicts: predict_probability('model', row).
CREATE OR REPLACE TEMP MACRO predict_probability(model, features) AS
  system.main.struct_extract(predict(model, features), 'probability');
