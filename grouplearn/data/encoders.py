"""Encoders: fitted on training rows, stored with the model, replayed at prediction time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from grouplearn.data.dataset import Dataset, FeatureArray, FloatArray, Item, RowNumbers
from grouplearn.data.shard import Matrix

#: A design matrix with at most this many columns is built dense; a wider one is CSR.
DENSE_COLUMNS = 512
#: Up to so many columns, or where a row sets a larger share of them, passes over dense rows are as fast as over CSR.
_NARROW, _SET_SHARE = 128, 1 / 8
#: Values of a group's dense rows from which passes over CSR repay that it trains by itself, not beside others.
_REPAYING_VALUES = 600_000
#: Feature values made at a time: columns become rows while both fit the cache, and no second copy of all rows is made.
_CACHED_VALUES = 1 << 16
#: Whole numbers up to here are numbers of single precision.
_WHOLE_SINGLES = 1 << 24
#: Numbers that differ by this share of the largest, a few units in its last place, are one number and its rounding.
_ROUNDING = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class FittedItem:
    """A fitted item: numeric columns become ``(coalesce(x, fill) - center) / scale``; ``categories`` are the texts seen.

    A one-hot item has one column per category, in the order of ``categories``; an ordinal item has one column holding the
    0-based position in ``categories``; a hash item has ``buckets`` columns, and so has an array, its values as they are.
    NULL and unseen categories are all zeros in one-hot columns and missing in ordinal ones.
    """

    item: Item
    fill: float | None = None
    center: float = 0.0
    scale: float = 1.0
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Number of feature columns."""
        wide = {"onehot": len(self.categories), "hash": self.item.buckets, "array": self.item.buckets}
        return wide.get(self.item.encoder, 1)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the feature columns: ``x``, ``origin=JFK``, ``hash(tail)[3]``."""
        if self.item.encoder == "onehot":
            return tuple(f"{self.item.name}={category}" for category in self.categories)
        if self.item.encoder == "hash":
            return tuple(f"{self.item.name}[{bucket}]" for bucket in range(self.item.buckets))
        if self.item.encoder == "array":  # counted from 1, as SQL does
            return tuple(f"{self.item.name}[{place}]" for place in range(1, self.item.buckets + 1))
        return (self.item.name,)


def fit(item: Item, values: FeatureArray | npt.NDArray[np.int32], dictionary: Sequence[str]) -> FittedItem:
    """Fit one item on its training column (numbers with NaN missing, or codes with -1 missing)."""
    if item.kind == "numeric":
        return _fit_numeric(item, np.asarray(values, dtype=np.float64))
    if item.kind in ("hash", "array"):
        return FittedItem(item)
    present = np.unique(values)
    return FittedItem(item, categories=tuple(dictionary[code] for code in present if code >= 0))


def needs_no_fit(item: Item) -> bool:
    """Whether the item is the same whatever rows train."""
    constant = item.impute is None or isinstance(item.impute, float)
    return item.kind in ("hash", "array") or (item.kind == "numeric" and item.encoder == "none" and constant)


def complete(items: Sequence[Item], data: Dataset, rows: RowNumbers | slice) -> npt.NDArray[np.bool_]:
    """Return which of some rows (n,) have every value that the items make features of, where none fills what is missing."""
    kept = np.ones(data.y[rows].shape[0], np.bool_)
    for item in items:
        if item.encoder == "ordinal":
            kept &= data.column("codes", item.column, rows) >= 0
        for column in range(item.column, item.column + item.numbers if item.impute is None else item.column):
            kept &= np.isfinite(data.column("numeric", column, rows))
    return kept


def keeps_single(item: Item) -> bool:
    """Whether the item makes numbers of single precision of such numbers, or of codes: it computes nothing.

    What ``zscore`` and ``minmax`` make is rounded to double precision. Rows that are kept as they are, to be scaled wherever they
    are read, would save the copy of one group's rows: of a million rows of 50 columns 200 MB, and a twentieth of the time, where
    to find means and scales takes three times that; and every learner, in LightGBM and PyTorch too, would read rows in two ways.
    """
    if item.kind != "numeric":
        return True
    fill = item.impute
    return item.encoder == "none" and (fill is None or (isinstance(fill, float) and _is_single(fill)))


def _is_single(value: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == value


def _fit_numeric(item: Item, values: FloatArray) -> FittedItem:
    known = values[np.isfinite(values)]
    fill = _fill(item, known)
    if fill is not None and known.size < values.size:
        known = np.where(np.isfinite(values), values, fill)
    if item.encoder not in ("zscore", "minmax") or not known.size:
        return FittedItem(item, fill)
    low, high = float(known.min()), float(known.max())
    # A constant column carries no information: scale 1 turns it into zeros instead of a division by zero or by rounding.
    if high - low <= _ROUNDING * max(abs(low), abs(high)):
        return FittedItem(item, fill, low)
    if item.encoder == "minmax":
        return FittedItem(item, fill, low, high - low)
    return FittedItem(item, fill, *_mean_and_deviation(known))


def _mean_and_deviation(values: FloatArray) -> tuple[float, float]:
    """Return mean and standard deviation of shares of the range: a small spread keeps its digits, a large one overflows not."""
    low = float(values.min())
    span = float(values.max()) - low
    if not span:
        return low, 0.0
    shares = (values - low) / span
    return low + span * float(shares.mean()), span * float(shares.std())


def _fill(item: Item, known: FloatArray) -> float | None:
    if item.impute is None or isinstance(item.impute, float):
        return item.impute
    if not known.size:
        return 0.0
    return float(np.median(known)) if item.impute == "median" else _mean_and_deviation(known)[0]


def is_mostly_zero(items: Sequence[Item], width: int, n_rows: float) -> bool:
    """Whether so many rows are sooner learned from without the zeros of their categories, though a dense design has room."""
    most_set = sum(max(1, item.numbers) for item in items)
    return width > _NARROW and most_set <= width * _SET_SHARE and n_rows * width >= _REPAYING_VALUES


def encode(
    fitted: Sequence[FittedItem],
    numeric: FeatureArray,
    codes: npt.NDArray[np.int32],
    dictionaries: Sequence[Sequence[str]],
    dense_columns: int = DENSE_COLUMNS,
) -> Matrix:
    """Return the design matrix of rows: columns in the order of ``fitted``; missing numeric values stay NaN.

    Dense (C order) up to ``dense_columns`` columns, CSR beyond; ``numeric`` itself where nothing is to be done. Dense rows
    are float32 where ``numeric`` is and every feature is exact in it, else float64; CSR is float64.
    """
    if [*map(_as_is, fitted)] == [*range(numeric.shape[1])] and 0 < numeric.shape[1] <= dense_columns:
        return numeric
    width = sum(item.width for item in fitted)
    columns = [_Column.of(entry, dictionaries) for entry in fitted]
    if width > dense_columns:
        return _sparse(fitted, [column.values(numeric, codes) for column in columns], width)
    n_rows = numeric.shape[0] if fitted else 0
    x: FeatureArray = np.zeros((n_rows, width), _dtype(fitted, numeric))
    step = max(1, _CACHED_VALUES // max(1, width))
    for start in range(0, n_rows, step):
        rows = slice(start, start + step)
        _write(x[rows], columns, numeric[rows], codes[rows])
    return x


def _dtype(fitted: Sequence[FittedItem], numeric: FeatureArray) -> npt.DTypeLike:
    single = numeric.dtype == np.float32 and all(keeps_single(each.item) for each in fitted)
    return (
        np.float32
        if single and max((len(each.categories) for each in fitted), default=0) <= _WHOLE_SINGLES
        else np.float64
    )


def _as_is(fitted: FittedItem) -> int | None:
    """Return the column of ``Dataset.numeric`` that the item is, None if it is something else."""
    plain = fitted.item.kind == "numeric" and (fitted.fill, fitted.center, fitted.scale) == (None, 0.0, 1.0)
    return fitted.item.column if plain else None


@dataclass(frozen=True, slots=True)
class _Column:
    """A fitted item ready to be replayed: ``places`` are positions of category codes among the categories seen."""

    fitted: FittedItem
    places: npt.NDArray[np.int64] | None

    @classmethod
    def of(cls, fitted: FittedItem, dictionaries: Sequence[Sequence[str]]) -> _Column:
        if fitted.item.kind != "category":
            return cls(fitted, None)
        place = {category: position for position, category in enumerate(fitted.categories)}
        # One more entry at the end so that code -1 (NULL) looks up -1.
        texts = dictionaries[fitted.item.column]
        return cls(fitted, np.array([*(place.get(text, -1) for text in texts), -1], dtype=np.int64))

    def values(self, numeric: FeatureArray, codes: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """Return the value of a one-column item (float64), the column number in a wide item (int64, -1 for none), or all
        values of an array (n, width)."""
        fitted, item = self.fitted, self.fitted.item
        if item.kind == "array":
            return numeric[:, item.column : item.column + item.buckets]
        if item.kind == "numeric":
            values = numeric[:, item.column].astype(np.float64, copy=False)
            if fitted.fill is not None:
                values = np.where(np.isfinite(values), values, fitted.fill)
            return (values - fitted.center) / fitted.scale
        column = codes[:, item.column].astype(np.int64)
        if self.places is None:
            return column
        position = self.places[column]
        return np.where(position < 0, np.nan, position.astype(np.float64)) if item.encoder == "ordinal" else position


def _write(x: FeatureArray, columns: Sequence[_Column], numeric: FeatureArray, codes: npt.NDArray[np.int32]) -> None:
    """Write the feature columns of some rows into ``x``, which is zero."""
    start = 0
    for column in columns:
        values = column.values(numeric, codes)
        if values.ndim == 2:
            x[:, start : start + values.shape[1]] = values
        elif values.dtype == np.float64:
            x[:, start] = values
        else:
            present = np.flatnonzero(values >= 0)
            x[present, start + values[present]] = 1.0
        start += column.fitted.width


def _sparse(fitted: Sequence[FittedItem], parts: Sequence[npt.NDArray[Any]], width: int) -> Matrix:
    columns, values, start = [], [], 0
    for entry, part in zip(fitted, parts, strict=True):
        if part.ndim == 2:
            columns.append(np.where(part != 0, start + np.arange(part.shape[1]), -1))
            values.append(part)
        elif part.dtype == np.float64:
            columns.append(np.where(part != 0, start, -1))
            values.append(part)
        else:
            columns.append(np.where(part >= 0, start + part, -1))
            values.append(np.ones(part.shape[0]))
        start += entry.width
    column, value = np.column_stack(columns), np.column_stack(values)
    kept = column >= 0
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return scipy.sparse.csr_matrix((value[kept], column[kept], indptr), shape=(column.shape[0], width))
