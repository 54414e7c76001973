"""What a run produced as Arrow tables of the catalog, and read back."""
