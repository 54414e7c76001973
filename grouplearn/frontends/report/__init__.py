"""A page about a model, and its small pictures."""
