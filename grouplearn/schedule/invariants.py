"""Invariants of schedules, checked at every transition: a broken one is a bug and stops the run."""

from __future__ import annotations


class BrokenSchedule(AssertionError):
    """An event or transition that violates an invariant of the schedule: always a bug, never a user's error."""


def require(holds: bool, what: str) -> None:
    """Raise BrokenSchedule with the message ``what`` unless it ``holds``."""
    if not holds:
        raise BrokenSchedule(what)
