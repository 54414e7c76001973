"""Linear models: their sums, their solvers."""
