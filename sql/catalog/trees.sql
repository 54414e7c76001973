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

CREATE TABLE grouplearn.leaves (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  slots INTEGER[] NOT NULL,
  most INTEGER NOT NULL,
  starts INTEGER[] NOT NULL,
  bounds DOUBLE[] NOT NULL,
  sets HUGEINT[] NOT NULL,
  addends DOUBLE[] NOT NULL,
  outputs INTEGER[] NOT NULL
);
COMMENT ON TABLE grouplearn.leaves IS 'The trees of each group''s best trial as sets of leaves. The values of a number are cut into cases, and a row comes to the leaf that is in the sets of the cases of all its numbers. Models whose trees test many numbers have nodes instead.';
COMMENT ON COLUMN grouplearn.leaves.slots IS 'The numbers that any group''s trees test, counted from 1 over models.items, an array counting for each value: encoded, or the 0-based position of the category.';
COMMENT ON COLUMN grouplearn.leaves.most IS 'Most cases of one number.';
COMMENT ON COLUMN grouplearn.leaves.starts IS 'Where the cases of each number begin, counted from 0, and how many there are in all.';
COMMENT ON COLUMN grouplearn.leaves.bounds IS 'The upper bound of each case, ascending for each number: -inf where it is missing, inf for the last.';
COMMENT ON COLUMN grouplearn.leaves.sets IS 'Words, the first of all cases, then the second of all, and so on: sets of leaves as bits, of four parts of 31 leaves each. A tree has as many parts as its leaves need.';
COMMENT ON COLUMN grouplearn.leaves.addends IS 'What each leaf adds to its output: 31 numbers per part, and 0 for rows that do not come to it.';
COMMENT ON COLUMN grouplearn.leaves.outputs IS 'The output of each word: a place in groups.classes, counted from 0, where there are more than two classes.';
