"""Our statements in the stock ``duckdb`` shell and in plain DuckDB connections: the Python side of ``udfs/native``."""
