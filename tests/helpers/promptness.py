"""How soon a TRAIN stops that is asked to."""

#: 2 s where nothing else runs; the rest is for a machine that does other things, which stops it late, not never.
STOPS_WITHIN_SECONDS = 2.0 + 10.0
