"""A statement to a physical plan: bind, features, statistics, partition, cost, choose, explain."""
