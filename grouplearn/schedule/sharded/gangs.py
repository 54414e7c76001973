"""Units that all workers of a group run at the same time: who waits for whom, without a deadlock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from grouplearn.schedule.messages import Unit


@dataclass
class ScheduledGang:
    """A unit and the workers that run it together; ``first_of`` of them have no earlier gang in their line."""

    unit: Unit
    members: tuple[int, ...]
    first_of: int = 0
    arrived: set[int] = field(default_factory=set)
    begun: bool = False
    working: set[int] = field(default_factory=set)

    @property
    def armed(self) -> bool:
        """Whether it is the next gang of every member, so that those who are free wait for the others."""
        return self.first_of == len(self.members)


class Gangs:
    """Gangs stand in one order, the same in every worker's line, so the first of all can always begin (no deadlock).

    A worker waits for its next gang only when that is the next one of all members; else it may do something else meanwhile.
    """

    def __init__(self) -> None:
        self._lines: dict[int, deque[ScheduledGang]] = {}

    def arrange(self, gangs: Iterable[ScheduledGang]) -> None:
        """Line up gangs, those that have begun first, then in the order given."""
        self._lines = {}
        for gang in sorted(gangs, key=lambda gang: not gang.begun):
            gang.first_of = 0
            gang.arrived.clear()
            self.append(gang)

    def append(self, gang: ScheduledGang) -> None:
        """Put a gang last in the line of every member."""
        for worker in gang.members:
            line = self._lines.setdefault(worker, deque())
            line.append(gang)
            gang.first_of += line[0] is gang

    def arrive(self, worker: int) -> ScheduledGang | None:
        """A worker is free: return the gang that it waits for or that can begin now, if there is one."""
        line = self._lines.get(worker)
        if not line or not (line[0].armed or line[0].begun):
            return None
        line[0].arrived.add(worker)
        return line[0]

    def leave(self, gang: ScheduledGang) -> tuple[int, ...]:
        """A gang is over; return the workers for whom that changes what they do next."""
        awake = set(gang.members)
        for worker in gang.members:
            line = self._lines.get(worker)
            if not line or line[0] is not gang:
                continue
            line.popleft()
            if line:
                line[0].first_of += 1
                if line[0].armed:
                    awake.update(line[0].members)
        return tuple(sorted(awake))
