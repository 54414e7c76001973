"""Stacks of groups made from their shards."""

from collections.abc import Sequence

import numpy as np

from grouplearn.data.shard import Shard, Stack, starts


def stack_of(shards: Sequence[Shard]) -> Stack:
    """Return dense shards of equal width as groups."""
    x, y, weight = (np.concatenate([getattr(each, name) for each in shards]) for name in ("x", "y", "weight"))
    return Stack(x, y, weight, starts([shard.n_rows for shard in shards]))
