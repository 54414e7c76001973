"""Moments of rows, of which least squares are made, and what else is where there are none."""
