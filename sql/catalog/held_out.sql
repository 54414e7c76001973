CREATE TABLE grouplearn.held_out (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  fold INTEGER,
  keys VARCHAR[][] NOT NULL,
  labels DOUBLE[] NOT NULL,
  outputs DOUBLE[][] NOT NULL
);
COMMENT ON TABLE grouplearn.held_out IS 'WITH (keep_held_out = true): the predictions of held-out rows of each group by the best configuration, as it was before it learned from them; many rows in one.';
COMMENT ON COLUMN grouplearn.held_out.fold IS 'The fold that the rows were held out of, counted from 0; 0 without folds.';
COMMENT ON COLUMN grouplearn.held_out.keys IS 'For each of models.held_out: its value in each row as text.';
COMMENT ON COLUMN grouplearn.held_out.labels IS 'The label of each row: a number, or the place of its class in models.classes, counted from 0.';
COMMENT ON COLUMN grouplearn.held_out.outputs IS 'For each number that is predicted its value in each row: the prediction, or the probability of each class.';
