"""Our shell, and how it prints."""
