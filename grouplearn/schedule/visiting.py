"""The order in which sequential learners visit blocks: as they are numbered, whoever trains a pack and whatever is beside it.

A pass begins at block 0. Were packs to begin apart from each other, a model would depend on how many packs its group has:
on a memory limit, on the units that a resumed run has left, on whether its group trains beside others.
"""

from __future__ import annotations

from collections.abc import Mapping

from grouplearn.schedule.messages import Blocks


def visits(shards: Mapping[int, Blocks]) -> tuple[tuple[int, Blocks], ...]:
    """Return which place visits which blocks, in order, in an epoch."""
    return tuple(sorted(shards.items(), key=lambda each: each[1].first))
