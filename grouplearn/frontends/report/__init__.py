"""A page about a model, and the small pictures in it."""
