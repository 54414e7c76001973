"""SQL text that grouplearn executes or shows."""
