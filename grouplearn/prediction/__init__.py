"""Models to predictions: the function predict, EVALUATE, and how both read rows."""
