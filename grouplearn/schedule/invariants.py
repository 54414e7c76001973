"""Invariants of schedules, checked at every transition: a broken one is a bug, and stops the run."""

from __future__ import annotations


class BrokenSchedule(AssertionError):
    """An event or a transition that would break a promise of the schedule; always a bug, never the user's doing."""


def require(holds: bool, what: str) -> None:
    """Raise BrokenSchedule saying ``what`` unless it ``holds``."""
    if not holds:
        raise BrokenSchedule(what)
