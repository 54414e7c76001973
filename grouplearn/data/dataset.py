"""The extracted rows of a statement, sorted by group, and the groups as runs of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Item:
    """One scalar column that a FEATURES item produces in the extract, and how it becomes feature columns.

    ``kind``: ``numeric`` is a column of ``Dataset.numeric``; ``category`` and ``hash`` are columns of ``Dataset.codes``.
    ``column`` is the index there. ``encoder`` is what is fitted: for numeric ``none``, ``zscore``, ``minmax``; for category
    ``onehot`` or ``ordinal``; for hash ``hash``. ``impute`` fills missing numeric values first: ``mean``, ``median`` or a
    constant. ``scope`` says whether it is fitted per group or on all training rows. ``name`` is what users see.
    """

    name: str
    kind: Literal["numeric", "category", "hash"]
    column: int
    encoder: Literal["none", "zscore", "minmax", "onehot", "ordinal", "hash"] = "none"
    impute: Literal["mean", "median"] | float | None = None
    scope: Literal["group", "all"] = "group"
    buckets: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """One group: its level (index of the grouping set), its key values as text (None: NULL or rolled up), its rows.

    ``ranges`` are half-open runs of dataset rows; a parent's runs are its children's.
    """

    id: int
    level: int
    keys: tuple[str | None, ...]
    ranges: tuple[tuple[int, int], ...]

    @property
    def n_rows(self) -> int:
        """Number of rows of the group."""
        return sum(stop - start for start, stop in self.ranges)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Rows sorted by finest group, then by a hash of (seed, row), so that their order depends on the data and seed alone.

    ``numeric`` (n, p) float64, NaN missing; ``codes`` (n, c) int32, -1 missing, indexes into ``dictionaries[j]`` (sorted
    category texts; empty for hash items); ``y`` (n,) float64: the value, or the number of the class in ``classes``, NaN
    missing; ``weight`` (n,); ``split`` (n,) int16: 1 held out and 0 training, or the fold number under VALIDATE FOLDS.
    """

    numeric: FloatArray
    codes: npt.NDArray[np.int32]
    y: FloatArray
    weight: FloatArray
    split: npt.NDArray[np.int16]
    dictionaries: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.y.shape[0])
