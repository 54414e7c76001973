"""Predictions as SQL of other databases."""
