"""An offset is the last feature column: boosting begins with it, no tree splits on it, and scores have it added.

The model text says so by the name of that column. LightGBM itself, which keeps no initial scores, predicts without it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard, StoredShard
from grouplearn.learners.contract.config import Config, Conflict
from grouplearn.learners.contract.problem import OFFSET

_LAST_NAME = re.compile(rb"^feature_names=(?:[^\n]* )?offset$", re.MULTILINE)


def begins_text(text: bytes) -> bool:
    """Return whether scores of a model text begin with the last feature column."""
    return _LAST_NAME.search(text) is not None


def column_names(n_features: int) -> list[bytes]:
    """Return the names of feature columns, the last of which is the offset; the others are LightGBM's own."""
    return [*(f"Column_{number}".encode() for number in range(n_features - 1)), OFFSET.encode()]


def of_rows(x: Matrix) -> FloatArray:
    """Return the offsets (n,) of rows, NaN where there is none."""
    column: Any = x[:, -1]
    found = np.asarray(column if isinstance(column, np.ndarray) else column.toarray().ravel(), np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def of_shard(rows: Shard | StoredShard) -> FloatArray:
    """Return the offsets (n,) of a shard's rows."""
    return np.concatenate([np.empty(0), *map(of_rows, rows.matrices())])


def taken_off(rows: Shard | StoredShard) -> Shard | StoredShard:
    """Return rows whose offset is 0, so that nothing can be learned from it."""
    if isinstance(rows, Shard):
        return replace(rows, x=_without(rows.x))
    return replace(rows, encode=lambda numbers: _without(rows.encode(numbers)))


def _without(x: Matrix) -> Matrix:
    found = x.copy()
    if isinstance(found, np.ndarray):
        found[:, -1] = 0
    else:
        found.data = np.where(found.indices == found.shape[1] - 1, 0.0, found.data)
    return found


def conflict(config: Config) -> Conflict | None:
    """Return why a config takes no offset, None if it does."""
    if config["boosting"] == "rf":
        return Conflict("the trees of a forest do not follow from each other, and take no offset", ("boosting",))
    if config["sigmoid"] != 1:
        return Conflict("with an offset sigmoid is 1: it would multiply the offset, too", ("sigmoid",))
    return None
