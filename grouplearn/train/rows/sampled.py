"""A random part of a group's training rows, drawn class by class: what an early rung of a search trains on."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np

from grouplearn.data.dataset import FloatArray, Group
from grouplearn.data.shard import RowNumbers

#: A rung trains on so many rows at least: fewer say little, and take no time.
FEWEST_ROWS = 1000
_FRACTION = re.compile(r"-?[0-9]+\.[0-9]+")


def group_seed(seed: int, group: Group) -> int:
    """Return 31 bits of BLAKE2b(seed, level, keys): other groups, workers, order and types of numbers play no part."""
    text = json.dumps([seed, group.level, [*map(_plain, group.keys)]])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def _plain(key: str | None) -> str | None:
    """Return a number without the zeros that end it: 1, 1.0 and 1.00 are one key of a column in three types."""
    return key.rstrip("0").rstrip(".") if key is not None and _FRACTION.fullmatch(key) else key


def share_of(share: float, n_rows: int) -> float:
    """Return the part of the training rows that is drawn in a group of ``n_rows`` rows: ``share``, but of too few rows more."""
    return min(1.0, max(share, FEWEST_ROWS / max(1, n_rows)))


def sample(rows: RowNumbers, classes: FloatArray | None, share: float, seed: int) -> RowNumbers:
    """Return ``share`` of the rows, in order: of each class the part, rounded up, that draws the lowest lots.

    ``classes`` are those of the rows, None where there are none. Samples of larger shares contain those of smaller ones.
    """
    labels = np.zeros(rows.size) if classes is None else classes
    lots = np.random.Generator(np.random.PCG64(seed)).random(rows.size)
    order = np.lexsort((lots, labels))
    _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    rank = np.arange(rows.size) - np.repeat(starts, counts)
    kept = order[rank < np.repeat(np.ceil(share * counts), counts)]
    return rows[np.sort(kept)]
