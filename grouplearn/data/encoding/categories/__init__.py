"""Encoders of single values: a column for each, its rank, or a column for each hash bucket."""
