"""Rows that can be read once: what they are, and the temporary tables that keep them."""
