"""Statement to bound statement: names, types, features and options, before any row is read."""
