"""Ray's driver in a process of its own, which the session watches."""
