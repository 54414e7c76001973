"""Batches of rows become the arrays of a dataset, sorted by finest group and hash: in memory, or in files.

Rows that stay in memory come as they are stored, and each is put where it belongs: quicker than to have them sorted, which
DuckDB does where they are written to files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.data import arrays
from grouplearn.data.dataset import FloatArray, Item
from grouplearn.plan.row_order import IntArray, Keys, RowOrder

#: Values transposed at a time: columns of Arrow become rows of a dataset while both fit the cache.
_TRANSPOSED_VALUES = 1 << 18
#: Arrays that nobody needs once the split is drawn, by name.
ROUNDED, EXACT = "split_rounded", "split_exact"
#: Values looked at together where whole arrays would not fit in memory.
_CHUNK_VALUES = 1 << 20


class NewArray(Protocol):
    """Makes an array by name, shape and type."""

    def __call__(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike, /) -> npt.NDArray[Any]:
        """Return an array whose values do not matter."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of a batch are: keys ``k0, k1, ...``, items ``x0, x1, ...``, the label ``y``, the hash ``h``.

    ``classes`` are the texts that a class label takes (None: the label is a number). ``weighted``: there is a column
    ``w``. ``marked``: there is a column ``v``, true in rows held out. ``drawn``: there are columns ``s`` and ``t``, the
    rounded and the exact hash that a split is drawn by. ``label_length`` is that of labels that are arrays.
    """

    n_keys: int
    items: tuple[Item, ...]
    classes: tuple[str, ...] | None
    weighted: bool
    marked: bool
    drawn: bool = False
    label_length: int = 0

    @property
    def n_numeric(self) -> int:
        """Number of columns of ``Dataset.numeric``."""
        return sum(item.numbers for item in self.items)

    @property
    def n_codes(self) -> int:
        """Number of columns of ``Dataset.codes``."""
        return sum(not item.numbers for item in self.items)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the dataset."""
        return 8 * self.n_numeric + 4 * self.n_codes + 8 * max(1, self.label_length) + 10


@dataclass(slots=True)
class _Texts:
    """Numbers for the texts of a category column in the order in which they are met."""

    numbers: dict[str, int] = field(default_factory=dict)

    def coded(self, column: Any) -> npt.NDArray[np.int32]:
        """Return the number of each text, -1 for NULL."""
        encoded = pc.dictionary_encode(column)
        met = [self.numbers.setdefault(text, len(self.numbers)) for text in encoded.dictionary.to_pylist()]
        table = np.array([*met, -1], dtype=np.int32)  # -1 looks up the last entry
        coded: npt.NDArray[np.int32] = table[pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)]
        return coded

    def ranks(self) -> npt.NDArray[np.int32]:
        """Return the place of each number's text in the sorted dictionary; the last entry is -1, for NULL."""
        ranks = np.empty(len(self.numbers) + 1, dtype=np.int32)
        ranks[[self.numbers[text] for text in sorted(self.numbers)]] = np.arange(len(self.numbers), dtype=np.int32)
        ranks[-1] = -1
        return ranks


