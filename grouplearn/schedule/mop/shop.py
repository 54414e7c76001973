"""An open shop: how long each unit takes at each shard, the totals, and when a schedule ends."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

#: A unit (by id) at a shard (by place).
Visit = tuple[int, int]
Starts = dict[Visit, float]


@dataclass(frozen=True)
class OpenShop:
    """An open shop: the ``seconds`` of every visit, with no entry where a unit does not visit a shard."""

    seconds: Mapping[Visit, float]

    @property
    def units_at(self) -> dict[int, list[int]]:
        """Return the units that visit each shard, lowest first."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for unit, place in sorted(self.seconds):
            found[place].append(unit)
        return dict(found)

    @property
    def places_of(self) -> dict[int, list[int]]:
        """Return the shards that each unit visits, lowest first."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for unit, place in sorted(self.seconds):
            found[unit].append(place)
        return dict(found)

    @property
    def loads(self) -> dict[int, float]:
        """Return the total seconds of visits to each shard."""
        return {place: sum(self.seconds[unit, place] for unit in units) for place, units in self.units_at.items()}

    @property
    def longest(self) -> float:
        """Return T_max, the seconds of the longest visit (equation 4)."""
        return max(self.seconds.values(), default=0.0)

    @property
    def bound(self) -> float:
        """Return a lower bound for the length of all schedules: the largest load of a shard or unit."""
        units = [sum(self.seconds[unit, place] for place in places) for unit, places in self.places_of.items()]
        return max([*self.loads.values(), *units], default=0.0)

    def makespan(self, starts: Starts) -> float:
        """Return when the last visit ends."""
        return max((start + self.seconds[visit] for visit, start in starts.items()), default=0.0)

    def is_schedule(self, starts: Starts) -> bool:
        """Whether it has all visits, and no unit or shard is in two visits at a time (to 1e-9 of the longest)."""
        if starts.keys() != self.seconds.keys() or min(starts.values(), default=0.0) < 0:
            return False
        lines: defaultdict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        for (unit, place), start in starts.items():
            span = (start, start + self.seconds[unit, place])
            lines["unit", unit].append(span)
            lines["place", place].append(span)
        slack = 1e-9 * self.longest
        return all(
            before[1] <= after[0] + slack
            for line in map(sorted, lines.values())
            for before, after in itertools.pairwise(line)
        )
