"""The tables of trees as sets of leaves, from which SQL predicts without walking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from grouplearn.learners.trees.leaf_sets import GroupSets, group_sets, tree_sets
from grouplearn.learners.trees.nodes import IntArray, Nodes

#: Most words of a model: 64 MB.
MOST_WORDS = 1 << 23
#: Most numbers that trees test, and most cases of one.
MOST_SLOTS, MOST_CASES = 64, 1 << 16
#: A number costs half as much as a step of a walk.
_SLOTS_PER_STEP = 2


@dataclass(frozen=True, slots=True)
class Grown:
    """The trees of some groups: their nodes, and of each tree the root, the place of its group, and the output it adds to."""

    groups: Sequence[int]
    nodes: Nodes
    roots: IntArray
    group: IntArray
    output: IntArray


def slots_of(grown: Iterable[Grown]) -> IntArray:
    """Return the numbers that any tree tests."""
    tested = [each.nodes.slot[np.isnan(each.nodes.value)] for each in grown]
    return np.unique(np.concatenate(tested)) if tested else np.empty(0, dtype=np.int64)


def leaf_tables(grown: Sequence[Grown], depth: int) -> tuple[tuple[str, Any], ...] | None:
    """Return the tables ``cases`` and ``leaves``; None if a walk of ``depth`` steps is cheaper, or they would be large."""
    slots = slots_of(grown)
    if not 0 < len(slots) <= min(MOST_SLOTS, _SLOTS_PER_STEP * depth):
        return None  # of trees that test nothing the walk has no step
    made: list[GroupSets] = []
    left = MOST_WORDS
    for each in grown:
        found = group_sets(tree_sets(each.nodes, each.roots), each.group, each.output, len(each.groups), slots)
        left -= len(found.words)
        if left < 0:
            return None
        made.append(found)
    if max(map(most_cases, made)) > MOST_CASES:
        return None
    return ("cases", _cases(grown, made)), ("leaves", _leaves(grown, made, slots))


def _cases(grown: Sequence[Grown], made: Sequence[GroupSets]) -> Any:
    group = [np.asarray(each.groups)[sets.cases.owner] for each, sets in zip(grown, made, strict=True)]
    bound = np.concatenate([sets.cases.bound for sets in made])
    ends = np.concatenate([[0], np.cumsum(np.concatenate([sets.n_words for sets in made]))])
    words = np.concatenate([sets.words for sets in made])
    return pa.table(
        {
            "group_id": pa.array(np.concatenate(group), pa.int32()),
            "slot": pa.array(np.concatenate([sets.cases.slot for sets in made]) + 1, pa.int32()),
            "bound": pa.array(bound, pa.float64(), mask=bound == -np.inf),
            "sets": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(words)),
        }
    )


def _leaves(grown: Sequence[Grown], made: Sequence[GroupSets], slots: IntArray) -> Any:
    shown, rows = (slots + 1).tolist(), []
    most = max(map(most_cases, made))
    for each, sets in zip(grown, made, strict=True):
        for place, group in enumerate(each.groups):
            values = sets.values[place]
            words = len(sets.outputs[place]) // 2
            outputs = sets.outputs[place].tolist()
            rows.append((group, shown, most, words, values.tolist(), outputs))
    small = pa.int32()
    names = ("group_id", "slots", "most", "words", "addends", "outputs")
    types = (small, pa.list_(small), small, small, pa.list_(pa.float64()), pa.list_(small))
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(column, kind) for name, column, kind in zip(names, columns, types, strict=True)})


def most_cases(sets: GroupSets) -> int:
    """Return the most cases of one number in one group."""
    _, count = np.unique(np.stack([sets.cases.owner, sets.cases.slot]), axis=1, return_counts=True)
    return int(count.max())
