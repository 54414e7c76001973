CREATE TABLE grouplearn.factors (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  part VARCHAR NOT NULL,
  place INTEGER NOT NULL,
  vector DOUBLE[] NOT NULL,
  value DOUBLE
);
COMMENT ON TABLE grouplearn.factors IS 'Models that are vectors over the encoded features: centroids of clusters, principal components, forecasts of series. One row per vector of each group''s best trial.';
COMMENT ON COLUMN grouplearn.factors.part IS 'What the vector is: centroid, component, the mean that is taken away before components are; of series the one-step forecasts (fitted), forecasts (mean), their deviation, the two errors of the seasonal naive forecast (scale), and the letters of the method that was chosen (method).';
COMMENT ON COLUMN grouplearn.factors.place IS 'The number of the centroid, of the component or of the series, from 1 on; 0 for the mean of components.';
COMMENT ON COLUMN grouplearn.factors.value IS 'The number of training rows of a centroid, the variance along a component, the whole variance of the mean; the first step of fitted, the last step before forecasts, beside scale the number of steps without a value, beside method why the method of a series is a simple one.';
