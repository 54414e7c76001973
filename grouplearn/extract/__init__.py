"""Bound statement to rows: statistics, rows in the order of their groups, and what is held out."""
