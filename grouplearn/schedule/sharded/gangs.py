"""Units that all workers of a group run at the same time, without deadlocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from grouplearn.schedule.messages import BlockRange, Unit
from grouplearn.schedule.sharded.placement import Placement


@dataclass
class ScheduledGang:
    """A unit and the workers that run it together; for ``first_of`` of them it is the next gang in their queue."""

    unit: Unit
    members: tuple[int, ...]
    first_of: int = 0
    arrived: set[int] = field(default_factory=set)
    begun: bool = False
    working: set[int] = field(default_factory=set)

    @property
    def armed(self) -> bool:
        """Whether it is the next gang of every member, so that free members wait for the others."""
        return self.first_of == len(self.members)

    @property
    def complete(self) -> bool:
        """Whether all members have arrived and it has not begun."""
        return not self.begun and self.arrived == set(self.members)


class GangQueues:
    """Queues of gangs in one order, the same for every worker, so that the first gang can always begin (no deadlock).

    A worker waits for its next gang only if it is the next one of all members; otherwise it may do something else first.
    """

    def __init__(self) -> None:
        self._queues: dict[int, deque[ScheduledGang]] = {}

    def arrange(self, gangs: Iterable[ScheduledGang]) -> None:
        """Queue gangs: those that have begun first, then in the order given."""
        self._queues = {}
        for gang in sorted(gangs, key=lambda gang: not gang.begun):
            gang.first_of = 0
            gang.arrived.clear()
            self.append(gang)

    def append(self, gang: ScheduledGang) -> None:
        """Append a gang to every member's queue."""
        for worker in gang.members:
            line = self._queues.setdefault(worker, deque())
            line.append(gang)
            gang.first_of += line[0] is gang

    def arrive(self, worker: int) -> ScheduledGang | None:
        """Record that a worker is free; return the gang that it waits for or that can begin now, if any."""
        line = self._queues.get(worker)
        if not line or not (line[0].armed or line[0].begun):
            return None
        line[0].arrived.add(worker)
        return line[0]

    def leave(self, gang: ScheduledGang) -> tuple[int, ...]:
        """Remove a gang that is over; return the workers whose next task this changes."""
        awake = set(gang.members)
        for worker in gang.members:
            line = self._queues.get(worker)
            if not line or line[0] is not gang:
                continue
            line.popleft()
            if line:
                line[0].first_of += 1
                if line[0].armed:
                    awake.update(line[0].members)
        return tuple(sorted(awake))


class GangUnits:
    """Split units that all workers with shards of their group train together, until each member has done its part."""

    def __init__(self, placement: Placement, shards: Mapping[int, Mapping[int, BlockRange]]) -> None:
        self._placement, self._shards = placement, shards
        self._queues = GangQueues()
        self._of_unit: dict[int, ScheduledGang] = {}

    def add(self, unit: Unit) -> tuple[int, ...]:
        """Queue a unit for its members; return them."""
        gang = self._of_unit[unit.id] = ScheduledGang(unit, self._members(unit))
        if self._placement.complete:
            self._queues.append(gang)
        return gang.members

    def regroup(self) -> bool:
        """Update the members of gangs that have not begun after a change of workers; return whether all workers are there."""
        if not self._placement.complete:
            return False
        for number, gang in self._of_unit.items():
            if not gang.begun:
                self._of_unit[number] = ScheduledGang(gang.unit, self._members(gang.unit))
        self._queues.arrange(self._of_unit.values())
        return True

    def arrive(self, worker: int) -> ScheduledGang | None:
        """Record that a worker is free; return the gang that it waits for or that can begin now, if any."""
        return self._queues.arrive(worker) if self._of_unit else None

    @property
    def hold_back(self) -> bool:
        """Whether no whole unit may begin yet: there are gangs, and not all workers have joined."""
        return bool(self._of_unit) and not self._placement.complete

    def is_current(self, gang: ScheduledGang) -> bool:
        """Whether the gang has all its members; the loss of one restarts its unit."""
        return self._of_unit.get(gang.unit.id) is gang

    def done(self, gang: ScheduledGang, worker: int) -> tuple[int, ...]:
        """Record that a member has done its part; return the workers whose next task changes if that ends the gang."""
        gang.working.discard(worker)
        if gang.working:
            return ()
        del self._of_unit[gang.unit.id]
        return self._queues.leave(gang)

    def lose(self, worker: int, open_units: Collection[int]) -> None:
        """Restart gangs in which the lost worker had not done its part, unless their result exists."""
        for number, gang in list(self._of_unit.items()):
            if worker not in gang.working:
                continue
            gang.working.discard(worker)
            if number in open_units:
                self._of_unit[number] = ScheduledGang(gang.unit, ())
            elif not gang.working:
                del self._of_unit[number]

    def _members(self, unit: Unit) -> tuple[int, ...]:
        """Return the distinct workers at the group's places, in the order of their blocks."""
        holders = (self._placement.holder(place) for place in self._shards[unit.group])
        return tuple(dict.fromkeys(holder for holder in holders if holder is not None))
