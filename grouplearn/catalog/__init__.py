"""The model tables: their schema, reading them back, and checking them before use."""
