CREATE TABLE grouplearn.trials (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  config INTEGER NOT NULL,
  status VARCHAR NOT NULL,
  error VARCHAR,
  epochs INTEGER NOT NULL,
  converged BOOLEAN,
  seconds DOUBLE NOT NULL,
  is_best BOOLEAN NOT NULL,
  train DOUBLE[] NOT NULL,
  valid DOUBLE[] NOT NULL,
  importance DOUBLE[],
  trained_at TIMESTAMP
);
COMMENT ON TABLE grouplearn.trials IS 'One row per group and config.';
COMMENT ON COLUMN grouplearn.trials.status IS 'done, stopped (it had fewer epochs than a whole training), failed, or kept (this training of the group failed, for the reason in error, and the trial with its metrics and its artifact comes from the model before); done means that the artifact was committed in the same transaction.';
COMMENT ON COLUMN grouplearn.trials.converged IS 'Whether training reached its tolerance before the limit of epochs; NULL for learners without a tolerance.';
COMMENT ON COLUMN grouplearn.trials.train IS 'Metrics on the training rows, in the order of models.metrics; one that is undefined there is NULL.';
COMMENT ON COLUMN grouplearn.trials.valid IS 'Metrics on the held-out rows, in the order of models.metrics; empty without such rows.';
COMMENT ON COLUMN grouplearn.trials.importance IS 'One non-negative number per feature column of the group; NULL for linear models, where it is the size of the weights.';
COMMENT ON COLUMN grouplearn.trials.trained_at IS 'When a trial that was kept was trained, in UTC; NULL for those that were trained with the model.';

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
  places BIGINT[][],
  nonzeros DOUBLE[][],
  content BLOB,
  sha256 VARCHAR NOT NULL,
  standard_errors DOUBLE[],
  p_values DOUBLE[],
  critical DOUBLE,
  without_errors VARCHAR
);
COMMENT ON TABLE grouplearn.artifacts IS 'The finished models, one row per trial that is kept. Nothing in here is executable.';
COMMENT ON COLUMN grouplearn.artifacts.format IS 'linear (weights and intercept), tensors (content is safetensors) or lightgbm (content is its model text).';
COMMENT ON COLUMN grouplearn.artifacts.weights IS 'Weights on the encoded features, except those of wide items, which are in nonzeros: the row of the first output, then of the second, and so on.';
COMMENT ON COLUMN grouplearn.artifacts.intercept IS 'One intercept per output.';
COMMENT ON COLUMN grouplearn.artifacts.places IS 'Per item: of a wide one (a hash of many columns, say) the 0-based columns that have a weight other than 0, ascending; empty for others. NULL in models without wide items.';
COMMENT ON COLUMN grouplearn.artifacts.nonzeros IS 'Per item: the weights of these columns for the first output, then for the second, and so on.';
COMMENT ON COLUMN grouplearn.artifacts.sha256 IS 'SHA-256 of content, or of weights, then intercept, then places and then nonzeros, as little-endian doubles and whole numbers; checked before use. It guards against damage, not against malice: what it vouches for is looked at all the same.';
COMMENT ON COLUMN grouplearn.artifacts.standard_errors IS 'Standard errors of the weights, then of the intercept; NULL for a weight that has none, and for models without standard errors.';
COMMENT ON COLUMN grouplearn.artifacts.p_values IS 'P-values of the same weights being 0.';
COMMENT ON COLUMN grouplearn.artifacts.critical IS 'Half the length of a confidence interval, in standard errors.';
COMMENT ON COLUMN grouplearn.artifacts.without_errors IS 'Why the model, or some of its weights, has no standard errors.';

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
  fetched BIGINT NOT NULL,
  pushes STRUCT(partition INTEGER, seen INTEGER)[]
);
COMMENT ON TABLE grouplearn.units IS 'The schedule as it really ran: one row per unit and group (small groups share a unit), or per step of a unit whose group was split between workers.';
COMMENT ON COLUMN grouplearn.units.kind IS 'unit, or the kind of the step: init, accumulate, update, train, work, combine, reduce, push, judge, evaluate, finish, boost, descend; lost: what had begun when its worker was lost, and ran again.';
COMMENT ON COLUMN grouplearn.units.first_block IS 'A step''s blocks of the group''s rows, from first_block to before last_block; NULL for all or none.';
COMMENT ON COLUMN grouplearn.units.loaded IS 'Bytes of rows that the worker loaded for it.';
COMMENT ON COLUMN grouplearn.units.fetched IS 'Bytes of states and sums that it took from other workers.';
COMMENT ON COLUMN grouplearn.units.fold IS 'The held-out fold; NULL for the models that are kept.';
COMMENT ON COLUMN grouplearn.units.started IS 'Seconds since the run began.';
COMMENT ON COLUMN grouplearn.units.ended IS 'Seconds since the run began.';
COMMENT ON COLUMN grouplearn.units.pushes IS 'Operator parameter_server: of a finish, the pushes that made the models, in order: which partition pushed, and how many pushes had been applied to the model that it began from. NULL for others, and where a run went on from what was kept on disk.';

CREATE TABLE grouplearn.errors (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  config INTEGER,
  reason VARCHAR NOT NULL
);
COMMENT ON TABLE grouplearn.errors IS 'Why groups and trials failed.';
COMMENT ON COLUMN grouplearn.errors.config IS 'The failed config; NULL when all configs of the group failed for the same reason.';
