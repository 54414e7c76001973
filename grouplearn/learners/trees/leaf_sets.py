"""Trees without steps: which leaves a row may still come to, for each number that trees test.

The bounds of all tests of one number cut its values into cases. Per case and tree there is the set of leaves to which a row
may come if it is known of this number alone. A row comes to the one leaf that is in the sets of all its numbers: the cost of
a tree grows with the numbers that trees test, and not with its depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grouplearn.learners.trees.nodes import IntArray, Nodes
from grouplearn.models.state import FloatArray

#: Leaves per part of a tree, and parts per word, which is one HUGEINT.
LEAVES, PARTS = 31, 4
#: The bounds of the cases "the number is missing" and "it is above all bounds".
_MISSING, _ABOVE = -np.inf, np.inf


@dataclass(frozen=True, slots=True)
class Cases:
    """The cases of several trees (or groups), sorted: whose each is, the number that is looked at, and its upper bound."""

    owner: IntArray
    slot: IntArray
    bound: FloatArray

    def __len__(self) -> int:
        return len(self.owner)

    def distinct(self) -> Cases:
        """Return the sorted cases without those that are equal."""
        order = np.lexsort((self.bound, self.slot, self.owner))
        owner, slot, bound = self.owner[order], self.slot[order], self.bound[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = (owner[1:] != owner[:-1]) | (slot[1:] != slot[:-1]) | (bound[1:] != bound[:-1])
        return Cases(owner[first], slot[first], bound[first])

    def of(self, owners: IntArray) -> Cases:
        """Return the cases of whom the owners belong to."""
        return Cases(owners[self.owner], self.slot, self.bound).distinct()

    def places(self, others: Cases) -> IntArray:
        """Return where each of the ``others`` is among these, which have them all."""
        every = Cases(*(np.concatenate(pair) for pair in zip(self._columns(), others._columns(), strict=True)))
        order = np.lexsort((np.arange(len(every)) >= len(self), every.bound, every.slot, every.owner))
        place = np.cumsum(order < len(self)) - 1
        found = np.empty(len(every), dtype=np.int64)
        found[order] = place
        return found[len(self) :]

    def _columns(self) -> tuple[IntArray, IntArray, FloatArray]:
        return self.owner, self.slot, self.bound


@dataclass(frozen=True, slots=True)
class TreeSets:
    """The leaves of trees, and the sets of their own cases.

    A tree has ``parts`` of at most ``LEAVES`` leaves; ``sets`` (trees, most parts, most cases) are bits of leaves, and
    ``full`` (trees, most parts) all leaves; ``values`` (trees, most parts, LEAVES) what they add, 0 for none.
    """

    cases: Cases
    column: IntArray
    parts: IntArray
    sets: npt.NDArray[np.int64]
    full: npt.NDArray[np.int64]
    values: FloatArray


def tree_sets(nodes: Nodes, roots: IntArray) -> TreeSets:
    """Return the sets of the trees that begin at ``roots``."""
    tree, level = _reached(nodes, roots)
    inner = np.flatnonzero((tree >= 0) & np.isnan(nodes.value))
    cases = _tested(nodes, inner, tree)
    first = np.searchsorted(cases.owner, np.arange(len(roots)))
    column = np.arange(len(cases)) - first[cases.owner]
    shape = len(roots), int(column.max(initial=0)) + 1
    slot, bound = np.full(shape, -1), np.zeros(shape)
    slot[cases.owner, column], bound[cases.owner, column] = cases.slot, cases.bound
    leaf = np.flatnonzero((tree >= 0) & ~np.isnan(nodes.value))
    leaf = leaf[np.argsort(tree[leaf], kind="stable")]
    number = np.arange(len(leaf)) - np.searchsorted(tree[leaf], tree[leaf])
    n_parts = int(number.max(initial=0)) // LEAVES + 1
    part, bit = number // LEAVES, number % LEAVES
    sets = np.zeros((len(nodes.slot), n_parts, shape[1]), dtype=np.int64)
    sets[leaf, part] = (np.int64(1) << bit)[:, None]
    for depth in range(int(level.max(initial=0)), -1, -1):
        at = inner[level[inner] == depth]
        _decide(nodes, at, sets, slot[tree[at]], bound[tree[at]])
    values, full = np.zeros((len(roots), n_parts, LEAVES)), np.zeros((len(roots), n_parts), dtype=np.int64)
    values[tree[leaf], part, bit] = nodes.value[leaf]
    np.bitwise_or.at(full, (tree[leaf], part), np.int64(1) << bit)
    parts = np.bincount(tree[leaf[bit == 0]], minlength=len(roots))
    return TreeSets(cases, column, parts, sets[roots], full, values)


def _reached(nodes: Nodes, roots: IntArray) -> tuple[IntArray, IntArray]:
    """Return the tree of each node, -1 for none, and the most tests before it."""
    tree, level = np.full(len(nodes.slot), -1), np.zeros(len(nodes.slot), dtype=np.int64)
    tree[roots], reached, depth = np.arange(len(roots)), roots, 0
    while len(reached):
        level[reached] = depth
        asks = reached[np.isnan(nodes.value[reached])]
        ways = [nodes.inside[asks], nodes.outside[asks], nodes.missing[asks]]
        for way in ways:
            tree[way] = tree[asks]
        reached, depth = np.unique(np.concatenate(ways)), depth + 1
    return tree, level


def _tested(nodes: Nodes, inner: IntArray, tree: IntArray) -> Cases:
    """Return the cases of every tree: a test of low <= x is one of x above the number before."""
    owner, slot = tree[inner], nodes.slot[inner]
    ends = [np.nextafter(nodes.low[inner], -np.inf), nodes.high[inner]]
    ends += [np.full(len(inner), end) for end in (_MISSING, _ABOVE)]
    kept = [np.isfinite(end) | (place > 1) for place, end in enumerate(ends)]
    owners, slots = ([each[keep] for keep in kept] for each in (owner, slot))
    bounds = [end[keep] for end, keep in zip(ends, kept, strict=True)]
    return Cases(np.concatenate(owners), np.concatenate(slots), np.concatenate(bounds)).distinct()


def _decide(nodes: Nodes, at: IntArray, sets: npt.NDArray[np.int64], slot: IntArray, bound: FloatArray) -> None:
    """Write the sets of nodes whose children have theirs: a number that a node does not test leaves all its ways open.

    ``slot`` and ``bound`` (nodes, cases) are the cases of each node's tree.
    """
    inside, outside, missing = (sets[ways[at]] for ways in (nodes.inside, nodes.outside, nodes.missing))
    within = (nodes.low[at, None] <= bound) & (bound <= nodes.high[at, None])
    chosen = np.where(within[:, None], inside, outside)
    chosen = np.where((bound == _MISSING)[:, None], missing, chosen)
    tests = slot == nodes.slot[at, None]
    sets[at] = np.where(tests[:, None], chosen, inside | outside | missing)


@dataclass(frozen=True, slots=True)
class GroupSets:
    """What the trees of groups come to, one group after another: the words of its cases, and the values of its leaves.

    A group has ``n_words`` (groups,), each for the trees of one of its ``outputs`` (all words,). ``sets`` holds the first
    word of all its cases, then the second of all, and so on, each as its lower and its upper 64 bits. ``values`` (all
    words, PARTS, LEAVES + 1) are what leaves add; the last of a part is 0, of rows that do not come to it.
    """

    cases: Cases
    n_words: IntArray
    sets: npt.NDArray[np.uint64]
    values: FloatArray
    outputs: IntArray


def group_sets(trees: TreeSets, group: IntArray, output: IntArray, n_groups: int, slots: IntArray) -> GroupSets:
    """Return the sets of groups, each looking at all these ``slots``, from those of their trees.

    ``group`` (trees,) is ascending; ``output`` (trees,) is what a tree adds to.
    """
    ends = np.repeat([[_MISSING, _ABOVE]], n_groups * len(slots), axis=0).ravel()
    every = Cases(np.repeat(np.arange(n_groups), 2 * len(slots)), np.tile(np.repeat(slots, 2), n_groups), ends)
    own = trees.cases.of(group)
    cases = Cases(*(np.concatenate(pair) for pair in zip(every._columns(), own._columns(), strict=True))).distinct()
    tree, part = np.nonzero(np.arange(trees.sets.shape[1]) < trees.parts[:, None])
    unit, n_words, outputs = _in_words(group[tree], output[tree], n_groups)
    n_cases = np.bincount(cases.owner, minlength=n_groups)
    # Units have a line of all their group's cases each.
    sizes = np.repeat(n_cases, PARTS * n_words)
    lines = np.cumsum(sizes) - sizes
    flat = np.zeros(int(sizes.sum()), dtype=np.int64)
    flat[_ranges(lines[unit], sizes[unit])] = np.repeat(trees.full[tree, part], sizes[unit])
    of_part = np.full(trees.full.shape, -1)
    of_part[tree, part] = lines[unit] - (np.cumsum(n_cases) - n_cases)[group[tree]]
    _write(trees, group, cases, of_part, flat)
    values = np.zeros((PARTS * len(outputs), LEAVES + 1))
    values[unit, :LEAVES] = trees.values[tree, part]
    return GroupSets(cases, n_words, _packed(flat, np.repeat(n_cases, n_words)), values, outputs)


def _in_words(group: IntArray, output: IntArray, n_groups: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return the place of each part of a tree among those of all words, each group's number of words, and each word's output.

    A word has parts of one group and output; the last word of an output may have places without a part.
    """
    n_outputs = int(output.max(initial=0)) + 1
    key = group * n_outputs + output
    order = np.argsort(key, kind="stable")
    runs, first, count = np.unique(key[order], return_index=True, return_counts=True)
    words = -(-count // PARTS)
    unit = np.empty(len(key), dtype=np.int64)
    unit[order] = np.arange(len(key)) + np.repeat(PARTS * (np.cumsum(words) - words) - first, count)
    n_words = np.bincount(runs // n_outputs, words, n_groups).astype(np.int64)
    return unit, n_words, np.repeat(runs % n_outputs, words)


def _write(trees: TreeSets, group: IntArray, cases: Cases, of_part: IntArray, flat: npt.NDArray[np.int64]) -> None:
    """Write the sets of every tree's own cases into all cases of its group that they cover: those since the case before.

    ``of_part`` (trees, most parts) is where case 0 of all cases would be in the line of a part, -1 for none.
    """
    own = trees.cases
    last = cases.places(Cases(group[own.owner], own.slot, own.bound))
    count = np.diff(last, prepend=-1)
    count[own.bound == _MISSING] = 1
    covered = _ranges(last - count + 1, count)
    source = np.repeat(np.arange(len(own)), count)
    for number in range(trees.sets.shape[1]):
        there = number < trees.parts[own.owner[source]]
        found = trees.sets[own.owner, number, trees.column][source]
        flat[(of_part[own.owner[source], number] + covered)[there]] = found[there]


def _packed(flat: npt.NDArray[np.int64], n_cases: IntArray) -> npt.NDArray[np.uint64]:
    """Return words (all, 2) of 128 bits from the sets of their parts; each word has ``PARTS`` lines of so many cases."""
    first = _ranges(PARTS * (np.cumsum(n_cases) - n_cases), n_cases)
    step = np.repeat(n_cases, n_cases)
    parts = [flat[first + number * step].astype(np.uint64) for number in range(PARTS)]
    low, high = (parts[number] | parts[number + 1] << np.uint64(LEAVES) for number in (0, 2))
    return np.stack([low | high << np.uint64(2 * LEAVES), high >> np.uint64(64 - 2 * LEAVES)], axis=1)


def _ranges(first: IntArray, count: IntArray) -> IntArray:
    """Return first, first + 1, ..., of each so many, concatenated."""
    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count - first, count)
