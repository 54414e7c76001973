"""Moments of rows, from which least squares are solved, and alternatives where they are too large or imprecise."""
