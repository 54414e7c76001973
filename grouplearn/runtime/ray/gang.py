"""Gangs in Ray's driver: workers that run the steps of one unit at the same time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from grouplearn.schedule.messages import Step
from grouplearn.train.sharded.descent import Product
from grouplearn.train.sharded.steps import StepAnswer

#: How long a member waits for another, and how long the others may take to end after one failed.
GANG_SECONDS, GRACE_SECONDS = 120.0, 5.0


@dataclass
class Members:
    """The workers of one gang with their steps; ``made`` has the answers of those that are done."""

    steps: dict[int, Step] = field(default_factory=dict)
    made: dict[int, StepAnswer] = field(default_factory=dict)
    failed_since: float | None = None

    @property
    def unit(self) -> int:
        """Id of their unit."""
        return next(iter(self.steps.values())).unit.id

    @property
    def first(self) -> int:
        """The worker of rank 0, which makes the unit's result."""
        return next(worker for worker, step in self.steps.items() if step.rank == 0)

    @property
    def gathered(self) -> bool:
        """Whether all members have arrived."""
        return len(self.steps) == next(iter(self.steps.values())).size

    @property
    def answered(self) -> bool:
        """Whether all members are done."""
        return len(self.made) == len(self.steps)

    @property
    def failure(self) -> StepAnswer | None:
        """The answer of a member that failed."""
        return next((answer for answer in self.made.values() if answer.failed), None)

    @property
    def evaluations(self) -> tuple[Product, ...]:
        """The members' evaluations of the finished models, in order of ranks."""
        answers = sorted(self.made.values(), key=lambda answer: answer.step.rank)
        return tuple(answer.product for answer in answers if answer.product is not None)

    def note(self, worker: int, answer: StepAnswer) -> None:
        """Record that a member is done."""
        self.made[worker] = answer
        if answer.failed and self.failed_since is None:
            self.failed_since = time.monotonic()

    def disband(self) -> None:
        """Keep only the first member, which makes the result from all evaluations; the others are free."""
        first = self.first
        self.steps = {first: self.steps[first]}

    @property
    def overdue(self) -> set[int]:
        """Return the members that have not ended although another failed some time ago."""
        late = self.failed_since is not None and time.monotonic() - self.failed_since > GRACE_SECONDS
        return self.steps.keys() - self.made.keys() if late else set()


class Gangs:
    """All gangs of a run."""

    def __init__(self) -> None:
        self._by_unit: dict[int, Members] = {}

    def add(self, worker: int, step: Step) -> Members:
        """Add a worker to the gang of its step's unit, and return the gang."""
        members = self._by_unit.setdefault(step.unit.id, Members())
        members.steps[worker] = step
        return members

    def of(self, worker: int) -> Members | None:
        """Return the gang of a worker, None if it is in none."""
        return next((each for each in self._by_unit.values() if worker in each.steps), None)

    def end(self, members: Members) -> None:
        """Forget a gang."""
        del self._by_unit[members.unit]

    @property
    def overdue(self) -> set[int]:
        """Return the members of any gang that have not ended although another failed some time ago."""
        return {worker for members in self._by_unit.values() for worker in members.overdue}
