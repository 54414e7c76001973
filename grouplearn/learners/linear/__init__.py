"""Linear models: least squares and generalised linear models."""
