"""Encoders of lists: a column per element, per hash bucket, or per index."""
