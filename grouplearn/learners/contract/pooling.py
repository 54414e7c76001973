"""Partial pooling: groups with one parent shrink to what they have in common, by how sure each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.models.state import FloatArray

#: Whether groups are alone, or shrink to what the groups of their parent have in common.
POOLING = Hyperparameter(
    "pooling",
    "str",
    "none",
    "how groups of GROUP BY learn from each other: 'none', each from its own rows alone; 'shrink', each begins with what the"
    " groups of its parent have in common (a mixed model), and has the more of its own the more its rows tell",
    "Laird & Ware 1982; Robinson 1991",
    choices=("none", "shrink"),
)


class Prior(NamedTuple):
    """What a group's model begins with: a ``state`` like the sums over its rows, or None and why not."""

    state: bytes | None
    reason: str | None = None


@runtime_checkable
class PoolsGroups(Protocol):
    """The sums over the rows of groups tell it how much their models differ."""

    def pools(self, config: Config) -> bool:
        """Return whether the models of a config shrink."""
        ...

    def priors(
        self, config: Config, states: Sequence[bytes], rows: FloatArray, parents: npt.NDArray[np.intp]
    ) -> list[Prior]:
        """Return what each of K groups begins with, given the sums over the rows of each, how many ``rows`` (K,) these are, and
        the numbers of their ``parents`` (K,), ascending."""
        ...


def pools(learner: object, config: Config) -> bool:
    """Return whether the models of a config shrink to those of other groups."""
    return isinstance(learner, PoolsGroups) and learner.pools(config)


def parents_of(sets: Sequence[Sequence[int]]) -> list[tuple[int, ...]] | None:
    """Return the keys that the groups of each level share with their siblings: those of the next coarser level, none where there
    is no such level; None if a level has several.

    ``((0, 1), (0,), ())`` of ROLLUP gives ``[(0,), (), ()]``.
    """
    found: list[tuple[int, ...]] = []
    for own in sets:
        coarser = [each for each in sets if set(each) < set(own)]
        nearest = [each for each in coarser if not any(set(each) < set(other) for other in coarser)]
        if len(nearest) > 1:
            return None
        found.append(tuple(nearest[0]) if nearest else ())
    return found
