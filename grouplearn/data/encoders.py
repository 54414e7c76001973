"""Fits items on training rows and replays them: the design matrix, for all encoders of ``data.encoding``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import Dataset, FeatureArray, Item, RowNumbers
from grouplearn.data.encoding.columns import AdjacentColumns, ColumnPiece, Columns, DensePiece, IntArray
from grouplearn.data.encoding.encoder import FittedGroups, FittedItem, GroupRows, Labels, Replay
from grouplearn.data.encoding.registry import encoder_of, widths_of
from grouplearn.data.shard import Matrix
from grouplearn.kernels.algebra import finite_rows

__all__ = [
    "DENSE_COLUMNS",
    "Columns",
    "FittedGroups",
    "FittedItem",
    "GroupRows",
    "always_finite",
    "columns_of",
    "complete",
    "constant",
    "encode",
    "encode_groups",
    "fit",
    "fit_each",
    "fit_groups",
    "is_dense",
    "is_mostly_zero",
    "keeps_single",
    "learn_labels",
    "needs_no_fit",
    "replays",
]

#: A design matrix with at most this many columns is built dense; a wider one is CSR where rows set few of them.
DENSE_COLUMNS = 512
#: Up to this many columns, or above this share of nonzeros, passes over dense rows are as fast as over CSR: at 65 columns CSR
#: takes 0.6 to 1 of the time, at 95 half to 0.9, at 50 up to 1.3 times as much.
_NARROW, _SET_SHARE = 64, 1 / 8
#: Values of a group's dense rows above which CSR pays, although the group then trains alone.
_REPAYING_VALUES = 600_000
#: Feature values made at a time, so that they fit the cache when columns become rows, and rows exist only once.
_CACHED_VALUES = 1 << 16
#: Single precision holds all whole numbers up to this.
_WHOLE_SINGLES = 1 << 24


def fit(item: Item, data: Dataset, rows: RowNumbers | slice, place: IntArray | None = None) -> FittedItem:
    """Return one item fitted on training rows; these are read only if the fit depends on them. ``place`` as in ``Columns``."""
    encoder = encoder_of(item)
    if encoder.learns_labels:
        labels = Labels(data.y[rows], data.weight[rows], place)
        group = GroupRows.of_one(labels.y.size)
        return encoder.fit_labelled(item, *data.observed(item, rows), labels, group).fitted[0]
    return encoder.fit(item, *data.observed(item, rows)) if encoder.needs_fit(item) else encoder.fit(item, _NOTHING, ())


_NOTHING: npt.NDArray[np.float64] = np.empty(0)


def columns_of(data: Dataset, rows: RowNumbers | slice, place: IntArray | None = None) -> Columns:
    """Return some rows of a dataset, not yet encoded, and their ``place``: a view for a slice, else a copy."""
    lists = None if data.lists is None else data.lists.rows(rows)
    return Columns(data.numeric[rows], data.codes[rows], lists, data.dictionaries, place)


def learn_labels(items: Sequence[Item]) -> bool:
    """Whether any of these items is fitted on labels."""
    return any(encoder_of(item).learns_labels for item in items)


def needs_no_fit(item: Item) -> bool:
    """Whether the fitted item is the same for all training rows."""
    return not encoder_of(item).needs_fit(item)


def complete(items: Sequence[Item], data: Dataset, rows: RowNumbers | slice) -> npt.NDArray[np.bool_]:
    """Return which of some rows (n,) have every value that the items need and do not fill."""
    kept = np.ones(len(range(data.n_rows)[rows]) if isinstance(rows, slice) else rows.size, np.bool_)
    needing = [item for item in items if not encoder_of(item).fills]
    for item in needing:
        if item.is_coded:
            kept &= data.column("codes", item.column, rows) >= 0
    numbers = [range(item.column, item.column + item.numbers) for item in needing if item.impute is None]
    needed = {*itertools.chain.from_iterable(numbers)}
    if data.files is None and len(needed) == data.numeric.shape[1]:
        return kept & finite_rows(data.numeric[rows])
    for column in needed:
        kept &= np.isfinite(data.column("numeric", column, rows))
    return kept


def always_finite(item: Item) -> bool:
    """Whether the item's features are never missing or infinite: they are 0, 1 or counts."""
    return encoder_of(item).fills and item.kind != "entries"


