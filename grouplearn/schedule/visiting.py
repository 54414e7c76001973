"""The order in which sequential learners visit blocks: it depends on the pack and the group alone, never on workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from grouplearn.schedule.messages import Blocks, Unit


def first_blocks(units: Iterable[Unit], blocks: Callable[[Unit], int]) -> dict[int, int]:
    """Return, by unit id, the block at which a unit starts every epoch: floor(k B / K).

    B is ``blocks(unit)``, the blocks of its rows; k is its place among the K units of its group, in the order of their ids.
    """
    by_group: dict[int, list[Unit]] = {}
    for unit in sorted(units, key=lambda unit: unit.id):
        by_group.setdefault(unit.group, []).append(unit)
    return {unit.id: place * blocks(unit) // len(each) for each in by_group.values() for place, unit in enumerate(each)}


def visits(shards: Mapping[int, Blocks], first: int) -> tuple[tuple[int, Blocks], ...]:
    """Return which place visits which blocks, in order, in an epoch that starts at block ``first`` and goes round once.

    The shard that holds ``first`` is visited in two pieces, unless it starts there.
    """
    runs = sorted(shards.items(), key=lambda each: each[1].first)
    after = [(place, Blocks(max(first, run.first), run.last)) for place, run in runs if run.last > first]
    before = [(place, Blocks(run.first, min(first, run.last))) for place, run in runs if run.first < first]
    return (*after, *before)
