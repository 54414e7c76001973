"""Bound statement to rows: statistics, rows sorted by group, and the holdout."""
