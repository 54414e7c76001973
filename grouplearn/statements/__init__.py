"""What each of our statements does, on one connection."""
