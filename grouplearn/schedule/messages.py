"""What passes between a runtime and an operator's state machine: events in, instructions out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Unit:
    """A training unit: one pack (``configs`` of ``group``) on the group's rows, run without preemption.

    ``others`` are further small groups that train in the same unit, side by side (their rows gathered and padded); the
    unit is scheduled as one of ``group``. ``fold`` is the held-out fold under VALIDATE FOLDS, or -1 for the model that is
    kept. ``cost`` is the estimated work in seconds; schedules use it only to order units, so it never changes a model.
    """

    id: int
    group: int
    configs: tuple[int, ...]
    fold: int = -1
    cost: float = 0.0
    others: tuple[int, ...] = ()

    @property
    def groups(self) -> tuple[int, ...]:
        """Every group the unit trains."""
        return (self.group, *self.others)

    def of(self, group: int) -> Unit:
        """Return the unit as one of its groups alone sees it."""
        return replace(self, group=group, others=())


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker joined and is idle."""

    worker: int


@dataclass(frozen=True, slots=True)
class UnitDone:
    """A worker finished a unit (successfully or with a reason recorded in its result) and is idle again."""

    worker: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker is gone; what it was running must run elsewhere."""

    worker: int


Event = WorkerReady | UnitDone | WorkerLost


@dataclass(frozen=True, slots=True)
class Load:
    """Make the encoded rows of ``group`` ready on ``worker`` (it keeps them until Release)."""

    worker: int
    group: int


@dataclass(frozen=True, slots=True)
class Run:
    """Run ``unit`` on ``worker``."""

    worker: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class Release:
    """``worker`` no longer needs the rows of ``group``."""

    worker: int
    group: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Every unit is done; workers may stop."""


Instruction = Load | Run | Release | Finish


class Operator(Protocol):
    """A way to run units: a pure state machine without clock or input/output."""

    name: str

    def on(self, event: Event) -> tuple[Instruction, ...]:
        """Take an event, return what is to be done now, in order."""
        ...
