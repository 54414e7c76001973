"""FEATURES AUTO: features chosen by type and values of each column."""
