"""Models to predictions: the function predict, EVALUATE, and what both read rows with."""
