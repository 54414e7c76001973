"""The maths, one module per family."""
