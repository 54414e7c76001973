ALTER TABLE grouplearn.artifacts ADD COLUMN places BIGINT[][];
ALTER TABLE grouplearn.artifacts ADD COLUMN nonzeros DOUBLE[][];
COMMENT ON COLUMN grouplearn.artifacts.weights IS 'Weights on the encoded features: the row of the first output, then of the second, and so on. Not those of wide items, which are in nonzeros.';
COMMENT ON COLUMN grouplearn.artifacts.places IS 'Per item: of a wide one (a hash of many columns, say) the 0-based columns that have a weight other than 0, ascending; empty for others. NULL in models without wide items.';
COMMENT ON COLUMN grouplearn.artifacts.nonzeros IS 'Per item: the weights of these columns, those of the first output, then of the second, and so on.';
COMMENT ON COLUMN grouplearn.artifacts.sha256 IS 'SHA-256 of content, or of weights, then intercept, then places and then nonzeros, as little-endian doubles and whole numbers; checked before use. It guards against damage, not against malice: what it vouches for is looked at all the same.';
COMMENT ON COLUMN grouplearn.groups.features IS 'Names of the feature columns, encoders applied; not those of wide items, whose names follow from their numbers.';
COMMENT ON COLUMN grouplearn.groups.starts IS 'Per item: 0-based index of its first feature column; a wide item has none there.';
UPDATE grouplearn.schema_version SET version = 6;
