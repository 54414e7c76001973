-- The value that a regression predicts for a row: predict_value('model', row).
CREATE OR REPLACE TEMP MACRO predict_value(model, features) AS predict(model, features).value;

-- The probability of the positive class that a binary classifier predicts: predict_probability('model', row).
CREATE OR REPLACE TEMP MACRO predict_probability(model, features) AS predict(model, features).probability;
