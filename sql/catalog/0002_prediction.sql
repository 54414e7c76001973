CREATE TABLE grouplearn.trees (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  outputs INTEGER NOT NULL,
  roots INTEGER[] NOT NULL,
  depth INTEGER NOT NULL
);
COMMENT ON TABLE grouplearn.trees IS 'The trees of each group''s best trial, where prediction is SQL.';
COMMENT ON COLUMN grouplearn.trees.outputs IS 'How many outputs the trees add to, in turn: one per class of more than two, in the order of groups.classes.';
COMMENT ON COLUMN grouplearn.trees.roots IS 'The node where each tree begins.';
COMMENT ON COLUMN grouplearn.trees.depth IS 'Most nodes that a row passes before it comes to a leaf.';

CREATE TABLE grouplearn.nodes (
  model UUID NOT NULL,
  node INTEGER NOT NULL,
  slot INTEGER,
  low DOUBLE,
  high DOUBLE,
  inside INTEGER NOT NULL,
  outside INTEGER NOT NULL,
  missing INTEGER NOT NULL,
  value DOUBLE
);
COMMENT ON TABLE grouplearn.nodes IS 'The nodes of these trees: a leaf has a value, any other node a question.';
COMMENT ON COLUMN grouplearn.nodes.slot IS 'What is asked for, counted from 1 over models.items, an array counting for each value: the encoded number, or the 0-based position of the category; NULL in a leaf.';
COMMENT ON COLUMN grouplearn.nodes.low IS 'A row goes on to inside where low <= x <= high.';
COMMENT ON COLUMN grouplearn.nodes.inside IS 'The next node; a leaf''s is itself.';
COMMENT ON COLUMN grouplearn.nodes.missing IS 'The next node where x is missing.';
COMMENT ON COLUMN grouplearn.nodes.value IS 'What the tree adds to its output.';

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
COMMENT ON COLUMN grouplearn.layers.activation IS 'Of every layer but the last: relu, tanh, gelu or sigmoid.';
COMMENT ON COLUMN grouplearn.layers.weights IS 'One list per unit, over the encoded features or the units of the layer before.';

UPDATE grouplearn.schema_version SET version = 2;
