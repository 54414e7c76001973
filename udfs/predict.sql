-- The value that a regression predicts for a row: predict_value('model', row).
-- A class is not a number: of a classifier this is an error, and not NULL as where nothing can be predicted.
CREATE OR REPLACE TEMP MACRO predict_value(model, features) AS list_transform(
  [predict(model, features)],
  lambda found: CASE WHEN found.probabilities IS NULL THEN found.value ELSE error(
    'predict_value is for regression, and model "' || model || '" is a classifier: '
    || 'predict() has its prediction and probabilities'
  )::DOUBLE END
)[1];

-- The probability of the positive class that a binary classifier predicts: predict_probability('model', row).
CREATE OR REPLACE TEMP MACRO predict_probability(model, features) AS predict(model, features).probability;
