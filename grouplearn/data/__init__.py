"""Rows as training sees them: the sorted dataset, fitted encoders, shards and blocks."""
