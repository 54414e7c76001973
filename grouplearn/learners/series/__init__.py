"""Learners of series: forecasts of a label from its own past."""
