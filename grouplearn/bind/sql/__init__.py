"""SQL of the user's, judged by DuckDB itself: its expressions, types, bounds, and what is refused in it."""
