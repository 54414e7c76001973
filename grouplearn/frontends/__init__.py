"""Where people type: DB-API, shell, Jupyter, DuckDB's own shell, other clients."""
