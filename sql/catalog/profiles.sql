CREATE TABLE grouplearn.profiles (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  item INTEGER NOT NULL,
  n_rows BIGINT NOT NULL,
  n_missing BIGINT NOT NULL,
  mean DOUBLE,
  deviation DOUBLE,
  low DOUBLE,
  high DOUBLE,
  quantiles DOUBLE[],
  shares DOUBLE[],
  categories VARCHAR[],
  counts BIGINT[]
);
COMMENT ON TABLE grouplearn.profiles IS 'One row per group and FEATURES item that is a number or a category: what its values were before they were encoded, in all rows that TRAIN read.';
COMMENT ON COLUMN grouplearn.profiles.item IS 'The place of the item in models.items, counted from 1.';
COMMENT ON COLUMN grouplearn.profiles.n_missing IS 'Rows where it is NULL, NaN or infinite.';
COMMENT ON COLUMN grouplearn.profiles.mean IS 'Numbers: the mean; NULL for categories and without a value.';
COMMENT ON COLUMN grouplearn.profiles.deviation IS 'Numbers: the standard deviation, over n - 1; NULL of a single one.';
COMMENT ON COLUMN grouplearn.profiles.quantiles IS 'Numbers: the distinct quantiles at 5%, 10%, ... 95%, fewer where 5% are less than ten rows; of a larger group those of 256 rows. NULL where groups have few rows.';
COMMENT ON COLUMN grouplearn.profiles.shares IS 'Per quantile: the share of all values that are not above it.';
COMMENT ON COLUMN grouplearn.profiles.categories IS 'Categories: the most frequent ones as text, at most 100.';
COMMENT ON COLUMN grouplearn.profiles.counts IS 'Per category: its rows. The others have the rest.';
