"""What names mean on a connection: its search path, its macros, views and columns, and what ``predict`` refers to."""
