ALTER TABLE grouplearn.models ADD COLUMN group_failure VARCHAR;
ALTER TABLE grouplearn.trials ADD COLUMN trained_at TIMESTAMP;
COMMENT ON COLUMN grouplearn.models.group_failure IS 'What TRAIN does where a group fails: keep (OR REPLACE keeps the model that the group had) or error (the statement fails). NULL in models of earlier versions, which did not keep them.';
COMMENT ON COLUMN grouplearn.trials.status IS 'done, stopped (it had fewer epochs than a whole training), failed, or kept (this training of the group failed, for the reason in error, and the trial with its metrics and its artifact is that of the model before); done means that the artifact was committed in the same transaction.';
COMMENT ON COLUMN grouplearn.trials.trained_at IS 'When a trial that was kept was trained, in UTC; NULL for those that were trained with the model.';
UPDATE grouplearn.schema_version SET version = 10;
