"""Trees in ONNX: one TreeEnsemble over the feature columns, and over a column per split on a set of categories."""

from __future__ import annotations

from typing import Any

import numpy as np

from grouplearn.data.encoding.encoder import NoForm, OnnxGraph
from grouplearn.learners.trees.nodes import Forest, IntArray, parse_forest

_LESS_OR_EQUAL, _SUM = 0, 1
#: Most splits on a path: onnxruntime parses nested splits recursively, and a stack overflow would crash the process that
#: loads the file.
_DEEPEST = 500


def tree_scores(graph: OnnxGraph, text: bytes, x: str, outputs: int) -> str:
    """Return the sums of the leaves (rows, outputs) of a LightGBM model over feature columns ``x``.

    If the model has fewer outputs than ``outputs`` they are the last ones, and the others are 0.
    """
    if b"\nis_linear=1\n" in text:
        raise NoForm("trees whose leaves are linear models have no ONNX form")
    forest = parse_forest(text)
    if forest.zero_is_missing.any():
        raise NoForm("trees that take zero for a missing value have no ONNX form")
    if _is_deeper(forest, _DEEPEST):
        raise NoForm(f"trees that ask more than {_DEEPEST:,} questions in a row have no ONNX form")
    feature, threshold = forest.feature.copy(), forest.threshold.copy()
    splits = np.flatnonzero(forest.categorical)
    if len(splits):
        width = graph_width(forest)
        x, first = _with_sets(graph, x, forest, splits, width), width
        # The column is 0 if the category is in the set, else 1: 0 goes left, as the set does.
        feature[splits], threshold[splits] = first + np.arange(len(splits)), 0.5
    return graph.add("TreeEnsemble", x, domain="ai.onnx.ml", **_attributes(graph, forest, outputs, feature, threshold))


def _is_deeper(forest: Forest, most: int) -> bool:
    """Return whether a tree has a longer path of splits than this."""
    first = np.cumsum(forest.splits) - forest.splits
    offset = first[forest.tree]
    reached = first[forest.splits > 0]
    for _ in range(most):
        if not len(reached):
            return False
        children = np.concatenate([forest.left[reached], forest.right[reached]])
        reached = (np.tile(offset[reached], 2) + children)[children >= 0]
    return len(reached) > 0


def graph_width(forest: Forest) -> int:
    """Return the number of the last feature column in the forest, plus 1."""
    return int(forest.feature.max()) + 1


def _with_sets(graph: OnnxGraph, x: str, forest: Forest, splits: IntArray, width: int) -> str:
    """Return the first ``width`` columns of x, followed by one per categorical split."""
    columns = []
    for split, inside in zip(splits.tolist(), forest.sets_of(splits), strict=True):
        table = np.ones(int(inside.max(initial=0)) + 2)
        table[inside] = 0.0
        number = graph.add("Gather", x, graph.constant(np.array([forest.feature[split]])), axis=1)
        # Missing values, and those below 0 or beyond the table, get the table's last value: they are in no set.
        last = graph.number(len(table) - 1.0)
        outside = graph.add("Or", graph.add("IsNaN", number), graph.add("Less", number, graph.number(0.0)))
        place = graph.add("Where", outside, last, graph.add("Min", graph.add("Where", outside, last, number), last))
        columns.append(graph.add("Gather", graph.constant(table), graph.add("Cast", place, to=7), axis=0))
    kept = graph.add("Gather", x, graph.constant(np.arange(width)), axis=1)
    return graph.add("Concat", kept, *columns, axis=1)


def _attributes(graph: OnnxGraph, forest: Forest, outputs: int, feature: IntArray, threshold: Any) -> dict[str, Any]:
    """Return the attributes of TreeEnsemble; a tree without a split gets one with the same leaf on both sides."""
    stumps = np.flatnonzero(forest.splits == 0)
    n_splits, first_leaf = len(feature), np.cumsum(forest.leaves) - forest.leaves
    first_split = np.cumsum(forest.splits) - forest.splits
    roots = np.where(forest.splits == 0, 0, first_split)
    roots[stumps] = n_splits + np.arange(len(stumps))

    def ways(children: IntArray) -> tuple[list[int], list[int]]:
        leaf = children < 0
        target = np.where(leaf, first_leaf[forest.tree] - children - 1, first_split[forest.tree] + children)
        return [*target.tolist(), *first_leaf[stumps].tolist()], [*leaf.astype(int).tolist(), *[1] * len(stumps)]

    left, left_is_leaf = ways(forest.left)
    right, right_is_leaf = ways(forest.right)
    count, padding = n_splits + len(stumps), len(stumps)
    target = np.repeat(forest.output + outputs - int(forest.n_outputs[0]), forest.leaves)
    return {
        "aggregate_function": _SUM,
        "post_transform": 0,
        "n_targets": outputs,
        "tree_roots": roots.tolist(),
        "nodes_featureids": [*feature.tolist(), *[0] * padding],
        "nodes_splits": graph.tensor(np.concatenate([threshold, np.zeros(padding)])),
        "nodes_modes": graph.tensor(np.full(count, _LESS_OR_EQUAL, dtype=np.uint8)),
        "nodes_truenodeids": left,
        "nodes_trueleafs": left_is_leaf,
        "nodes_falsenodeids": right,
        "nodes_falseleafs": right_is_leaf,
        "nodes_missing_value_tracks_true": [*forest.missing_left.astype(int).tolist(), *[0] * padding],
        "leaf_targetids": target.tolist(),
        "leaf_weights": graph.tensor(forest.value),
    }
