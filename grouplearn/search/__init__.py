"""Search procedures: which configurations to try."""
