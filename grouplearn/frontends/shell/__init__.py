"""The shell of ours, and how it prints."""
