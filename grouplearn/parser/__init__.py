"""Text to our frozen statements."""
