"""Trees of a forest that found no split: LightGBM 4 writes what is left of a mean for them, and not the mean.

In boosting a tree without a split adds 0 to what the trees before it say. In a forest (``boosting = 'rf'``) trees are averaged:
each has what scores begin with added to its leaves, but those of one leaf, which pull the average towards 0. Here they say
what scores begin with: the mean of the label, the logit of its share, as its objective has it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: How a tree of one leaf begins, what a tree says of its leaves, and of how many characters each tree is.
_ALONE = re.compile(r"Tree=\d+\nnum_leaves=1\n")
_LEAF = re.compile(r"^leaf_value=.*$", re.MULTILINE)
_SIZES = re.compile(r"^tree_sizes=(.*)$", re.MULTILINE)


def has_some(text: str) -> bool:
    """Return whether a model text has trees of one leaf."""
    return _ALONE.search(text) is not None


def beginnings(text: str) -> list[str]:
    """Return what scores begin with, as it is written: the leaves of trees that are all of one leaf."""
    return [leaf.removeprefix("leaf_value=") for leaf in _LEAF.findall(text)]


def with_beginnings(text: str, values: Sequence[str]) -> str:
    """Return the text of a forest in which each tree of one leaf says what scores begin with, one of ``values`` an output."""
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
