"""Text to our frozen statements; the only importer of sqlglot."""