class SortedRows:
    """The arrays of ``n_rows`` rows, filled batch by batch; rows beyond are counted and dropped.

    ``in_order``: batches come sorted. After ``arrange``, ``leaves`` are the key texts of the finest groups and ``offsets``
    (one longer) their first rows; ``finish`` ends it.
    """

    def __init__(self, layout: Layout, n_rows: int, new: NewArray, in_order: bool) -> None:
        self._layout, self._room, self._sorted = layout, n_rows, in_order
        self._waiting: list[pa.RecordBatch] = []
        self.numeric: FloatArray = new("numeric", (n_rows, layout.n_numeric), np.float64)
        self.codes: npt.NDArray[np.int32] = new("codes", (n_rows, layout.n_codes), np.int32)
        label = (layout.label_length,) if layout.label_length else ()
        self.y: FloatArray = new("y", (n_rows, *label), np.float64)
        self.weight: FloatArray = new("weight", (n_rows,), np.float64)
        self.split: npt.NDArray[np.int16] = new("split", (n_rows,), np.int16)
        drawn = (n_rows if layout.drawn else 0,)
        #: The rounded and the exact hash of each row of FROM.
        self.hashes = (new(ROUNDED, drawn, np.uint64), new(EXACT, drawn, np.uint64))
        self._texts = {item.column: _Texts() for item in layout.items if item.kind == "category"}
        self._taking = Lock()  # a batch, or a number for a text: by one thread at a time
        self.n_read = 0
        self.leaves: list[Keys] = []
        self._firsts: list[npt.NDArray[np.int64]] = []
        self._last: tuple[Keys, int] | None = None
        #: Rows whose finest group and hash are those of the row before: equal rows but for a collision of the hash.
        self._tied = np.zeros(n_rows, dtype=np.bool_)

    def take(self, batch: pa.RecordBatch) -> None:
        """Put the rows of ``batch`` after those taken before, or keep them until all are there."""
        start, self.n_read = self.n_read, self.n_read + batch.num_rows
        if self.n_read > self._room or not batch.num_rows:
            return
        if not self._sorted:
            self._waiting.append(batch)
            return
        rows = slice(start, self.n_read)
        self._find_leaves(batch, start)
        self._put(batch, rows)

    def arrange(self, threads: int = 1) -> None:
        """Put all rows that were taken unsorted where they belong, several batches at a time."""
        batches, self._waiting = self._waiting, []
        if not batches or self.n_read != self._room:
            return
        numbers = range(self._layout.n_keys)
        keys = [pa.chunked_array([batch.column(f"k{number}") for batch in batches]) for number in numbers]
        order = RowOrder.of(keys, np.concatenate([batch.column("h").to_numpy() for batch in batches]))
        self.leaves, self._firsts, self._tied = list(order.leaves), [order.firsts], order.tied
        places = iter(np.split(order.place, np.cumsum([batch.num_rows for batch in batches])[:-1]))
        batches.reverse()

        def put_one(_: int) -> None:
            with self._taking:
                batch, rows = batches.pop(), next(places)
            self._put(batch, rows)  # whose memory goes back now

        if len(batches) == 1:
            put_one(0)
            return
        with ThreadPoolExecutor(min(threads, len(batches)), "grouplearn-rows") as pool:
            list(pool.map(put_one, range(len(batches))))

    def _put(self, batch: pa.RecordBatch, rows: slice | IntArray) -> None:
        self._put_items(batch, rows)
        self.y[rows] = self._labels(batch.column("y"))
        self.weight[rows] = _floats(batch.column("w")) if self._layout.weighted else 1.0
        self.split[rows] = batch.column("v").to_numpy(zero_copy_only=False) if self._layout.marked else 0
        for name, hashes in zip("st", self.hashes if self._layout.drawn else (), strict=False):
            hashes[rows] = batch.column(name).to_numpy()

    def _labels(self, label: Any) -> FloatArray:
        classes, length = self._layout.classes, self._layout.label_length
        if length:
            values = arrays.numbers(label, length, byte_scale=1.0)
            return values if classes is None else arrays.class_numbers(values, classes)
        found = _floats(label if classes is None else _class_numbers(label, classes))
        # A label that is no number, as is told from none at all.
        odd = np.isnan(found) & label.is_valid().to_numpy(zero_copy_only=False)
        return np.where(odd, np.inf, found) if odd.any() else found

    def finish(self, forget_pages: Callable[[], None] | None = None) -> None:
        """Number category texts by their place in the sorted dictionary, and put equal hashes in order.

        ``forget_pages`` is called now and then where the arrays are files.
        """
        ranks = {column: texts.ranks() for column, texts in self._texts.items()}
        for rows in _chunks(self._room) if ranks else []:
            for column, rank in ranks.items():
                self.codes[rows, column] = rank[self.codes[rows, column]]
            if forget_pages is not None:
                forget_pages()
        self._settle_ties()

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """First row of each finest group, and the number of rows."""
        return np.concatenate([*self._firsts, [self.n_read]]).astype(np.int64)

    @property
    def dictionaries(self) -> tuple[tuple[str, ...], ...]:
        """Return the sorted texts of each column of ``codes``; none for hash items."""
        coded = (item.column for item in self._layout.items if not item.numbers)
        return tuple(tuple(sorted(self._texts[column].numbers)) if column in self._texts else () for column in coded)

    def _find_leaves(self, batch: pa.RecordBatch, start: int) -> None:
        keys = [batch.column(f"k{number}") for number in range(self._layout.n_keys)]
        hashes = batch.column("h").to_numpy()
        first = np.zeros(batch.num_rows, dtype=np.bool_)
        for key in keys:
            codes = pc.fill_null(pc.dictionary_encode(key).indices, -1).to_numpy(zero_copy_only=False)
            first[1:] |= codes[1:] != codes[:-1]
        before, self._last = self._last, (_keys_at(keys, -1), hashes[-1])
        first[0] = before is None or before[0] != _keys_at(keys, 0)
        self._tied[start + 1 : start + batch.num_rows] = (hashes[1:] == hashes[:-1]) & ~first[1:]
        self._tied[start] = before is not None and not first[0] and before[1] == hashes[0]
        positions = np.flatnonzero(first)
        texts = [key.take(pa.array(positions)).to_pylist() for key in keys]
        self.leaves += zip(*texts, strict=True) if keys else [()] * positions.size
        self._firsts.append(positions + start)

    def _put_items(self, batch: pa.RecordBatch, rows: slice | IntArray) -> None:
        numbers: dict[int, npt.NDArray[Any]] = {}
        for position, item in enumerate(self._layout.items):
            column = batch.column(f"x{position}")
            if item.kind == "numeric":
                numbers[item.column] = _numbers(column)
            elif item.kind == "array":
                numbers[item.column] = arrays.numbers(column, item.buckets)
            elif item.kind == "hash":
                self.codes[rows, item.column] = pc.fill_null(column, -1).to_numpy(zero_copy_only=False)
            else:
                with self._taking:
                    coded = self._texts[item.column].coded(column)
                self.codes[rows, item.column] = coded
        self._put_numbers(numbers, rows, batch.num_rows)

    def _put_numbers(self, columns: dict[int, npt.NDArray[Any]], rows: slice | IntArray, n_rows: int) -> None:
        """Transpose columns in pieces that fit the cache, of single precision where all are."""
        step = max(1, _TRANSPOSED_VALUES // max(1, self._layout.n_numeric))
        single = all(values.dtype == np.float32 for values in columns.values())
        piece = np.empty((self._layout.n_numeric, min(step, n_rows)), np.float32 if single else np.float64)
        for low in range(0, n_rows, step):
            high = min(low + step, n_rows)
            part = piece[:, : high - low]
            for place, values in columns.items():
                if values.ndim == 2:
                    part[place : place + values.shape[1]] = values[low:high].T
                else:
                    part[place] = values[low:high]
            self.numeric[slice(rows.start + low, rows.start + high) if isinstance(rows, slice) else rows[low:high]] = (
                part.T
            )

    def _settle_ties(self) -> None:
        """Order rows of one group and one hash by content; where they are equal, as nearly always, nothing moves."""
        starts, stops = _runs(self._tied)
        unordered: set[int] = set()
        for rows in _chunks(self._room, max(1, _CHUNK_VALUES // (self.numeric.shape[1] + 1))):
            tied = rows.start + np.flatnonzero(self._tied[rows])
            unordered.update((np.searchsorted(starts, tied[self._differ(tied, tied - 1)]) - 1).tolist())
        for run in sorted(unordered):
            self._sort(slice(starts[run], stops[run]))

    def _differ(self, rows: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        differ = np.zeros(rows.size, dtype=np.bool_)
        for bits in self._bits():
            unequal = bits[rows] != bits[others]
            differ |= unequal.any(axis=1) if unequal.ndim == 2 else unequal
        return differ

    def _sort(self, rows: slice) -> None:
        """Sort rows by their bits: any order will do that content alone decides."""
        order = np.lexsort([column for bits in self._bits() for column in np.atleast_2d(bits[rows].T)])
        hashes = self.hashes if self._layout.drawn else ()
        for array in (self.numeric, self.codes, self.y, self.weight, self.split, *hashes):
            array[rows] = array[rows][order]

    def _bits(self) -> Sequence[npt.NDArray[Any]]:
        """Return the arrays as whole numbers, in which NaN equals NaN and 0.0 is not -0.0."""
        floats = [array.view(np.int64) for array in (self.numeric, self.y, self.weight)]
        return [*floats, self.codes, self.split]


def _chunks(n_rows: int, step: int = _CHUNK_VALUES) -> list[slice]:
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def _runs(tied: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return first and past-the-last rows of the runs in which every row but the first is tied to the one before."""
    starts = np.flatnonzero(~tied[:-1] & tied[1:])
    stops = np.flatnonzero(tied[:-1] & ~tied[1:]) + 1
    return starts, np.append(stops, tied.size)[: starts.size]


def _keys_at(keys: Sequence[Any], row: int) -> Keys:
    return tuple(key[row].as_py() for key in keys)


def _floats(column: Any) -> FloatArray:
    return _numbers(column).astype(np.float64, copy=False)


def _numbers(column: Any) -> npt.NDArray[Any]:
    """Return numbers of whatever type, NULL as NaN."""
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if column.null_count:
        values = np.where(column.is_null().to_numpy(zero_copy_only=False), np.nan, values)
    return values


def _class_numbers(column: Any, classes: Sequence[str]) -> Any:
    return pc.index_in(column, value_set=pa.array(classes, type=pa.string()))
