"""Bound statement and statistics to a physical plan: packs, units, what they cost, the choice of an operator, EXPLAIN."""
