ALTER TABLE grouplearn.models ADD COLUMN item_options MAP(VARCHAR, VARCHAR)[];
COMMENT ON COLUMN grouplearn.models.item_options IS 'The options of each FEATURES item that its encoder alone has, by name. NULL in models of earlier versions, which have none.';
UPDATE grouplearn.schema_version SET version = 8;
