-- The value that a regression predicts for a row: predict_value('model', row).
-- A class is not a number: of a classifier this is an error, and not NULL as where nothing can be predicted.
CREATE OR REPLACE TEMP MACRO predict_value(model, features) AS grouplearn_number(1, model, features);

-- The probability of the positive class that a binary classifier predicts: predict_probability('model', row).
CREATE OR REPLACE TEMP MACRO predict_probability(model, features) AS grouplearn_number(2, model, features);

-- What the macros of trees call where it is there: the row has the model's keys and items, evaluated by the query that asks.
CREATE OR REPLACE TEMP MACRO grouplearn_predictions(model, items) AS predict(model, items);
