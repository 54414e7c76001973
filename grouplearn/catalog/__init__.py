"""Model tables as they are stored: their schema, what is read back of them, and what is checked before it is used."""
