"""Encoders, one object each: what every room asks of an item of FEATURES, from its words in SQL to its form in an export."""
