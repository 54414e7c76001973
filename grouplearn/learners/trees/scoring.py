"""LightGBM's model texts of many groups as arrays for the tree kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.scoring import Link
from grouplearn.kernels.trees import ASKS_RANGES, BITS, IN_ORDER, IN_RANGE, MISSING_IS_YES, MOST, NODE, Forests
from grouplearn.learners.trees.lightgbm.objectives import in_text
from grouplearn.learners.trees.nodes import FeatureColumns, IntArray, Nodes, count_outputs, nodes_of, parse_forests
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label

_LINEAR_LEAVES = re.compile(rb"^is_linear=1", re.MULTILINE)
#: The links that the scoring kernel supports.
_LINKS = {"identity": Link.VALUE, "exp": Link.EXPONENTIAL, "logistic": Link.SIGMOID, "softmax": Link.SOFTMAX}


@dataclass(frozen=True, slots=True)
class GroupTrees:
    """A group's model text, the meaning of its feature columns, and its classes."""

    text: bytes
    columns: FeatureColumns
    classes: tuple[int, ...]


def has_linear_leaves(text: bytes) -> bool:
    """Return whether a model's leaves are linear functions."""
    return _LINEAR_LEAVES.search(text) is not None


def _link(text: bytes) -> Link | None:
    """Return the link from a text's scores to predictions; None if it is not a supported one of a sum of leaves."""
    return None if has_linear_leaves(text) else _LINKS.get(in_text(text).link)


def compile_forests(models: Sequence[GroupTrees], label: Label, n_classes: int) -> tuple[Forests, Link] | None:
    """Return the trees of groups and their link; None if the kernel cannot represent them.

    Scores have a column per class of the model if it has several, else one. Texts are our own, or were checked.
    """
    found = {_link(model.text) for model in models}
    links = {link for link in found if link is not None}
    several = label == SEVERAL_CLASSES
    of_label = {NUMBER: {Link.VALUE, Link.EXPONENTIAL}, TWO_CLASSES: {Link.SIGMOID}}
    allowed = of_label.get(label, {Link.SIGMOID, Link.SOFTMAX})
    if None in found or not links <= allowed or (len(links) > 1 and not several):
        return None
    outputs = [model.classes if several else (0,) for model in models]
    base = np.full((len(models), n_classes if several else 1), -np.inf if several else 0.0)
    for place, model in enumerate(models if several else ()):
        base[place, list(model.classes)] = 0.0
    forests = _compiled(models, outputs, base)
    if forests is None:
        return None
    forests = replace(forests, of_classes=label.has_classes)
    return forests, Link.SOFTMAX if several else next(iter(links), Link.VALUE)


def compile_forest(text: bytes, columns: FeatureColumns) -> Forests | None:
    """Return the trees of one model, with a score per output of the text; None if the kernel cannot represent them."""
    if has_linear_leaves(text):
        return None
    n_outputs = count_outputs(text)
    return _compiled([GroupTrees(text, columns, ())], [range(n_outputs)], np.zeros((1, n_outputs)))


def _compiled(
    models: Sequence[GroupTrees], outputs_of: Sequence[Sequence[int]], base: npt.NDArray[np.float64]
) -> Forests | None:
    """Return the trees of models, whose outputs are these scores, which begin at ``base``."""
    parts: list[_Part] = []
    for alike in _of_same_columns(models):
        parsed = parse_forests([models[place].text for place in alike])
        made = _packed(nodes_of(parsed, models[alike[0]].columns))
        if made is None:
            return None
        scores = [outputs_of[place] for place in alike]
        outputs = [
            list(own)[-1:] * count if n_outputs == 1 else [own[tree % n_outputs] for tree in range(count)]
            for own, n_outputs, count in zip(scores, parsed.n_outputs.tolist(), parsed.trees.tolist(), strict=True)
        ]
        parts.append(_Part(alike, parsed.trees, np.concatenate(outputs).astype(np.int32), made))
    return _joined(parts, base)


