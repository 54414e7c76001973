CREATE TABLE grouplearn.factors (
  model UUID NOT NULL,
  group_id INTEGER NOT NULL,
  part VARCHAR NOT NULL,
  place INTEGER NOT NULL,
  vector DOUBLE[] NOT NULL,
  value DOUBLE
);
COMMENT ON TABLE grouplearn.factors IS 'Models that are vectors over the encoded features: centroids of clusters, principal components. One row per vector of each group''s best trial.';
COMMENT ON COLUMN grouplearn.factors.part IS 'What the vector is: centroid, component, or the mean that is taken away before components are.';
COMMENT ON COLUMN grouplearn.factors.place IS 'The number of the centroid or of the component, from 1 on; 0 for the mean.';
COMMENT ON COLUMN grouplearn.factors.value IS 'The number of training rows of a centroid, the variance along a component, the whole variance of the mean.';
