CREATE TABLE grouplearn.schema_version (version INTEGER NOT NULL);
COMMENT ON TABLE grouplearn.schema_version IS 'The version of these tables; software of another version refuses to read them.';
COMMENT ON COLUMN grouplearn.schema_version.version IS 'One row.';

CREATE TABLE grouplearn.models (
  model UUID PRIMARY KEY,
  schema_name VARCHAR NOT NULL,
  model_name VARCHAR NOT NULL,
  learner VARCHAR NOT NULL,
  task VARCHAR NOT NULL,
  statement VARCHAR NOT NULL,
  search_path STRUCT(database VARCHAR, schema VARCHAR)[] NOT NULL,
  target_name VARCHAR,
  target_sql VARCHAR,
  label_type VARCHAR,
  classes VARCHAR[] NOT NULL,
  positive_class VARCHAR,
  weight_sql VARCHAR,
  keys STRUCT(name VARCHAR, sql VARCHAR, type VARCHAR)[] NOT NULL,
  sets INTEGER[][] NOT NULL,
  series STRUCT(name VARCHAR, sql VARCHAR, type VARCHAR)[] NOT NULL,
  held_out STRUCT(name VARCHAR, sql VARCHAR, type VARCHAR)[],
  calibrate VARCHAR,
  items STRUCT(name VARCHAR, kind VARCHAR, position INTEGER, encoder VARCHAR, impute VARCHAR, scope VARCHAR,
               buckets INTEGER, options MAP(VARCHAR, VARCHAR), type VARCHAR, sql VARCHAR)[] NOT NULL,
  hyperparameters STRUCT(name VARCHAR, type VARCHAR)[] NOT NULL,
  metric VARCHAR NOT NULL,
  greater_is_better BOOLEAN NOT NULL,
  metrics VARCHAR[] NOT NULL,
  missing_group VARCHAR NOT NULL,
  null_label VARCHAR NOT NULL,
  group_failure VARCHAR NOT NULL,
  refit BOOLEAN NOT NULL,
  seed BIGINT NOT NULL,
  keep_best INTEGER,
  keep_versions INTEGER NOT NULL,
  operator VARCHAR NOT NULL,
  executor VARCHAR NOT NULL,
  workers INTEGER NOT NULL,
  seconds DOUBLE NOT NULL,
  trained_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE grouplearn.models IS 'One row per model: the bound TRAIN statement and how it was run.';
COMMENT ON COLUMN grouplearn.models.model IS 'Identity of the model; training it again gives a new one.';
COMMENT ON COLUMN grouplearn.models.statement IS 'The TRAIN statement as written.';
COMMENT ON COLUMN grouplearn.models.search_path IS 'Where unqualified names of the statement were looked for, in order; database is NULL for the model''s own.';
COMMENT ON COLUMN grouplearn.models.target_sql IS 'The PREDICT expression over the columns of the source; NULL for a learner that has no label.';
COMMENT ON COLUMN grouplearn.models.classes IS 'Label values as text in class order, castable to label_type; empty for regression.';
COMMENT ON COLUMN grouplearn.models.positive_class IS 'Two classes: the label value that probability describes, as text; NULL for other labels.';
COMMENT ON COLUMN grouplearn.models.weight_sql IS 'The weight of a row over the columns of the source; NULL for 1.';
COMMENT ON COLUMN grouplearn.models.keys IS 'The GROUP BY keys: column name, SQL over the columns of the source, SQL type.';
COMMENT ON COLUMN grouplearn.models.sets IS 'The grouping sets, finest first, as 0-based indexes into keys.';
COMMENT ON COLUMN grouplearn.models.series IS 'SERIES BY, as the keys: what tells the series of a group apart.';
COMMENT ON COLUMN grouplearn.models.held_out IS 'What tells rows apart in table held_out, as the keys; NULL if that has no rows of the model.';
COMMENT ON COLUMN grouplearn.models.calibrate IS 'How probabilities are calibrated: isotonic or sigmoid; NULL if they are not.';
COMMENT ON COLUMN grouplearn.models.items IS 'The FEATURES items: how each becomes feature columns, the options that its encoder alone has, the SQL type that it had in training (values are cast to it before they are encoded), and its SQL over the columns of the source.';
COMMENT ON COLUMN grouplearn.models.missing_group IS 'What a row without a model of its group gets: parent, null or error.';
COMMENT ON COLUMN grouplearn.models.null_label IS 'What a row without a label does: skip (it is left out and counted) or error (its group fails).';
COMMENT ON COLUMN grouplearn.models.group_failure IS 'What TRAIN does where a group fails: keep (OR REPLACE keeps the model that the group had) or error (the statement fails).';
COMMENT ON COLUMN grouplearn.models.refit IS 'Whether the best trial of each group was trained again on all rows, those held out included.';
COMMENT ON COLUMN grouplearn.models.keep_best IS 'How many trials of each group keep their artifact; NULL keeps all.';
COMMENT ON COLUMN grouplearn.models.keep_versions IS 'How many versions of the model stay in the database, this one included.';
COMMENT ON COLUMN grouplearn.models.seconds IS 'Wall time of the training run in seconds.';
COMMENT ON COLUMN grouplearn.models.trained_at IS 'When training ended, in UTC.';

CREATE TABLE grouplearn.past_models AS FROM grouplearn.models LIMIT 0;
COMMENT ON TABLE grouplearn.past_models IS 'One row per earlier version of a model, as in models. Its rows in the other tables stay, under its own identity, until it is deleted.';

CREATE TABLE grouplearn.history (
  schema_name VARCHAR NOT NULL,
  model_name VARCHAR NOT NULL,
  version INTEGER NOT NULL,
  model UUID NOT NULL,
  action VARCHAR NOT NULL,
  trained_at TIMESTAMP NOT NULL,
  seconds DOUBLE NOT NULL,
  n_rows BIGINT,
  rows_added BIGINT,
  groups_new BIGINT NOT NULL,
  groups_updated BIGINT NOT NULL,
  groups_unchanged BIGINT NOT NULL,
  groups_failed BIGINT NOT NULL,
  groups_kept BIGINT NOT NULL,
  metric VARCHAR NOT NULL,
  value DOUBLE
);
COMMENT ON TABLE grouplearn.history IS 'One row per version that a model has or had, also of those that are deleted. DROP MODEL removes them.';
COMMENT ON COLUMN grouplearn.history.version IS 'Counted from 1 for each model, never used again.';
COMMENT ON COLUMN grouplearn.history.model IS 'The identity of the version, as in models or past_models; in neither after the version is deleted.';
COMMENT ON COLUMN grouplearn.history.action IS 'What made the version: TRAIN, REFRESH, IMPORT, or ALTER (ADD TRIAL).';
COMMENT ON COLUMN grouplearn.history.trained_at IS 'When training ended, in UTC.';
COMMENT ON COLUMN grouplearn.history.seconds IS 'Wall time in seconds.';
COMMENT ON COLUMN grouplearn.history.n_rows IS 'Rows of all groups of a level.';
COMMENT ON COLUMN grouplearn.history.rows_added IS 'Rows that REFRESH found beside those of the version before; NULL for others.';
COMMENT ON COLUMN grouplearn.history.groups_new IS 'Groups with a model that is not made from an earlier one: all that trained, after TRAIN.';
COMMENT ON COLUMN grouplearn.history.groups_updated IS 'Groups with a model that REFRESH trained further.';
COMMENT ON COLUMN grouplearn.history.groups_unchanged IS 'Groups with the model of the version before, as their rows are the same, or as ON WORSE KEEP has kept it.';
COMMENT ON COLUMN grouplearn.history.groups_failed IS 'Groups without a model.';
COMMENT ON COLUMN grouplearn.history.groups_kept IS 'Groups that failed and kept their earlier model.';
COMMENT ON COLUMN grouplearn.history.metric IS 'The metric that is optimized.';
COMMENT ON COLUMN grouplearn.history.value IS 'Its median over the best trials of the groups, on held-out rows if there are any.';

CREATE TABLE grouplearn.groups (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  level INTEGER NOT NULL,
  keys VARCHAR[] NOT NULL,
  n_rows BIGINT NOT NULL,
  n_train BIGINT,
  n_valid BIGINT,
  n_skipped BIGINT,
  best INTEGER,
  classes INTEGER[],
  features VARCHAR[],
  starts INTEGER[],
  fills DOUBLE[],
  centers DOUBLE[],
  scales DOUBLE[],
  categories VARCHAR[][],
  category_values DOUBLE[][],
  calibration DOUBLE[][],
  checksum UBIGINT
);
COMMENT ON TABLE grouplearn.groups IS 'One row per group: its key, its rows, and the encoders fitted on it.';
COMMENT ON COLUMN grouplearn.groups.level IS '0-based index of the grouping set in models.sets; 0 is the finest.';
COMMENT ON COLUMN grouplearn.groups.keys IS 'Key values as text, one per key of the model; NULL for a NULL key and for a key that is rolled up.';
COMMENT ON COLUMN grouplearn.groups.calibration IS 'Two lists. isotonic: probabilities of the model in ascending order, and what they become, with straight lines between; sigmoid: a and b of 1 / (1 + exp(a * s + b)), s the log-odds. NULL for a group that is not calibrated.';
COMMENT ON COLUMN grouplearn.groups.n_skipped IS 'Rows left out because a feature or the label was missing.';
COMMENT ON COLUMN grouplearn.groups.best IS 'The config of the best trial; NULL when every trial failed.';
COMMENT ON COLUMN grouplearn.groups.classes IS 'Class numbers present in the group, in the order of its models'' outputs.';
COMMENT ON COLUMN grouplearn.groups.features IS 'Names of the encoded feature columns, except those of wide items, whose names follow from their numbers.';
COMMENT ON COLUMN grouplearn.groups.starts IS 'Per item: 0-based index of its first feature column; a wide item has none there.';
COMMENT ON COLUMN grouplearn.groups.fills IS 'Per item: what a missing number is replaced with before scaling; NULL for none.';
COMMENT ON COLUMN grouplearn.groups.centers IS 'Per item: subtracted from the number.';
COMMENT ON COLUMN grouplearn.groups.scales IS 'Per item: what the centered number is divided by.';
COMMENT ON COLUMN grouplearn.groups.categories IS 'Per item: the categories in column order (one-hot) or in order of position (ordinal).';
COMMENT ON COLUMN grouplearn.groups.category_values IS 'Per item: the number of each of its categories (target); empty for all other items. Unknown texts have that of fills.';
COMMENT ON COLUMN grouplearn.groups.checksum IS 'The sum of the hashes of the group''s rows, modulo 2^64, by which REFRESH tells whether they have changed.';

CREATE TABLE grouplearn.configs (
  model UUID NOT NULL,
  config INTEGER NOT NULL,
  parameters MAP(VARCHAR, VARCHAR) NOT NULL
);
COMMENT ON TABLE grouplearn.configs IS 'One row per point of the search space.';
COMMENT ON COLUMN grouplearn.configs.parameters IS 'Hyperparameters as text; the model''s view casts them to their types.';

CREATE TABLE grouplearn.combinations (
  schema_name VARCHAR NOT NULL,
  model_name VARCHAR NOT NULL,
  learners VARCHAR[] NOT NULL,
  statement VARCHAR NOT NULL
);
COMMENT ON TABLE grouplearn.combinations IS 'One row per model of several learners. Each learner has a model of its own, named after both: m__gbdt.';
COMMENT ON COLUMN grouplearn.combinations.learners IS 'In the order of the statement; the first of equally good ones is the best.';
COMMENT ON COLUMN grouplearn.combinations.statement IS 'The TRAIN statement as written.';
