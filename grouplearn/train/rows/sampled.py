"""A random sample of a group's training rows by class, on which an early rung of a search trains."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np

from grouplearn.data.dataset import FloatArray, Group
from grouplearn.data.shard import RowNumbers

#: Fewest rows of a rung: fewer say little, and save no time.
FEWEST_ROWS = 1000
_FRACTION = re.compile(r"-?[0-9]+\.[0-9]+")


def group_seed(seed: int, group: Group) -> int:
    """Return 31 bits of BLAKE2b(seed, level, keys): independent of other groups, workers, order and number types."""
    text = json.dumps([seed, group.level, [*map(_plain, group.keys)]])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def _plain(key: str | None) -> str | None:
    """Return a number without trailing zeros: 1, 1.0 and 1.00 are one key in columns of different types."""
    return key.rstrip("0").rstrip(".") if key is not None and _FRACTION.fullmatch(key) else key


def share_of(share: float, n_rows: int) -> float:
    """Return the share of training rows to sample in a group of ``n_rows``: ``share``, more in small groups."""
    return min(1.0, max(share, FEWEST_ROWS / max(1, n_rows)))


def sample(rows: RowNumbers, classes: FloatArray | None, share: float, seed: int) -> RowNumbers:
    """Return ``share`` of the rows, in order: of each class its share, rounded up, those with the smallest random numbers.

    ``classes`` are the rows' classes, None without any. Larger samples contain smaller ones.
    """
    labels = np.zeros(rows.size) if classes is None else classes
    lots = np.random.Generator(np.random.PCG64(seed)).random(rows.size)
    order = np.lexsort((lots, labels))
    _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    rank = np.arange(rows.size) - np.repeat(starts, counts)
    kept = order[rank < np.repeat(np.ceil(share * counts), counts)]
    return rows[np.sort(kept)]