def _of_same_columns(models: Sequence[GroupTrees]) -> list[list[int]]:
    """Return the places of models, grouped by the columns that their trees test: each group is parsed together."""
    alike: dict[tuple[bytes, bytes], list[int]] = {}
    for place, model in enumerate(models):
        key = (model.columns.slot.tobytes(), model.columns.category.tobytes())
        alike.setdefault(key, []).append(place)
    return list(alike.values())


@dataclass(frozen=True, slots=True)
class _Packed:
    """The nodes of some trees, tree after tree, root first; ``others``: see ``Forests``."""

    nodes: npt.NDArray[np.void]
    others: npt.NDArray[np.uint64]
    leaves: npt.NDArray[np.float64]
    in_order: npt.NDArray[np.bool_]
    first_nodes: IntArray
    first_leaves: IntArray


@dataclass(frozen=True, slots=True)
class _Part:
    """The trees of the models at ``places``, ``counts`` of each."""

    places: Sequence[int]
    counts: IntArray
    outputs: npt.NDArray[np.int32]
    trees: _Packed


def _packed(nodes: Nodes) -> _Packed | None:
    """Return nodes in the kernel's format, None if some do not fit."""
    levels = _levels(nodes)
    order, tree = (np.concatenate([each[part] for each in levels]) for part in (0, 1))
    sorting = np.argsort(tree, kind="stable")
    order, tree = order[sorting], tree[sorting]
    is_leaf, n_trees = ~np.isnan(nodes.value[order]), len(nodes.roots)
    inner, leaf = order[~is_leaf], order[is_leaf]
    n_nodes, n_leaves = (np.bincount(tree[chosen], minlength=n_trees) for chosen in (~is_leaf, is_leaf))
    first_nodes, first_leaves = (np.concatenate([[0], np.cumsum(counts)]) for counts in (n_nodes, n_leaves))
    # Positions in the tree: nodes by level, leaves from left to right in proper trees.
    place = np.empty(len(nodes.slot), dtype=np.int64)
    place[inner] = np.arange(len(inner)) - np.repeat(first_nodes[:-1], n_nodes)
    place[leaf] = np.arange(len(leaf)) - np.repeat(first_leaves[:-1], n_leaves)
    parents = np.bincount(np.concatenate([nodes.inside[inner], nodes.outside[inner]]), minlength=len(nodes.slot))
    shared = np.bincount(tree, weights=parents[order] > 1, minlength=n_trees) > 0
    in_order = ~shared & (n_leaves <= BITS)
    start, count = _spans(nodes, [reached for reached, _ in levels])
    place[leaf] = np.where(in_order[tree[is_leaf]], start[leaf], place[leaf])
    leaf = leaf[np.lexsort((place[leaf], tree[is_leaf]))]
    made = _questions(nodes, inner, np.where(np.isnan(nodes.value), place, ~place))
    if made is None or max(n_nodes.max(initial=0), n_leaves.max(initial=0)) > MOST:
        return None
    asked = in_order[tree[~is_leaf]]
    yes = np.where(asked, count[nodes.inside[inner]], 0).astype(np.uint64)
    bits = ((np.uint64(1) << yes) - np.uint64(1)) << np.where(asked, start[inner], 0).astype(np.uint64)
    return _Packed(made, ~bits, nodes.value[leaf], in_order, first_nodes, first_leaves)


def _questions(nodes: Nodes, inner: IntArray, place: IntArray) -> npt.NDArray[np.void] | None:
    """Return the inner nodes as NODE, given each node's position in its tree."""
    low, high, inside, outside, missing = (
        getattr(nodes, name)[inner] for name in ("low", "high", "inside", "outside", "missing")
    )
    # Missing values go one of the two ways; a chain of tests for one set passes them on.
    goes_in = missing == inside
    one_of_two = goes_in | (missing == outside) | (np.isnan(nodes.value[outside]) & (nodes.missing[outside] == missing))
    ranged = low != -np.inf
    both = np.stack([low, high], axis=1)
    with np.errstate(over="ignore"):  # values beyond single precision become unequal, and are handled separately
        single = both.astype(np.float32)
    if not one_of_two.all() or ((single != both).any(axis=1) & ranged).any() or nodes.slot.max() >= MISSING_IS_YES:
        return None
    made = np.zeros(len(inner), dtype=NODE)
    made["bound"] = np.where(ranged, np.ascontiguousarray(single).view(np.float64)[:, 0], high)
    made["slot"] = nodes.slot[inner] | np.where(ranged, IN_RANGE, 0) | np.where(goes_in, MISSING_IS_YES, 0)
    made["yes"], made["no"] = place[inside], place[outside]
    return made


