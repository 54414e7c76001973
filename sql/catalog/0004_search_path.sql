ALTER TABLE grouplearn.models ADD COLUMN search_path STRUCT(database VARCHAR, schema VARCHAR)[];
COMMENT ON COLUMN grouplearn.models.search_path IS 'Where unqualified names of the statement were looked for, in order; database is NULL for the model''s own. NULL in models of earlier versions.';
UPDATE grouplearn.schema_version SET version = 4;
