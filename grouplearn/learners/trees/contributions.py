"""What each item adds to the score of LightGBM's trees: Shapley values as ``pred_contrib`` has them, of a model's text."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Matrix
from grouplearn.kernels.contributions import CountedForest, FloatArray, IntArray
from grouplearn.learners.trees.nodes import Forest, parse_forest
from grouplearn.learners.trees.predicting import TextCache

#: A tree of one leaf has no counts.
_COUNTS = re.compile(
    rb"\nleaf_count=([^\n]*)\ninternal_value=[^\n]*\ninternal_weight=[^\n]*\ninternal_count=([^\n]*)\n"
)
#: Bytes of texts whose trees are kept.
_KEPT_BYTES = 1 << 26
#: Values of rows that are written out at a time.
_AT_ONCE = 1 << 20


class TextContributions:
    """The contributions of the items to the scores of one trusted model text without linear leaves."""

    def __init__(self, text: bytes) -> None:
        forest = parse_forest(text)
        found = _COUNTS.findall(text, 0, text.index(b"\nend of trees"))
        leaf_rows, split_rows = (np.array(b" ".join(each).split(), np.float64) for each in zip(*found, strict=True))
        if len(leaf_rows) < len(forest.value):
            leaf_rows = _with_single(leaf_rows, forest)
        self._forest = _counted(forest, leaf_rows, split_rows)
        #: The mean score over the training rows, per output: the baseline.
        self.means = _means(forest, leaf_rows)

    def __call__(self, x: Matrix, chosen: IntArray, item: IntArray, n_items: int) -> FloatArray:
        """Return what each item adds to the ``chosen`` output of rows (n, d); ``item`` (d,) says of which item a column is."""
        step = max(1, _AT_ONCE // max(1, x.shape[1]))
        found = [np.empty((0, n_items))]
        for first in range(0, x.shape[0], step):
            rows = x[first : first + step]
            dense = np.ascontiguousarray(rows if isinstance(rows, np.ndarray) else rows.toarray(), np.float64)
            found.append(self._forest.contributions(dense, chosen[first : first + step], item, n_items))
        return np.concatenate(found)


contributions_of = TextCache(TextContributions, _KEPT_BYTES)


def _with_single(rows: FloatArray, forest: Forest) -> FloatArray:
    """Return the rows of leaves with one for each tree of a single leaf."""
    counted, every = np.repeat(forest.splits > 0, forest.leaves), np.ones(len(forest.value))
    every[counted] = rows
    return every


def _means(forest: Forest, rows: FloatArray) -> FloatArray:
    """Return the sum over each output's trees of their means over training rows."""
    tree = np.repeat(np.arange(forest.n_trees), forest.leaves)
    totals, sums = (np.bincount(tree, weights, forest.n_trees) for weights in (rows, rows * forest.value))
    return np.asarray(
        np.bincount(forest.output, sums / np.where(totals > 0, totals, 1), int(forest.n_outputs[0])), np.float64
    )


def _counted(forest: Forest, leaf_rows: FloatArray, split_rows: FloatArray) -> CountedForest:
    first_splits, first_leaves = (np.concatenate([[0], np.cumsum(each)]) for each in (forest.splits, forest.leaves))
    starts, sets = _sets(forest)
    feature, decision, left, right = (
        each.astype(np.int32) for each in (forest.feature, forest.decision, forest.left, forest.right)
    )
    return CountedForest(
        first_splits=first_splits.astype(np.int64),
        first_leaves=first_leaves.astype(np.int64),
        outputs=forest.output.astype(np.int32),
        depth=_depths(forest, first_splits),
        feature=feature,
        decision=decision,
        left=left,
        right=right,
        threshold=np.ascontiguousarray(forest.threshold, np.float64),
        split_rows=split_rows,
        value=forest.value,
        leaf_rows=leaf_rows,
        set_starts=starts,
        sets=sets,
    )


def _depths(forest: Forest, first: npt.NDArray[np.int64]) -> IntArray:
    """Return the most splits on a path of each tree."""
    base, tree = np.repeat(first[:-1], forest.splits), forest.tree
    found, level, reached = np.zeros(forest.n_trees, np.int32), 0, first[:-1][forest.splits > 0]
    while reached.size:
        level += 1
        found[tree[reached]] = level
        children = np.concatenate([side[reached] for side in (forest.left, forest.right)])
        reached = (children + np.tile(base[reached], 2))[children >= 0]
    return found


def _sets(forest: Forest) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return where each split's set of categories begins, and at last ends, and the sets as words of 32 bits."""
    asked = np.flatnonzero(forest.categorical)
    words = np.zeros(len(forest.feature), np.int64)
    known = forest.sets_of(asked)
    words[asked] = [(int(each.max(initial=-1)) + 32) // 32 for each in known]
    starts = np.concatenate([[0], np.cumsum(words)])
    sets = np.zeros(int(starts[-1]) + 1, np.uint32)
    for split, each in zip(asked.tolist(), known, strict=True):
        np.bitwise_or.at(sets, starts[split] + each // 32, np.uint32(1) << (each % 32).astype(np.uint32))
    return starts, sets
