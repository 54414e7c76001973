"""What is said of a row: a number, a class, an array, a cluster, a projection. Each knows its columns, SQL and metrics."""
