"""Trees as tables: LightGBM's model text becomes nodes that test whether a number lies in an interval."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from grouplearn.learners.trees.lightgbm.objectives import in_text
from grouplearn.models.state import FloatArray

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: LightGBM takes numbers up to this size for 0 (kZeroThreshold, a float).
ZERO = float(np.float32(1e-35))
_CATEGORICAL, _DEFAULT_LEFT = 1, 2
_MISSING_IS_ZERO = 1
_WAYS = ("inside", "outside", "missing")
#: The lines of a tree that are read, in the order in which LightGBM writes them.
_IN_TREE = (
    "num_leaves", "split_feature", "threshold", "decision_type", "left_child", "right_child", "leaf_value",
    "cat_boundaries", "cat_threshold",
)  # fmt: skip
_TREE = re.compile(
    rb"\nnum_leaves=([^\n]*)\nnum_cat=[^\n]*\nsplit_feature=([^\n]*)\nsplit_gain=[^\n]*\nthreshold=([^\n]*)"
    rb"\ndecision_type=([^\n]*)\nleft_child=([^\n]*)\nright_child=([^\n]*)\nleaf_value=([^\n]*)\n"
    rb"(?:[^\n]*\n){5}(?:cat_boundaries=([^\n]*)\ncat_threshold=([^\n]*)\n)?is_linear="
)
_LEAVES = re.compile(rb"\nnum_leaves=(\d+)")
_AVERAGED = re.compile(rb"^average_output$", re.MULTILINE)
_OUTPUTS = re.compile(rb"^num_tree_per_iteration=(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Forest:
    """The splits and leaves of all trees, concatenated, from LightGBM's model texts.

    ``trees`` counts the trees of each text, ``splits`` and ``leaves`` those of each tree. A child >= 0 is a split of the
    same tree, a child c < 0 its leaf -c - 1. ``decision`` has LightGBM's bits: categorical, missing goes left, and what is
    missing (bits 2 and 3: nothing, zero, NaN). ``sets`` are the categories that go left, per categorical split, whose
    ``threshold`` is its set. ``n_outputs`` are the outputs of each text, to which its trees add in turn.
    """

    n_outputs: IntArray
    trees: IntArray
    splits: IntArray
    leaves: IntArray
    feature: IntArray
    threshold: FloatArray
    decision: IntArray
    left: IntArray
    right: IntArray
    value: FloatArray
    sets: tuple[tuple[IntArray, ...], ...]

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.splits)

    @property
    def output(self) -> IntArray:
        """The output of its text that each tree adds to."""
        return _concatenated_ranges(self.trees) % np.repeat(self.n_outputs, self.trees)

    @property
    def tree(self) -> IntArray:
        """The tree of each split."""
        return np.repeat(np.arange(self.n_trees), self.splits)

    @property
    def missing(self) -> IntArray:
        """What is missing, per split: 0 nothing (NaN counts as 0), 1 zero and NaN, 2 NaN."""
        return (self.decision >> 2) & 3

    @property
    def missing_left(self) -> BoolArray:
        """Whether NaN goes left."""
        as_zero = (self.missing == 0) & (self.threshold >= 0)
        by_default = (self.missing != 0) & (self.decision & _DEFAULT_LEFT > 0)
        left: BoolArray = (as_zero | by_default) & ~self.categorical
        return left

    @property
    def categorical(self) -> BoolArray:
        """Whether the split tests categories."""
        asks: BoolArray = (self.decision & _CATEGORICAL) > 0
        return asks

    @property
    def zero_is_missing(self) -> BoolArray:
        """Whether zeros go the same way as NaN."""
        zero: BoolArray = (self.missing == _MISSING_IS_ZERO) & ~self.categorical
        return zero

    def sets_of(self, splits: IntArray) -> list[IntArray]:
        """Return the sorted categories that go left at each of these categorical splits."""
        trees, places = self.tree[splits].tolist(), self.threshold[splits].astype(int).tolist()
        return [self.sets[tree][place] for tree, place in zip(trees, places, strict=True)]


def count_leaves(text: bytes) -> int:
    """Return the number of leaves in a LightGBM model text, without parsing the rest."""
    return sum(map(int, _LEAVES.findall(text, 0, text.find(b"\nend of trees"))))


def count_outputs(text: bytes) -> int:
    """Return the number of outputs of a LightGBM model text, to which its trees add in turn."""
    found = _OUTPUTS.search(text)
    return int(found[1]) if found else 1


def leaf_factor(text: bytes, rounds: int) -> float:
    """Return by what the leaves of a model of so many rounds are multiplied: those of a forest are averaged, and scores in
    the logistic function have a factor."""
    return in_text(text).factor / (rounds if _AVERAGED.search(text) else 1)


def parse_forest(text: bytes) -> Forest:
    """Return the trees of a trusted LightGBM model text whose leaves are numbers.

    Leaves of averaged forests are divided by the number of trees; a factor of scores in the logistic function is applied to
    leaves.
    """
    return parse_forests([text])


def parse_forests(texts: Sequence[bytes]) -> Forest:
    """Return the trees of several groups' models, concatenated."""
    trees: list[tuple[bytes, ...]] = []
    per_text: list[int] = []
    outputs: list[int] = []
    factors: list[float] = []
    for text in texts:
        own = _TREE.findall(text, 0, text.index(b"\nend of trees"))
        trees += own
        per_text.append(len(own))
        head = text[: text.index(b"\nfeature_names=")]
        outputs.append(count_outputs(head))
        factors.append(leaf_factor(head, per_text[-1] // outputs[-1]))
    lines = dict(zip(_IN_TREE, zip(*trees, strict=True), strict=True))
    leaves, decision = _integers(lines["num_leaves"]), _integers(lines["decision_type"])
    threshold = _numbers(lines["threshold"])
    return Forest(
        np.array(outputs),
        np.array(per_text),
        leaves - 1,
        leaves,
        _integers(lines["split_feature"]),
        np.where((decision & _CATEGORICAL) > 0, threshold, _beside_zero(threshold)),
        decision,
        _integers(lines["left_child"]),
        _integers(lines["right_child"]),
        _numbers(lines["leaf_value"]) * np.repeat(np.repeat(factors, per_text), leaves),
        tuple(map(_category_sets, lines["cat_boundaries"], lines["cat_threshold"])),
    )


def _beside_zero(threshold: FloatArray) -> FloatArray:
    """Return thresholds with those within ``ZERO`` of 0 moved so that they decide the same: LightGBM takes such numbers for
    0."""
    moved = np.where(threshold < 0, np.nextafter(-ZERO, -np.inf), ZERO)
    return np.where(np.abs(threshold) <= ZERO, moved, threshold)


def _integers(lines: Sequence[bytes]) -> IntArray:
    return np.array(b" ".join(lines).split(), dtype=np.int64)


def _numbers(lines: Sequence[bytes]) -> FloatArray:
    return np.array(b" ".join(lines).split(), dtype=np.float64)


def _category_sets(boundaries: bytes, sets: bytes) -> tuple[IntArray, ...]:
    """Return the sets of a tree from its bit sets: 32 categories per word, sets between consecutive boundaries."""
    if not sets:
        return ()
    bounds, words = _integers([boundaries]), _integers([sets])
    bits = (words[:, None] >> np.arange(32)) & 1
    return tuple(np.flatnonzero(bits[low:high].ravel()) for low, high in itertools.pairwise(bounds.tolist()))


@dataclass(frozen=True, slots=True)
class FeatureColumns:
    """The row numbers behind a model's feature columns: the ``slot`` of each, and for the column of one category (one-hot
    or hashed, whose slot holds the category's number) that ``category``; -1 for a plain number."""

    slot: IntArray
    category: IntArray


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of trees: a node with a ``value`` is a leaf; at another a row goes to ``inside`` if ``low`` <= x <= ``high``
    for the number x in its ``slot``, to ``missing`` if there is none, else to ``outside``.

    ``roots`` (trees,) and ``output`` (trees,) are where each tree begins and the output it adds to; ``depth`` (trees,) is
    the most tests of a row in each tree.
    """

    slot: IntArray
    low: FloatArray
    high: FloatArray
    inside: IntArray
    outside: IntArray
    missing: IntArray
    value: FloatArray
    roots: IntArray
    output: IntArray
    depth: IntArray


def with_negated(nodes: Nodes) -> Nodes:
    """Return the nodes followed by copies with negated values; ``roots`` are those of the former."""
    count = len(nodes.slot)
    kept = {name: np.tile(getattr(nodes, name), 2) for name in ("slot", "low", "high")}
    ways = {name: np.concatenate([getattr(nodes, name), getattr(nodes, name) + count]) for name in _WAYS}
    return replace(nodes, **kept, **ways, value=np.concatenate([nodes.value, -nodes.value]))


#: One node: a leaf of value 0.
LEAF = Nodes(
    slot=np.array([-1]),
    low=np.array([-np.inf]),
    high=np.array([np.inf]),
    inside=np.array([0]),
    outside=np.array([0]),
    missing=np.array([0]),
    value=np.array([0.0]),
    roots=np.array([0]),
    output=np.array([0]),
    depth=np.array([0]),
)


def with_leaves(nodes: Nodes, count: int) -> Nodes:
    """Return the nodes followed by so many leaves of value 0."""
    own = np.arange(len(nodes.slot), len(nodes.slot) + count)
    tested = ("slot", "low", "high", "value")
    kept = {name: np.append(getattr(nodes, name), np.repeat(getattr(LEAF, name), count)) for name in tested}
    return replace(nodes, **kept, **{name: np.append(getattr(nodes, name), own) for name in _WAYS})


def nodes_of(forest: Forest, columns: FeatureColumns) -> Nodes:
    """Return the nodes of a forest: splits, then leaves, of each tree, then further nodes of some splits."""
    sizes = forest.splits + forest.leaves
    base = np.cumsum(sizes) - sizes
    is_leaf = _concatenated_ranges(sizes) >= np.repeat(forest.splits, sizes)
    drafts = _Drafts(forest, columns, base, np.flatnonzero(~is_leaf), len(is_leaf))
    drafts.value[is_leaf] = forest.value
    drafts.write_splits()
    drafts.write_sets(np.flatnonzero(forest.categorical & (columns.category[forest.feature] < 0)))
    drafts.divert_zeros(np.flatnonzero(forest.zero_is_missing & (columns.category[forest.feature] < 0)))
    return drafts.finished(forest.output)


def _concatenated_ranges(sizes: IntArray) -> IntArray:
    """Return 0..n-1 for each size n, concatenated."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)


class _Drafts:
    """Nodes under construction; ``place`` is the node of each split of the forest."""

    def __init__(self, forest: Forest, columns: FeatureColumns, base: IntArray, place: IntArray, size: int) -> None:
        self.forest, self.columns, self.place, self.roots = forest, columns, place, base.copy()
        of_split, splits = base[forest.tree], forest.splits[forest.tree]
        self.left = np.where(forest.left >= 0, of_split + forest.left, of_split + splits - forest.left - 1)
        self.right = np.where(forest.right >= 0, of_split + forest.right, of_split + splits - forest.right - 1)
        own = np.arange(size)
        self.slot = np.full(size, -1)
        self.low, self.high = np.full(size, -np.inf), np.full(size, np.inf)
        self.inside, self.outside, self.missing = own.copy(), own.copy(), own.copy()
        self.value = np.full(size, np.nan)

    def write_splits(self) -> None:
        """Write every split as one on a number, or on the column of a category."""
        forest, at = self.forest, self.place
        category = self.columns.category[forest.feature]
        single = category >= 0
        # The column of a category is 1 if the slot holds it, else 0.
        ones, zeros = (self._side(np.full(len(category), number)) for number in (1.0, 0.0))
        missing = np.where(forest.missing_left, self.left, self.right)
        self.slot[at] = self.columns.slot[forest.feature]
        self.low[at], self.high[at] = np.where(single, category, -np.inf), np.where(single, category, forest.threshold)
        self.inside[at] = np.where(single, ones, self.left)
        self.outside[at] = np.where(single, zeros, self.right)
        self.missing[at] = np.where(single, zeros, missing)

    def _side(self, numbers: FloatArray) -> IntArray:
        """Return the child to which each split sends a number."""
        forest = self.forest
        left = numbers <= forest.threshold
        left = np.where(forest.zero_is_missing & (np.abs(numbers) <= ZERO), forest.missing_left, left)
        asked = np.flatnonzero(forest.categorical)
        left[asked] = [number in known for number, known in zip(numbers[asked], forest.sets_of(asked), strict=True)]
        return np.where(left, self.left, self.right)

    def write_sets(self, splits: IntArray) -> None:
        """Write splits on sets: a chain of nodes, one per run of consecutive categories."""
        runs = [_runs(categories) for categories in self.forest.sets_of(splits)]
        added = iter(self._append(sum(len(firsts) - 1 for firsts, _ in runs)))
        for split, (firsts, lasts) in zip(splits.tolist(), runs, strict=True):
            node, right = int(self.place[split]), int(self.right[split])
            slot, inside = int(self.slot[node]), int(self.left[split])
            chain = [node, *itertools.islice(added, len(firsts) - 1)]
            self.slot[chain], self.low[chain], self.high[chain] = slot, firsts, lasts
            self.inside[chain], self.missing[chain], self.outside[chain] = inside, right, [*chain[1:], right]

    def divert_zeros(self, splits: IntArray) -> None:
        """Insert before splits a node that sends zeros the way of missing values."""
        nodes, entry = self.place[splits], np.arange(len(self.slot))
        added = np.array(self._append(len(nodes)), dtype=np.int64)
        entry[nodes] = added
        for targets in (self.inside, self.outside, self.missing):
            targets[: len(entry)] = entry[targets[: len(entry)]]
        self.roots = entry[self.roots]
        self.slot[added], self.low[added], self.high[added] = self.slot[nodes], -ZERO, ZERO
        self.inside[added] = self.missing[added] = self.missing[nodes]
        self.outside[added] = nodes

    def _append(self, count: int) -> list[int]:
        start = len(self.slot)
        own = np.arange(start, start + count)
        for name, new in (("slot", own), ("inside", own), ("outside", own), ("missing", own)):
            setattr(self, name, np.concatenate([getattr(self, name), new]))
        for name in ("low", "high", "value"):
            setattr(self, name, np.concatenate([getattr(self, name), np.full(count, np.nan)]))
        return own.tolist()

    def finished(self, output: IntArray) -> Nodes:
        """Return the nodes."""
        ways = (self.inside, self.outside, self.missing)
        return Nodes(self.slot, self.low, self.high, *ways, self.value, self.roots, output, self._depth())

    def _depth(self) -> IntArray:
        depth, tree = np.zeros(len(self.roots), dtype=np.int64), np.full(len(self.slot), -1)
        tree[self.roots], reached = np.arange(len(self.roots)), self.roots
        while len(reached := np.unique(reached[np.isnan(self.value[reached])])):
            depth[tree[reached]] += 1
            for ways in (self.inside, self.outside, self.missing):
                tree[ways[reached]] = tree[reached]
            reached = np.concatenate([self.inside[reached], self.outside[reached], self.missing[reached]])
        return depth


def _runs(categories: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return first and last of each run of consecutive categories; for none, an interval that contains nothing."""
    if not len(categories):
        return np.array([np.inf]), np.array([-np.inf])
    breaks = np.flatnonzero(np.diff(categories) != 1)
    firsts, lasts = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [-1]])
    return categories[firsts].astype(float), categories[lasts].astype(float)
