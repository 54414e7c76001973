"""DDL of schema grouplearn."""
