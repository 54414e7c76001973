"""The table of trees as sets of leaves, from which SQL predicts without walking."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.learners.trees.leaf_sets import LEAVES, PARTS, GroupSets, group_sets, tree_sets
from grouplearn.learners.trees.nodes import IntArray, Nodes

#: Most words of a model: 256 MB.
MOST_WORDS = 1 << 24
#: Most numbers that trees test, and most cases of one.
MOST_SLOTS, MOST_CASES = 64, 1 << 16
#: What parts and steps of a walk cost, in lookups of a number's set for a part.
_PER_PART, _PER_STEP = 20, 9


@dataclass(frozen=True, slots=True)
class GroupForest:
    """The trees of some groups: their nodes, and of each tree the root, the place of its group, and the output it adds to."""

    groups: Sequence[int]
    nodes: Nodes
    roots: IntArray
    group: IntArray
    output: IntArray


def slots_of(grown: Iterable[GroupForest]) -> IntArray:
    """Return the numbers that any tree tests."""
    tested = [each.nodes.slot[np.isnan(each.nodes.value)] for each in grown]
    return np.unique(np.concatenate(tested)) if tested else np.empty(0, dtype=np.int64)


def leaf_tables(grown: Sequence[GroupForest], depth: int) -> tuple[tuple[str, Any], ...] | None:
    """Return the table ``leaves``; None if a walk of ``depth`` steps is cheaper, or it would be large."""
    slots = slots_of(grown)
    n_leaves = sum(int((~np.isnan(each.nodes.value)).sum()) for each in grown)
    n_parts = math.ceil(n_leaves / (LEAVES * max(1, sum(len(each.roots) for each in grown))))
    cheap = n_parts * (len(slots) + _PER_PART) <= _PER_STEP * depth
    if not (cheap and 0 < len(slots) <= MOST_SLOTS):
        return None  # of trees that test nothing the walk has no step
    made: list[Any] = []
    left = MOST_WORDS
    for each in grown:
        found = group_sets(tree_sets(each.nodes, each.roots), each.group, each.output, len(each.groups), slots)
        left -= len(found.sets)
        if left < 0:
            return None
        made.append(_leaves(each.groups, found, slots))
    leaves = pa.concat_tables(made)
    return None if pc.max(leaves.column("most")).as_py() > MOST_CASES else (("leaves", leaves),)


def _leaves(groups: Sequence[int], sets: GroupSets, slots: IntArray) -> Any:
    n_groups = len(groups)
    place = np.searchsorted(slots, sets.cases.slot)
    counts = np.bincount(sets.cases.owner * len(slots) + place, minlength=n_groups * len(slots))
    counts = counts.reshape(n_groups, len(slots))
    starts = np.cumsum(np.pad(counts, ((0, 0), (1, 0))), axis=1)
    n_cases, n_words = counts.sum(axis=1), sets.n_words
    words = pa.Array.from_buffers(pa.decimal128(38, 0), len(sets.sets), [None, pa.py_buffer(sets.sets)])
    small = pa.int32()
    return pa.table(
        {
            "group_id": pa.array(groups, small),
            "slots": _lists(pa.array(np.tile(slots + 1, n_groups), small), np.full(n_groups, len(slots))),
            "most": pa.array(counts.max(axis=1), small),
            "starts": _lists(pa.array(starts.ravel(), small), np.full(n_groups, starts.shape[1])),
            "bounds": _lists(pa.array(sets.cases.bound), n_cases),
            "sets": _lists(words, n_cases * n_words),
            "addends": _lists(pa.array(sets.values.ravel()), n_words * (PARTS * (LEAVES + 1))),
            "outputs": _lists(pa.array(sets.outputs, small), n_words),
        }
    )


def _lists(values: Any, lengths: IntArray) -> Any:
    """Return values as lists of these lengths."""
    return pa.ListArray.from_arrays(pa.array(np.cumsum(np.pad(lengths, (1, 0))), pa.int32()), values)
