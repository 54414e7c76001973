"""Rows to predict: their groups, numbers, categories and lists."""