def _levels(nodes: Nodes) -> list[tuple[IntArray, IntArray]]:
    """Return the nodes first reached after 0, 1, ... tests, and the tree of each."""
    seen = np.zeros(len(nodes.slot), dtype=bool)
    reached, tree = nodes.roots, np.arange(len(nodes.roots))
    levels: list[tuple[IntArray, IntArray]] = []
    while True:
        reached, first = np.unique(reached, return_index=True)
        tree = tree[first]
        fresh = ~seen[reached]
        reached, tree = reached[fresh], tree[fresh]
        if not reached.size:
            return levels
        seen[reached] = True
        levels.append((reached, tree))
        asks = np.isnan(nodes.value[reached])
        reached = np.concatenate([nodes.inside[reached[asks]], nodes.outside[reached[asks]]])
        tree = np.tile(tree[asks], 2)


def _spans(nodes: Nodes, levels: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Return per node its first leaf, counted from left ("yes") to right, and their number.

    It is meaningless where several nodes lead to one.
    """
    count, start = np.ones(len(nodes.slot), dtype=np.int64), np.zeros(len(nodes.slot), dtype=np.int64)
    asking = [level[np.isnan(nodes.value[level])] for level in levels]
    for level in reversed(asking):
        count[level] = count[nodes.inside[level]] + count[nodes.outside[level]]
    for level in asking:
        start[nodes.inside[level]] = start[level]
        start[nodes.outside[level]] = start[level] + count[nodes.inside[level]]
    return start, count


def _joined(parts: Sequence[_Part], base: npt.NDArray[np.float64]) -> Forests:
    """Return the trees of all parts in the order of groups."""
    counts = np.zeros(len(base), dtype=np.int64)
    for part in parts:
        counts[list(part.places)] = part.counts
    first_trees = np.concatenate([[0], np.cumsum(counts)])
    # The destination of each tree, part after part.
    goes = [np.arange(first_trees[at], first_trees[at + 1]) for part in parts for at in part.places]
    order = np.argsort(np.concatenate(goes), kind="stable")
    of_nodes = _Pieces.of([part.trees.first_nodes for part in parts], order)
    of_leaves = _Pieces.of([part.trees.first_leaves for part in parts], order)
    nodes = np.concatenate([part.trees.nodes for part in parts])[of_nodes.places]
    others = np.concatenate([part.trees.others for part in parts])[of_nodes.places]
    leaves = np.concatenate([part.trees.leaves for part in parts])[of_leaves.places]
    outputs = np.concatenate([part.outputs for part in parts])[order]
    in_order = np.concatenate([part.trees.in_order for part in parts])[order]
    ranges = np.concatenate([[0], np.cumsum(nodes["slot"] & IN_RANGE != 0)])
    asks = ranges[of_nodes.firsts[1:]] > ranges[of_nodes.firsts[:-1]]
    kinds = asks * ASKS_RANGES | in_order * IN_ORDER
    return Forests(nodes, others, leaves, of_nodes.firsts, of_leaves.firsts, outputs, kinds, first_trees, base)


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Pieces of an array in another order: the ``places`` of their elements, and their starts there."""

    places: IntArray
    firsts: IntArray

    @classmethod
    def of(cls, firsts: Sequence[IntArray], order: IntArray) -> _Pieces:
        """Return the pieces with these bounds, array after array, in an order."""
        sizes = np.concatenate([np.diff(first) for first in firsts])
        starts = np.cumsum(sizes) - sizes
        own = sizes[order]
        ends = np.cumsum(own)
        places = np.arange(int(own.sum())) - np.repeat(ends - own, own) + np.repeat(starts[order], own)
        return cls(places, np.concatenate([[0], ends]).astype(np.int64))