def keeps_single(item: Item) -> bool:
    """Whether the item makes single-precision numbers from such numbers, or from codes."""
    return encoder_of(item).keeps_single(item)


def is_dense(items: Sequence[Item], width: int) -> bool:
    """Whether rows of so many columns are kept zeros and all: few columns, or such that rows set most of, as numbers."""
    return width <= DENSE_COLUMNS or 2 * _most_set(items) >= width


def is_mostly_zero(items: Sequence[Item], width: int, n_rows: float) -> bool:
    """Whether training on this many rows is faster if the zeros of categories are left out, although a dense design fits."""
    return width > _NARROW and _most_set(items) <= width * _SET_SHARE and n_rows * width >= _REPAYING_VALUES


def _most_set(items: Sequence[Item]) -> int:
    """Return how many columns a row sets at most, a list counted as one."""
    return sum(max(1, item.numbers) for item in items)


def replays(fitted: Sequence[FittedItem], columns: Columns) -> list[Replay]:
    """Return the functions that make the feature columns of these rows, or of any with the same dictionaries."""
    return [encoder_of(entry.item).replay(entry, columns) for entry in fitted]


def encode(
    fitted: Sequence[FittedItem],
    columns: Columns,
    dense_columns: int | None = None,
    made: Sequence[Replay] | None = None,
) -> Matrix:
    """Return the design matrix of rows: columns in the order of ``fitted``; missing numeric values stay NaN.

    Dense (C order) up to ``dense_columns`` columns (None: where ``is_dense``), CSR beyond; ``columns.numeric`` itself where
    nothing is to be done. Dense rows are float32 where that is and every feature is exact in it, else float64; CSR is float64.
    Who encodes a few rows after others has ``made`` their ``replays`` once.
    """
    numeric, starts = columns.numeric, _starts(fitted)
    if dense_columns is None:
        dense_columns = starts[-1] if is_dense([each.item for each in fitted], starts[-1]) else 0
    if [*map(_as_is, fitted)] == [*range(numeric.shape[1])] and 0 < numeric.shape[1] <= dense_columns:
        return numeric
    made = replays(fitted, columns) if made is None else made
    if starts[-1] > dense_columns:
        return _sparse([replay(columns) for replay in made], starts)
    return _dense(fitted, columns, lambda rows: [replay(columns.rows(rows)) for replay in made])


def fit_groups(item: Item, data: Dataset, rows: GroupRows, place: IntArray | None = None) -> FittedGroups:
    """Return one item fitted on the training rows of each group, which are all rows of ``data``. ``place`` as in ``Columns``."""
    encoder = encoder_of(item)
    if encoder.learns_labels:
        labels = Labels(data.y, data.weight, place)
        return encoder.fit_labelled(item, *data.observed(item, slice(None)), labels, rows)
    if not encoder.needs_fit(item):
        return constant(encoder.fit(item, _NOTHING, ()), data, rows.n_groups)
    found = encoder.fit_groups(item, *data.observed(item, slice(None)), rows)
    return fit_each(item, data, rows) if found is None else found


def fit_each(
    item: Item,
    data: Dataset,
    rows: GroupRows,
    known: Sequence[FittedItem | None] | None = None,
    place: IntArray | None = None,
) -> FittedGroups:
    """Return one item fitted on the rows of each group, one after another, unless it is ``known`` (G) how. ``place`` as in
    ``Columns``."""
    ends = np.searchsorted(rows.of, np.arange(rows.n_groups + 1)).tolist()
    before = [None] * rows.n_groups if known is None else known
    fitted = [
        fit(item, data, slice(*each), None if place is None else place[slice(*each)]) if own is None else own
        for own, each in zip(before, itertools.pairwise(ends), strict=True)
    ]
    made = replays(fitted, columns_of(data, slice(0, 0)))

    def replay(columns: Columns, of: npt.NDArray[np.intp]) -> DensePiece:
        cuts = [0, *(np.flatnonzero(np.diff(of)) + 1).tolist(), of.size] if of.size else []
        runs = [slice(*each) for each in itertools.pairwise(cuts)]
        return AdjacentColumns([(run, made[of[run.start]](columns.rows(run))) for run in runs])

    return FittedGroups(fitted, replay)


