"""Jupyter and IPython: magics, and model tables."""
