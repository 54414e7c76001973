"""Models as SQL: a SELECT for linear models, trees, networks or vectors, and the macro around it."""
