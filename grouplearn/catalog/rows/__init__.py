"""Catalog tables as Arrow tables: made from what a run produced, and read back."""