def constant(fitted: FittedItem, data: Dataset, n_groups: int) -> FittedGroups:
    """Return one fitted item as that of each group."""
    replay = encoder_of(fitted.item).replay(fitted, columns_of(data, slice(0, 0)))
    return FittedGroups([fitted] * n_groups, lambda columns, _: replay(columns))


def encode_groups(
    fitted: Sequence[FittedItem], groups: Sequence[FittedGroups], columns: Columns, of: npt.NDArray[np.intp]
) -> FeatureArray:
    """Return the dense design matrix, as ``encode``, of rows of groups with items as wide as ``fitted``; ``of`` (n,) is each
    row's group."""
    return _dense(fitted, columns, lambda rows: [each.replay(columns.rows(rows), of[rows]) for each in groups])


def _starts(fitted: Sequence[FittedItem]) -> list[int]:
    return [0, *itertools.accumulate(widths_of(fitted))]


def _dense(
    fitted: Sequence[FittedItem], columns: Columns, pieces: Callable[[slice], Sequence[DensePiece]]
) -> FeatureArray:
    """Return the pieces of all rows side by side, made of few rows at a time."""
    starts, n_rows = _starts(fitted), columns.n_rows if fitted else 0
    x: FeatureArray = np.zeros((n_rows, starts[-1]), _dtype(fitted, columns.numeric))
    step = max(1, _CACHED_VALUES // max(1, starts[-1]))
    for start in range(0, n_rows, step):
        rows = slice(start, start + step)
        for piece, (first, last) in zip(pieces(rows), itertools.pairwise(starts), strict=True):
            piece.write(x[rows, first:last])
    return x


def _dtype(fitted: Sequence[FittedItem], numeric: FeatureArray) -> npt.DTypeLike:
    single = numeric.dtype == np.float32 and all(keeps_single(each.item) for each in fitted)
    return (
        np.float32
        if single and max((len(each.categories) for each in fitted), default=0) <= _WHOLE_SINGLES
        else np.float64
    )


def _as_is(fitted: FittedItem) -> int | None:
    """Return the column of ``Dataset.numeric`` that equals the item, None if there is none."""
    plain = fitted.item.kind == "numeric" and (fitted.fill, fitted.center, fitted.scale) == (None, 0.0, 1.0)
    return fitted.item.column if plain else None


def _sparse(pieces: Sequence[ColumnPiece], starts: Sequence[int]) -> Matrix:
    """Return the pieces side by side as CSR: in each row the entries of the first item, then of the second, and so on."""
    import scipy.sparse  # slow to import, and only needed for sparse rows

    parts = [piece.nonzeros() for piece in pieces]
    indptr = np.zeros(parts[0][0].size + 1, np.int64)
    for counts, _, _ in parts:
        indptr[1:] += counts
    np.cumsum(indptr, out=indptr)
    entries = int(indptr[-1])
    kind = np.int32 if max(entries, starts[-1]) < 1 << 31 else np.int64
    column, value = np.empty(entries, kind), np.empty(entries)
    columns = [start + own.astype(kind, copy=False) for (_, own, _), start in zip(parts, starts, strict=False)]
    values = [each for _, _, each in parts]
    if all(counts.size == own.size and counts.all() for counts, own, _ in parts):
        for rows, joined in ((columns, column), (values, value)):
            _join(rows, joined.reshape(indptr.size - 1, len(parts)))
    else:
        begin = indptr[:-1].copy()  # where the next item's entries of each row go
        for (counts, _, _), own, of_own in zip(parts, columns, values, strict=True):
            before = np.cumsum(counts, dtype=np.int64) - counts
            at = np.repeat(begin - before, counts) + np.arange(own.size)
            column[at], value[at] = own, of_own
            begin += counts
    return scipy.sparse.csr_matrix((value, column, indptr), shape=(indptr.size - 1, starts[-1]))


def _join(columns: Sequence[npt.NDArray[Any]], rows: npt.NDArray[Any]) -> None:
    """Write columns (n,) side by side into ``rows`` (n, d)."""
    step = max(1, _CACHED_VALUES // max(1, len(columns)))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        for number, column in enumerate(columns):
            some[:, number] = column[start : start + step]
