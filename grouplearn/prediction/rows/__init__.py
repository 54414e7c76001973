"""Rows to predict, as models read them: their groups, numbers, categories and lists."""
