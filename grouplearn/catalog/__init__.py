"""Model tables: the only writer of schema grouplearn."""
