"""A database comes from anywhere: what its tables and expressions may be, and what is trusted."""
