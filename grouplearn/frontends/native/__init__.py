"""Our statements in the stock ``duckdb`` shell and in plain DuckDB connections: what the extension in ``udfs/native`` needs."""
