"""Statements that train a stored model further: RETRY FAILED and REFRESH."""
