CREATE TABLE grouplearn.layers (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  layer INTEGER NOT NULL,
  layers INTEGER NOT NULL,
  activation VARCHAR NOT NULL,
  weights DOUBLE[][] NOT NULL,
  bias DOUBLE[] NOT NULL
);
COMMENT ON TABLE grouplearn.layers IS 'The layers of the network of each group''s best trial, where prediction is SQL.';
COMMENT ON COLUMN grouplearn.layers.layer IS 'From 1, at the inputs.';
COMMENT ON COLUMN grouplearn.layers.layers IS 'How many layers the network has.';
COMMENT ON COLUMN grouplearn.layers.activation IS 'relu, tanh, gelu or sigmoid, for every layer but the last.';
COMMENT ON COLUMN grouplearn.layers.weights IS 'One list per unit, over the encoded features or the units of the layer before.';
