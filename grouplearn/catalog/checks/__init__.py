"""A database may come from anybody: which tables and expressions it may have, and what is trusted."""
