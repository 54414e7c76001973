"""Operators as pure state machines: events in, instructions out; no clock, no I/O."""
