"""Clauses with a grammar of their own, and values for parameters."""
