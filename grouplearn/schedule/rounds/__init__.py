"""Rounds: work on every partition, reduce each part of the parameters, send all parts to every partition."""
