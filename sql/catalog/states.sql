CREATE TABLE grouplearn.states (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  layout VARCHAR NOT NULL,
  content BLOB NOT NULL,
  sha256 VARCHAR NOT NULL
);
COMMENT ON TABLE grouplearn.states IS 'What REFRESH continues the best model of each group from, WITH (keep_state = true): the sums over its rows, or its weights and the state of their optimizer.';
COMMENT ON COLUMN grouplearn.states.layout IS 'Names, types and shapes of the numbers, as in the header of a safetensors file.';
COMMENT ON COLUMN grouplearn.states.content IS 'The numbers, as in the rest of such a file.';
COMMENT ON COLUMN grouplearn.states.sha256 IS 'SHA-256 of layout, then content; checked before use.';
CREATE TABLE grouplearn.refreshed (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  status VARCHAR NOT NULL,
  rows_added BIGINT NOT NULL,
  before DOUBLE,
  after DOUBLE,
  reason VARCHAR
);
COMMENT ON TABLE grouplearn.refreshed IS 'What REFRESH did to the groups of a model: all that are not listed are unchanged.';
COMMENT ON COLUMN grouplearn.refreshed.status IS 'new, updated, kept (it would have become worse, ON WORSE KEEP), failed or unchanged; a failed group that had a model has it still.';
COMMENT ON COLUMN grouplearn.refreshed.rows_added IS 'Rows of the group that are new; where its rows were compared with those of before, how many more it has.';
COMMENT ON COLUMN grouplearn.refreshed.before IS 'The optimized metric of the model of before, on the held-out rows among those that were read.';
COMMENT ON COLUMN grouplearn.refreshed.after IS 'The same of the new model, which has not learned from these rows; NULL without any.';
COMMENT ON COLUMN grouplearn.refreshed.reason IS 'Why it failed, or was kept, and which of its rows were not read.';
CREATE TABLE grouplearn.watermarks (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  sql VARCHAR NOT NULL,
  type VARCHAR NOT NULL,
  value VARCHAR
);
COMMENT ON TABLE grouplearn.watermarks IS 'The latest time of the rows that each group of a model has learned from, for REFRESH SINCE: of a series, or WITH (watermark = ...).';
COMMENT ON COLUMN grouplearn.watermarks.sql IS 'The time of a row over the columns of the source.';
COMMENT ON COLUMN grouplearn.watermarks.value IS 'The latest one as text, castable to type; NULL for a group that has learned from no row.';
