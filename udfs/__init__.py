"""Functions that run inside DuckDB, one self-contained file each, found as resources."""
