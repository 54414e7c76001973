"""Text to frozen statements."""
