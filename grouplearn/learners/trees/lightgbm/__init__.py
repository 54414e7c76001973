"""LightGBM: its parameters, its library, its model text."""
