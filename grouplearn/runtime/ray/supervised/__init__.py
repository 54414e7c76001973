"""Ray's driver in its own process, supervised by the session."""
