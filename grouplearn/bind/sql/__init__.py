"""The user's SQL, checked by DuckDB itself: expressions, types, bounds, and what is refused."""
