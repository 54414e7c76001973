ALTER TABLE grouplearn.units ADD COLUMN pushes STRUCT(partition INTEGER, seen INTEGER)[];
COMMENT ON COLUMN grouplearn.units.kind IS 'unit, or the kind of the step: init, accumulate, update, train, work, combine, reduce, push, judge, evaluate, finish, boost, descend; lost: what had begun when its worker was lost, and ran again.';
COMMENT ON COLUMN grouplearn.units.pushes IS 'Operator parameter_server: of a finish, the pushes that made the models, in order: which partition pushed, and how many pushes had been applied to the model that it began from. NULL for others, and where a run went on from what was kept on disk.';
UPDATE grouplearn.schema_version SET version = 7;
