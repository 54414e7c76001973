"""Trees of a forest without a split: LightGBM 4 writes them without the initial score.

In boosting a tree without a split adds 0. In a forest (``boosting = 'rf'``) trees are averaged: each has the initial score
added to its leaves, except trees of one leaf, which would pull the average towards 0. Here they get the initial score: the
mean of the label, the logit of its share, depending on the objective.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: The beginning of a tree of one leaf, the line of leaf values, and the lengths of the trees.
_ALONE = re.compile(r"Tree=\d+\nnum_leaves=1\n")
_LEAF = re.compile(r"^leaf_value=.*$", re.MULTILINE)
_SIZES = re.compile(r"^tree_sizes=(.*)$", re.MULTILINE)


def has_some(text: str) -> bool:
    """Return whether a model text has trees of one leaf."""
    return _ALONE.search(text) is not None


def beginnings(text: str) -> list[str]:
    """Return the initial scores as text: the leaves of a model all of whose trees have one leaf."""
    return [leaf.removeprefix("leaf_value=") for leaf in _LEAF.findall(text)]


def with_beginnings(text: str, values: Sequence[str]) -> str:
    """Return a forest's text with the initial score in each tree of one leaf; ``values`` has one per output."""
    (written,) = _SIZES.findall(text)
    at = text.index("\nTree=0\n") + 1
    head, trees = text[:at], []
    for number, size in enumerate(map(int, written.split())):
        tree = text[at : at + size]
        at += size
        alone = _ALONE.match(tree) is not None
        trees.append(_LEAF.sub(f"leaf_value={values[number % len(values)]}", tree) if alone else tree)
    sizes = " ".join(str(len(tree)) for tree in trees)
    return "".join((head.replace(f"tree_sizes={written}\n", f"tree_sizes={sizes}\n"), *trees, text[at:]))
