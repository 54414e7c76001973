"""Learners of rows as learners of series: they learn a value from earlier ones, and forecast step by step."""
