"""Checks LightGBM's model text to its last index before LightGBM or we parse the trees in it.

A digest shows that a text is unchanged, not who wrote it. LightGBM follows children, features and sets of categories
without checks: one wrong number crashes the process or loops for ever. So a text from a file must be one that LightGBM
could have written: every line in its place, every list of the right length, every child after its only parent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.trees.lightgbm.objectives import written
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label

IntArray = npt.NDArray[np.int64]

_HEADER = re.compile(
    rb"tree\nversion=v\d\nnum_class=(\d{1,9})\nnum_tree_per_iteration=(\d{1,9})\nlabel_index=0\nmax_feature_idx=(\d{1,9})\n"
    rb"objective=([^\n]*)\n(?:average_output\n)?feature_names=([^\n]*)\n"
    rb"(?:monotone_constraints=([^\n]*)\n)?feature_infos=([^\n]*)\ntree_sizes=([^\n]*)\n\n"
)
#: The lists of a tree, with a number per split, three with one per leaf.
_OF_SPLITS = (
    "split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child", "internal_value",
    "internal_weight", "internal_count",
)  # fmt: skip
_OF_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
#: The lists of a tree with linear leaves: constant and number of features per leaf, the features, and their weights.
_OF_LINEAR_LEAVES = ("leaf_const", "num_features", "leaf_features", "leaf_coeff")
_LISTS = (*_OF_SPLITS[:6], *_OF_LEAVES, *_OF_SPLITS[6:])
_TREE = re.compile(
    rb"Tree=(\d{1,9})\nnum_leaves=([1-9]\d{0,6})\nnum_cat=(\d{1,7})\n"
    + b"".join(name.encode() + rb"=([^\n]*)\n" for name in _LISTS)
    + rb"(?:cat_boundaries=([^\n]*)\ncat_threshold=([^\n]*)\n)?is_linear=(?:0\n|1\n"
    + b"".join(name.encode() + rb"=([^\n]*)\n" for name in _OF_LINEAR_LEAVES)
    + rb")shrinkage=(-?\d+(?:\.\d+)?(?:e[-+]\d+)?)\n+"
)
_END = b"end of trees\n"
#: Characters of numbers: gains may be infinite, and a threshold NaN, which no value passes.
_INTEGER, _NUMBER = b"0123456789- ", b"0123456789+-.einfa "
_INTEGERS = ("split_feature", "decision_type", "left_child", "right_child", "leaf_count", "internal_count")
#: Lists that LightGBM omits for a tree of one leaf.
_OF_MORE_LEAVES = ("leaf_weight", "leaf_count")
_CATEGORICAL, _KNOWN_BITS = 1, 15
_WORD = 2**32


class WrongText(ValueError):
    """A text is not a model that LightGBM could have written; the message says where."""


@dataclass(frozen=True, slots=True)
class _Trees:
    """The lists of all trees, by name a text per tree; per tree its ``leaves`` and ``sets`` of categories; and the number
    of feature ``columns``."""

    lists: dict[str, tuple[bytes, ...]]
    leaves: IntArray
    sets: IntArray
    columns: IntArray

    @property
    def splits(self) -> IntArray:
        return self.leaves - 1

    def integers(self, name: str) -> IntArray:
        """Return a list of all trees, concatenated."""
        return _integers(name, self.lists[name])


def check(models: Sequence[tuple[Problem, bytes]]) -> None:
    """Raise WrongText unless each text is a model of its problem; with several it does not say which is wrong.

    Only the label, the feature columns and the group's classes of a problem count: two classes of a label that has more have
    one output, like any two. Many small texts are checked together, in the time of a few.
    """
    _check_trees(_joined([_trees_of(problem, text) for problem, text in models]))


def _trees_of(problem: Problem, text: bytes) -> _Trees:
    header = _HEADER.match(text)
    if header is None:
        raise WrongText("it does not begin as LightGBM's models do")
    if b"\0" in text or b"\r" in text or not _is_text(text):
        raise WrongText("it has characters that LightGBM does not write")
    n_outputs = _check_header(header, problem.label, problem.n_features, problem.n_classes)
    trees = _trees(text, header.end(), header[8], problem.n_features)
    if len(trees.leaves) % n_outputs:
        raise WrongText(f"its {len(trees.leaves)} trees cannot be divided among {n_outputs} outputs")
    return trees


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _joined(every: Sequence[_Trees]) -> _Trees:
    if len(every) == 1:
        return every[0]
    lists = {name: tuple(chain.from_iterable(each.lists[name] for each in every)) for name in every[0].lists}
    leaves, sets, columns = (
        np.concatenate([getattr(each, name) for each in every]) for name in ("leaves", "sets", "columns")
    )
    return _Trees(lists, leaves, sets, columns)


def _check_trees(trees: _Trees) -> None:
    _check_lengths(trees)
    _check_splits(trees)
    _check_sets(trees)


def _check_header(header: re.Match[bytes], label: Label, n_features: int, n_classes: int) -> int:
    """Return the number of outputs."""
    several = label == SEVERAL_CLASSES and n_classes != 2
    n_outputs = n_classes if several else 1
    if not any(re.fullmatch(pattern, header[4]) for pattern in written(label, n_classes)):
        expected = {NUMBER: "of numbers", TWO_CLASSES: "of two classes"}.get(label, f"of {n_classes} classes")
        raise WrongText(f"its objective is {header[4][:40].decode(errors='replace')!r}, and it is one {expected}")
    for name, number in (("num_class", header[1]), ("num_tree_per_iteration", header[2])):
        if int(number) != n_outputs:
            raise WrongText(f"{name} is {int(number)}, not {n_outputs}")
    if int(header[3]) != n_features - 1:
        raise WrongText(f"max_feature_idx is {int(header[3])}, and there are {n_features} feature columns")
    if header[6] is not None and not re.fullmatch(rb"(?:-1|0|1)(?: (?:-1|0|1)){%d}" % (n_features - 1), header[6]):
        raise WrongText(f"monotone_constraints is not a list of {n_features} directions")
    for name, values in (("feature_names", header[5]), ("feature_infos", header[7])):
        if len(list(filter(None, values.split(b" ")))) != n_features or values.count(b" ") != n_features - 1:
            raise WrongText(f"{name} is not a list of {n_features}")
    return n_outputs


def _trees(text: bytes, start: int, sizes: bytes, n_features: int) -> _Trees:
    """Return the trees, each with the bytes that ``tree_sizes`` gives, as LightGBM trusts these."""
    found, place = [], start
    for number, size in enumerate(_integers("tree_sizes", (sizes,)).tolist()):
        tree = _TREE.match(text, place)
        if tree is None or tree.end() - place != size or int(tree[1]) != number:
            raise WrongText(f"tree {number} is not a tree of the size that tree_sizes says")
        if (tree[3] == b"0") != (tree[16] is None):
            raise WrongText(f"tree {number} has num_cat={tree[3].decode()} and other sets of categories")
        if tree[18] is not None:
            _check_linear(tree, number, n_features)
        found.append(tree.groups())
        place = tree.end()
    if not text.startswith(_END, place):
        raise WrongText("there is something else after its last tree")
    if not found:
        raise WrongText("it has no tree")
    if b"\nparser:" in text:
        raise WrongText("it has parameters that no model of ours has")
    columns = list(zip(*found, strict=True))
    lists = dict(zip((*_LISTS, "cat_boundaries", "cat_threshold"), columns[3:17], strict=True))
    leaves, sets = (np.array(columns[place], dtype=np.int64) for place in (1, 2))
    return _Trees(lists, leaves, sets, np.full(len(leaves), n_features))


def _check_linear(tree: re.Match[bytes], number: int, n_features: int) -> None:
    """Raise unless every leaf has a constant, and as many valid features and weights as it says."""
    constants, counts, features, weights = (b" ".join(tree[place].split()) for place in (18, 19, 20, 21))
    per_leaf = _integers("num_features", (counts,))
    columns, leaves = _integers("leaf_features", (features,)), int(tree[2])
    numbers = [_numbers(name, (values,)) for name, values in (("leaf_const", constants), ("leaf_coeff", weights))]
    total = int(per_leaf.sum())
    if (len(per_leaf), len(numbers[0])) != (leaves, leaves) or ((per_leaf < 0) | (per_leaf > len(columns))).any():
        raise WrongText(f"tree {number} has not {leaves} numbers in leaf_const and num_features")
    if (len(columns), len(numbers[1])) != (total, total):
        raise WrongText(f"tree {number} has not {total} numbers in leaf_features and leaf_coeff")
    if ((columns < 0) | (columns >= n_features)).any():
        raise WrongText("leaf_features is beyond the feature columns")
    if not all(np.isfinite(each).all() for each in numbers):
        raise WrongText("leaf_const or leaf_coeff has a value that is not finite")


def _check_lengths(trees: _Trees) -> None:
    """Raise unless every list has a number per split or leaf: an unreadable one crashes the process, too."""
    for names, expected in ((_OF_SPLITS, trees.splits), (_OF_LEAVES, trees.leaves)):
        for name in names:
            lengths = _lengths(trees.lists[name])
            wrong = np.flatnonzero(
                (lengths != expected) & ~((trees.leaves == 1) & (name in _OF_MORE_LEAVES) & (lengths == 0))
            )
            if len(wrong):
                raise WrongText(f"tree {wrong[0]} has not {expected[wrong[0]]} numbers in {name}")
            _check_numbers(name, trees.lists[name])


def _check_numbers(name: str, values: Sequence[bytes]) -> None:
    joined = b" ".join(filter(None, values))
    if joined.translate(None, _INTEGER if name in _INTEGERS else _NUMBER):
        raise WrongText(f"{name} has a value that is not a number")
    if name not in _INTEGERS and name != "threshold":  # thresholds are checked with the sets of categories
        numbers = _numbers(name, values)
        if name == "leaf_value" and not np.isfinite(numbers).all():
            raise WrongText(f"{name} has a value that is not finite")


def _lengths(values: Sequence[bytes]) -> IntArray:
    spaces = np.fromiter(map(bytes.count, values, repeat(b" ")), np.int64, len(values))
    return spaces + np.fromiter(map(bool, values), np.int64, len(values))


def _check_splits(trees: _Trees) -> None:
    """Raise unless features exist and the children of each tree form a tree, in which LightGBM gives a split a greater
    number than its parent."""
    feature, decision = trees.integers("split_feature"), trees.integers("decision_type")
    if ((feature < 0) | (feature >= np.repeat(trees.columns, trees.splits))).any():
        raise WrongText("split_feature is beyond the feature columns")
    if ((decision < 0) | (decision > _KNOWN_BITS)).any():
        raise WrongText("decision_type is none")
    splits = trees.splits
    before = np.cumsum(splits) - splits
    limit, first = np.repeat(splits, splits), np.repeat(before, splits)
    parent = np.arange(len(limit)) - first
    count = np.zeros(2 * len(limit), dtype=np.int64)
    for side in ("left_child", "right_child"):
        child = trees.integers(side)
        split = child >= 0
        if ((child >= limit) | (child < -limit - 1) | (split & (child <= parent))).any():
            raise WrongText(f"{side} is beyond its tree, or not after its parent")
        # Splits except the root, and leaves, are numbered from 0: each has exactly one parent.
        count += np.bincount(2 * first + np.where(split, child - 1, limit - 2 - child), minlength=len(count))
    if (count != 1).any():
        raise WrongText("a child has no parent, or two")


def _check_sets(trees: _Trees) -> None:
    """Raise unless sets of categories are consecutive bit sets, and categorical splits name one of their tree."""
    asks = (trees.integers("decision_type") & _CATEGORICAL) > 0
    threshold = _numbers("threshold", trees.lists["threshold"])
    if not asks.any() and not trees.sets.any():
        return
    sets, has = trees.sets, trees.sets > 0
    bounds = trees.integers("cat_boundaries") if has.any() else np.empty(0, dtype=np.int64)
    ends = np.cumsum((sets + 1)[has])
    words = _lengths([values or b"" for values in trees.lists["cat_threshold"]])[has]
    if int((sets + 1)[has].sum()) != len(bounds) or (bounds[ends - sets[has] - 1] != 0).any():
        raise WrongText("cat_boundaries are not as many as the sets of categories, or do not begin at 0")
    steps = np.diff(bounds, prepend=0)
    steps[ends - sets[has] - 1] = 1
    if (steps <= 0).any() or (bounds[ends - 1] != words).any():
        raise WrongText("cat_boundaries do not lead through cat_threshold")
    bits = trees.integers("cat_threshold")
    if ((bits < 0) | (bits >= _WORD)).any():
        raise WrongText("cat_threshold has a word that is not a set of 32 categories")
    names = threshold[asks]
    if ((names != np.floor(names)) | (names < 0) | (names >= np.repeat(sets, trees.splits)[asks])).any():
        raise WrongText("a categorical split names a set of categories that its tree does not have")


def _integers(name: str, values: Sequence[bytes | None]) -> IntArray:
    return np.asarray(_cast(name, values, pa.int64()), dtype=np.int64)


def _numbers(name: str, values: Sequence[bytes | None]) -> npt.NDArray[np.float64]:
    return np.asarray(_cast(name, values, pa.float64()), dtype=np.float64)


def _cast(name: str, values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    joined = b" ".join(filter(None, values))
    if not joined:
        return pa.array([], kind)
    if b"  " in joined or joined[:1] == b" " or joined[-1:] == b" ":
        raise WrongText(f"{name} is not a list of numbers with a space between them")
    try:
        return pc.split_pattern(pa.scalar(joined.decode()), " ").values.cast(kind)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        raise WrongText(
            f"{name} has a value that is not a {'whole ' if pa.types.is_integer(kind) else ''}number"
        ) from None
