"""Where people type: DB-API, shell, Jupyter."""
