"""One model per group, from SQL: in-database machine learning for DuckDB."""
