"""The order in which sequential learners visit blocks: by number, on any worker, whatever else trains.

A pass begins at block 0. If packs began at different blocks, a model would depend on the number of its group's packs, and
thus on the memory limit, on the units that a resumed run has left, and on whether its group trains beside others.
"""

from __future__ import annotations

from collections.abc import Mapping

from grouplearn.schedule.messages import BlockRange


def visits(shards: Mapping[int, BlockRange]) -> tuple[tuple[int, BlockRange], ...]:
    """Return the blocks that an epoch visits and their places, in order."""
    return tuple(sorted(shards.items(), key=lambda each: each[1].first))
