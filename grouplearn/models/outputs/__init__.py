"""Forms of prediction: number, class, array, cluster, projection. Each knows its columns, SQL and metrics."""
