CREATE SCHEMA IF NOT EXISTS grouplearn;

CREATE TABLE grouplearn.schema_version (version INTEGER NOT NULL);
INSERT INTO grouplearn.schema_version VALUES (1);
COMMENT ON TABLE grouplearn.schema_version IS 'The version of these tables: software of another version does not read them.';
COMMENT ON COLUMN grouplearn.schema_version.version IS 'One row.';

CREATE TABLE grouplearn.models (
  model UUID PRIMARY KEY,
  schema_name VARCHAR NOT NULL,
  model_name VARCHAR NOT NULL,
  learner VARCHAR NOT NULL,
  task VARCHAR NOT NULL,
  linear BOOLEAN NOT NULL,
  statement VARCHAR NOT NULL,
  target_name VARCHAR NOT NULL,
  target_sql VARCHAR NOT NULL,
  label_type VARCHAR NOT NULL,
  classes VARCHAR[] NOT NULL,
  keys STRUCT(name VARCHAR, sql VARCHAR, type VARCHAR)[] NOT NULL,
  sets INTEGER[][] NOT NULL,
  items STRUCT(name VARCHAR, kind VARCHAR, position INTEGER, encoder VARCHAR, impute VARCHAR, scope VARCHAR,
               buckets INTEGER, sql VARCHAR)[] NOT NULL,
  hyperparameters STRUCT(name VARCHAR, type VARCHAR)[] NOT NULL,
  metric VARCHAR NOT NULL,
  greater_is_better BOOLEAN NOT NULL,
  metrics VARCHAR[] NOT NULL,
  missing_group VARCHAR NOT NULL,
  seed BIGINT NOT NULL,
  keep_best INTEGER,
  operator VARCHAR NOT NULL,
  executor VARCHAR NOT NULL,
  workers INTEGER NOT NULL,
  seconds DOUBLE NOT NULL,
  trained_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE grouplearn.models IS 'One row per model: the bound TRAIN statement and how it was run.';
COMMENT ON COLUMN grouplearn.models.model IS 'Identity of the model; training it again gives a new one.';
COMMENT ON COLUMN grouplearn.models.statement IS 'The TRAIN statement as written.';
COMMENT ON COLUMN grouplearn.models.target_sql IS 'The PREDICT expression over the columns of the source.';
COMMENT ON COLUMN grouplearn.models.classes IS 'Label values as text in class order, castable to label_type; empty for regression.';
COMMENT ON COLUMN grouplearn.models.keys IS 'The GROUP BY keys: column name, SQL over the columns of the source, SQL type.';
COMMENT ON COLUMN grouplearn.models.sets IS 'The grouping sets, finest first, as 0-based indexes into keys.';
COMMENT ON COLUMN grouplearn.models.items IS 'The FEATURES items: how each becomes feature columns, and its SQL over the columns of the source.';
COMMENT ON COLUMN grouplearn.models.missing_group IS 'What a row without a model of its group gets: parent, null or error.';
COMMENT ON COLUMN grouplearn.models.keep_best IS 'How many trials of each group keep their artifact; NULL keeps all.';
COMMENT ON COLUMN grouplearn.models.seconds IS 'Wall time of the training run in seconds.';
COMMENT ON COLUMN grouplearn.models.trained_at IS 'When training ended, in UTC.';

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
  categories VARCHAR[][]
);
COMMENT ON TABLE grouplearn.groups IS 'One row per group: its key, its rows, and the encoders fitted on it.';
COMMENT ON COLUMN grouplearn.groups.level IS '0-based index of the grouping set in models.sets; 0 is the finest.';
COMMENT ON COLUMN grouplearn.groups.keys IS 'Key values as text, one per key of the model; NULL for a NULL key and for a key that is rolled up.';
COMMENT ON COLUMN grouplearn.groups.n_skipped IS 'Rows left out because a feature or the label was missing.';
COMMENT ON COLUMN grouplearn.groups.best IS 'The config of the best trial; NULL when every trial failed.';
COMMENT ON COLUMN grouplearn.groups.classes IS 'Class numbers present in the group, in the order of its models'' outputs.';
COMMENT ON COLUMN grouplearn.groups.features IS 'Names of the feature columns, encoders applied.';
COMMENT ON COLUMN grouplearn.groups.starts IS 'Per item: 0-based index of its first feature column.';
COMMENT ON COLUMN grouplearn.groups.fills IS 'Per item: what a missing number is replaced with before scaling; NULL for none.';
COMMENT ON COLUMN grouplearn.groups.centers IS 'Per item: subtracted from the number.';
COMMENT ON COLUMN grouplearn.groups.scales IS 'Per item: what the centered number is divided by.';
COMMENT ON COLUMN grouplearn.groups.categories IS 'Per item: the categories in column order (one-hot) or in order of position (ordinal).';

