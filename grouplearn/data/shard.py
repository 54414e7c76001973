"""A shard: the encoded rows of one group (or part of it) that a learner sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse

FloatArray: TypeAlias = npt.NDArray[np.float64]
Matrix: TypeAlias = FloatArray | scipy.sparse.csr_matrix

#: Rows per block. Blocks are cut from the start of a shard, so they depend on the data alone, never on workers.
BLOCK_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows of one group: ``x`` (n, d) dense float64 (C order) or CSR, ``y`` (n,), ``weight`` (n,).

    ``y`` is the value, or the class number as a float. Weights include row and class weights; they are positive.
    """

    x: Matrix
    y: FloatArray
    weight: FloatArray

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.y.shape[0])

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Shard]:
        """Yield the shard's blocks in order; an empty shard yields none."""
        for start in range(0, self.n_rows, rows):
            part = slice(start, start + rows)
            yield Shard(self.x[part], self.y[part], self.weight[part])


@dataclass(frozen=True, slots=True)
class Stack:
    """Rows of several small groups, padded to one length: ``x`` (G, n, d), ``y`` and ``weight`` (G, n).

    Padding has weight 0, so that it adds nothing to any sum.
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.y.shape[0])

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> Stack:
        """Pad dense shards of equal width."""
        longest = max(shard.n_rows for shard in shards)
        x = np.zeros((len(shards), longest, shards[0].x.shape[1]))
        y, weight = np.zeros((2, len(shards), longest))
        for number, shard in enumerate(shards):
            x[number, : shard.n_rows] = shard.x
            y[number, : shard.n_rows] = shard.y
            weight[number, : shard.n_rows] = shard.weight
        return cls(x, y, weight)
