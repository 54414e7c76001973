"""The order of one epoch's sub-epochs from their durations: an open shop, with units as jobs and shards as machines."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Mapping, Sequence

from grouplearn.schedule.mop.shop import OpenShop, Starts, Visit
from grouplearn.schedule.workload import Scheduler

__all__ = ["Visit", "planned", "starts_of"]

#: Search nodes of the exact scheduler, times the square of the number of ordered pairs of visits: some ten seconds. Not a
#: time limit, as a faster processor would find another order, and so other models.
EXACT_WORK = 1e8


def planned(scheduler: Scheduler, seconds: Mapping[Visit, float]) -> tuple[Visit, ...]:
    """Return the visits in order of their start; results are cached."""
    return _planned(scheduler, tuple(seconds.items()))


@functools.lru_cache(maxsize=8)
def _planned(scheduler: Scheduler, seconds: tuple[tuple[Visit, float], ...]) -> tuple[Visit, ...]:
    starts = starts_of(scheduler, OpenShop(dict(seconds)))
    return tuple(sorted(starts, key=lambda visit: (starts[visit], visit)))


def starts_of(scheduler: Scheduler, shop: OpenShop, work: float = EXACT_WORK) -> Starts:
    """Return when each visit starts.

    ``vector`` (5.2): units in an order in which the load of all shards grows evenly; if the largest load is at least (p² +
    p - 1) times the longest visit the order is staggered, which is optimal, else dense, which is within (p - 1) longest
    visits of the optimum. ``exact`` (5.1): the mixed-integer program, or the dense order if it finds nothing better with
    this much ``work``.
    """
    from grouplearn.schedule.mop.exact_shop import exact_starts  # its solver is slow to import
    from grouplearn.schedule.mop.vector_shop import rearranged, staggered

    arranged = rearranged(shop)
    dense = dense_starts(shop, arranged.order)
    if scheduler == "exact":
        found = exact_starts(shop, work)
        return dense if found is None or shop.makespan(found) >= shop.makespan(dense) else found
    return staggered(shop, arranged) or dense


def dense_starts(shop: OpenShop, order: Sequence[int]) -> Starts:
    """Return a schedule in which no shard waits while a unit that must still visit it waits too.

    If shard j ends with unit i, it was only ever idle while i was elsewhere: C ≤ max_j L_j + (p - 1) T_max.
    """
    starts: dict[Visit, float] = {}
    rank = {unit: number for number, unit in enumerate(order)}
    left = {place: sorted(units, key=rank.__getitem__) for place, units in shop.units_at.items()}
    free_at = dict.fromkeys(rank, 0.0)
    events = [(0.0, place) for place in sorted(left)]
    while events:
        now, place = heapq.heappop(events)
        unit = next((each for each in left[place] if free_at[each] <= now), None)
        if unit is not None:
            left[place].remove(unit)
            starts[unit, place] = now
            now = free_at[unit] = now + shop.seconds[unit, place]
        elif left[place]:
            now = min(free_at[each] for each in left[place])
        if left[place]:
            heapq.heappush(events, (now, place))
    return starts
