"""Groups padded to one length, for the solvers that take them so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grouplearn.data.shard import FloatArray, Stack


@dataclass(frozen=True, slots=True)
class Padded:
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


def padded(stack: Stack) -> Padded:
    """Return the rows of a stack, padded."""
    sizes, width = stack.sizes, stack.x.shape[1]
    shape = (stack.n_groups, int(sizes.max(initial=0)))
    if (sizes == shape[1]).all():
        return Padded(stack.x.reshape(*shape, width), stack.y.reshape(shape), stack.weight.reshape(shape))
    group = np.repeat(np.arange(shape[0]), sizes)
    within = np.arange(group.size) - stack.start[group]
    rows = Padded(np.zeros((*shape, width)), *np.zeros((2, *shape)))
    rows.x[group, within], rows.y[group, within], rows.weight[group, within] = stack.x, stack.y, stack.weight
    return rows