CREATE TABLE grouplearn.configs (
  model UUID NOT NULL,
  config INTEGER NOT NULL,
  parameters MAP(VARCHAR, VARCHAR) NOT NULL
);
COMMENT ON TABLE grouplearn.configs IS 'One row per point of the search space.';
COMMENT ON COLUMN grouplearn.configs.parameters IS 'Hyperparameters as text; the model''s view casts them to their types.';

CREATE TABLE grouplearn.trials (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  config INTEGER NOT NULL,
  status VARCHAR NOT NULL,
  error VARCHAR,
  epochs INTEGER NOT NULL,
  seconds DOUBLE NOT NULL,
  is_best BOOLEAN NOT NULL,
  train DOUBLE[] NOT NULL,
  valid DOUBLE[] NOT NULL,
  importance DOUBLE[]
);
COMMENT ON TABLE grouplearn.trials IS 'One row per group and config.';
COMMENT ON COLUMN grouplearn.trials.status IS 'done, stopped (it had fewer epochs than a whole training) or failed; done means that the artifact was committed in the same transaction.';
COMMENT ON COLUMN grouplearn.trials.train IS 'Metrics on the training rows, in the order of models.metrics; one that is undefined there is NULL.';
COMMENT ON COLUMN grouplearn.trials.valid IS 'Metrics on the held-out rows, in the order of models.metrics; empty without such rows.';
COMMENT ON COLUMN grouplearn.trials.importance IS 'One non-negative number per feature column of the group; NULL for linear models, where it is the size of the weights.';

CREATE TABLE grouplearn.curves (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  config INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  train_loss DOUBLE,
  valid_metric DOUBLE
);
COMMENT ON TABLE grouplearn.curves IS 'One row per trial and epoch.';
COMMENT ON COLUMN grouplearn.curves.train_loss IS 'The training objective after the epoch; of a network and by solver sgd its mean over the batches, each as it was before its step, of a network per unit of weight.';
COMMENT ON COLUMN grouplearn.curves.valid_metric IS 'The metric that is optimized, on the held-out rows; NULL without any.';

CREATE TABLE grouplearn.artifacts (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  config INTEGER NOT NULL,
  format VARCHAR NOT NULL,
  weights DOUBLE[],
  intercept DOUBLE[],
  content BLOB,
  sha256 VARCHAR NOT NULL
);
COMMENT ON TABLE grouplearn.artifacts IS 'The finished models, one row per trial that is kept. Nothing in here is executable.';
COMMENT ON COLUMN grouplearn.artifacts.format IS 'linear (weights and intercept), tensors (content is safetensors) or lightgbm (content is its model text).';
COMMENT ON COLUMN grouplearn.artifacts.weights IS 'Weights on the encoded features: the row of the first output, then of the second, and so on.';
COMMENT ON COLUMN grouplearn.artifacts.intercept IS 'One intercept per output.';
COMMENT ON COLUMN grouplearn.artifacts.sha256 IS 'SHA-256 of content, or of weights and then intercept as little-endian doubles; checked before use. It guards against damage, not against malice: what it vouches for is looked at all the same.';

CREATE TABLE grouplearn.units (
  model UUID NOT NULL,
  unit INTEGER NOT NULL,
  group_id INTEGER NOT NULL,
  configs INTEGER[] NOT NULL,
  fold INTEGER,
  kind VARCHAR NOT NULL,
  epoch INTEGER,
  first_block INTEGER,
  last_block INTEGER,
  worker INTEGER NOT NULL,
  started DOUBLE NOT NULL,
  ended DOUBLE NOT NULL,
  loaded BIGINT NOT NULL,
  fetched BIGINT NOT NULL
);
COMMENT ON TABLE grouplearn.units IS 'The schedule as it really ran: one row per unit and group (small groups share a unit), or per step of a unit whose group was split between workers.';
COMMENT ON COLUMN grouplearn.units.kind IS 'unit, or the kind of the step: init, accumulate, update, train, work, combine, reduce, judge, evaluate, finish, boost, descend; lost: what had begun when its worker was lost, and ran again.';
COMMENT ON COLUMN grouplearn.units.first_block IS 'A step''s blocks of the group''s rows, from first_block to before last_block; NULL for all or none.';
COMMENT ON COLUMN grouplearn.units.loaded IS 'Bytes of rows that the worker loaded for it.';
COMMENT ON COLUMN grouplearn.units.fetched IS 'Bytes of states and sums that it took from other workers.';
COMMENT ON COLUMN grouplearn.units.fold IS 'The held-out fold; NULL for the models that are kept.';
COMMENT ON COLUMN grouplearn.units.started IS 'Seconds since the run began.';
COMMENT ON COLUMN grouplearn.units.ended IS 'Seconds since the run began.';

CREATE TABLE grouplearn.errors (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  config INTEGER,
  reason VARCHAR NOT NULL
);
COMMENT ON TABLE grouplearn.errors IS 'Why groups and trials failed.';
COMMENT ON COLUMN grouplearn.errors.config IS 'The failed config; NULL when all configs of the group failed for the same reason.';
