"""What DuckDB counts before rows are read: groups, classes, categories, lists, and rows that no model uses."""
