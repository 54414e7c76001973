"""Python: the DB-API, models, plots, networks of a user's own."""
