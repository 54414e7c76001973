"""Models as directories of files, for other programs and other databases, and back."""
