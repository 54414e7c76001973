"""Stores batches of rows in a dataset's arrays, sorted by finest group and hash: in memory or in files.

For memory, rows arrive unsorted and each is put in its place, which is faster than a sort; for files, DuckDB sorts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.data import arrays
from grouplearn.data.dataset import FeatureArray, FloatArray, Item
from grouplearn.extract.finest_groups import FinestGroups
from grouplearn.extract.list_rows import ListRows
from grouplearn.extract.row_order import HashArray, IntArray, LeafNumbers, names, places
from grouplearn.interrupting import run_in_parallel
from grouplearn.kernels.number_columns import NumberReader
from grouplearn.kernels.texts import Numbers, Texts, WholeNumbers

#: Temporary arrays for drawing the split, by name.
ROUNDED, EXACT = "split_rounded", "split_exact"
#: Values processed at a time, where temporary arrays of all would not fit in memory.
_CHUNK_VALUES = 1 << 20
#: The texts of numbers that are no class: their rows have a label that cannot be learned.
_NO_CLASS = ("nan", "inf", "-inf")


class NewArray(Protocol):
    """Makes an array by name, shape and type."""

    def __call__(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike, /) -> npt.NDArray[Any]:
        """Return an uninitialised array."""
        ...


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """The columns of a batch: keys ``k0, k1, ...``, items ``x0, x1, ...``, the label ``y``, the hash ``h``.

    ``classes`` are a class label's texts (None: the label is a number). ``weighted``: there is a column ``w``. ``marked``:
    there is a column ``v``, true for held-out rows. ``drawn``: there are columns ``s`` and ``t``, the rounded and exact
    hashes for drawing a split. ``label_length`` is the length of array labels. ``single``: FLOAT holds all items' numbers.
    Lists have ``n_entries`` entries in ``n_rows`` rows. ``whole`` says which items come as whole numbers in place of texts.
    """

    n_keys: int
    items: tuple[Item, ...]
    whole: tuple[bool, ...]
    classes: tuple[str, ...] | None
    weighted: bool
    marked: bool
    drawn: bool = False
    label_length: int = 0
    single: bool = False
    n_entries: int = 0
    n_rows: int = 0

    @property
    def n_numeric(self) -> int:
        """Number of columns of ``Dataset.numeric``."""
        return sum(item.numbers for item in self.items)

    @property
    def numeric_type(self) -> np.dtype[Any]:
        """Type of ``Dataset.numeric``."""
        return np.dtype(np.float32 if self.single else np.float64)

    @property
    def n_codes(self) -> int:
        """Number of columns of ``Dataset.codes``."""
        return sum(item.is_coded for item in self.items)

    @property
    def lists(self) -> tuple[tuple[int, Item], ...]:
        """The list items with their numbers."""
        return tuple((number, item) for number, item in enumerate(self.items) if item.is_list)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the dataset."""
        lists = self.lists
        each = 12 if any(item.kind == "entries" for _, item in lists) else 4
        of_lists = 8 * (len(lists) + 1) + each * -(-self.n_entries // max(1, self.n_rows)) if lists else 0
        numbers = self.numeric_type.itemsize * self.n_numeric + 8 * max(1, self.label_length)
        return numbers + 4 * self.n_codes + of_lists + 10


class SortedRows:
    """The arrays of ``n_rows`` rows, filled batch by batch; extra rows are counted and dropped.

    ``in_order``: batches come sorted. After ``arrange``, ``leaves`` are the finest groups; ``finish`` completes the arrays.
    """

    def __init__(self, layout: BatchLayout, n_rows: int, new: NewArray, in_order: bool) -> None:
        self._layout, self._room, self._sorted = layout, n_rows, in_order
        self._waiting: list[pa.RecordBatch] = []
        self.numeric: FeatureArray = new("numeric", (n_rows, layout.n_numeric), layout.numeric_type)
        self.codes: npt.NDArray[np.int32] = new("codes", (n_rows, layout.n_codes), np.int32)
        label = (layout.label_length,) if layout.label_length else ()
        self.y: FloatArray = new("y", (n_rows, *label), np.float64)
        self.weight: FloatArray = new("weight", (n_rows,), np.float64)
        self.split: npt.NDArray[np.int16] = new("split", (n_rows,), np.int16)
        drawn = (n_rows if layout.drawn else 0,)
        #: The rounded and the exact hash of each row of FROM.
        self.hashes = (new(ROUNDED, drawn, np.uint64), new(EXACT, drawn, np.uint64))
        listed = layout.lists
        self.lists = ListRows(listed, n_rows, layout.n_entries, new) if listed else None
        self._texts: dict[int, Texts | WholeNumbers] = {
            item.column: WholeNumbers() if whole else Texts()
            for item, whole in zip(layout.items, layout.whole, strict=True)
            if item.is_named
        }
        self._dictionaries: dict[int, tuple[str, ...]] = {}
        self._of_lists: dict[int, tuple[str, ...]] = {}
        self.n_read = 0
        #: A class that was not counted.
        self.stray: str | None = None
        self._numbers = LeafNumbers(layout.n_keys)
        #: The sum of the rows' hashes of each leaf, modulo 2^64.
        self._sums = np.zeros(1, np.uint64)
        #: Each batch's leaves: per row, or for sorted batches per run; runs begin at ``_firsts``.
        self._leaves: list[Numbers] = []
        self._firsts: list[IntArray] = []
        self._last: tuple[int, int] | None = None
        nothing = np.empty((0, layout.n_keys), np.int32), np.zeros(0, np.uint64)
        self.leaves = FinestGroups((), np.zeros(1, np.int64), *nothing)
        #: Rows with the finest group and hash of the row before: equal rows, except for hash collisions.
        self._tied = np.zeros(n_rows, dtype=np.bool_)

    def take(self, batch: pa.RecordBatch) -> None:
        """Store the rows of ``batch`` after earlier ones, or keep them until all have arrived."""
        start, self.n_read = self.n_read, self.n_read + batch.num_rows
        if self.n_read > self._room or not batch.num_rows:
            return
        keys = [batch.column(f"k{number}") for number in range(self._layout.n_keys)]
        leaves = self._numbers.numbered(keys, batch.num_rows)
        self._add_hashes(leaves, _hashes(batch))
        if self._sorted:
            self._find_runs(batch, leaves, start)
            if self.lists is not None:
                self.lists.count(batch, slice(start, self.n_read))
                self.lists.settle(slice(start, self.n_read))
            self._put(batch, start)
        else:
            self._leaves.append(leaves)
            self._waiting.append(batch)

    def _add_hashes(self, leaves: Numbers, hashes: HashArray) -> None:
        missing = int(leaves.max()) + 1 - self._sums.size
        if missing > 0:
            self._sums = np.concatenate([self._sums, np.zeros(missing + self._sums.size, np.uint64)])
        np.add.at(self._sums, leaves, hashes)

    def arrange(self, threads: int = 1) -> None:
        """Put all unsorted rows in their places, several batches at a time; then find the leaves."""
        batches, self._waiting = self._waiting, []
        if self.n_read != self._room:
            return
        codes, texts = self._numbers.ordered()
        if batches:
            order = np.lexsort(codes.T[::-1]) if codes.size else np.arange(len(codes))
            found, order = places(self._leaves, [_hashes(batch) for batch in batches], order, threads)
            self._tied, offsets = found.tied, found.start
            starts = accumulate((batch.num_rows for batch in batches), initial=0)
            waiting = list(zip(batches, starts, strict=False))
            if self.lists is not None:
                for batch, start in waiting:
                    self.lists.count(batch, found.place[start : start + batch.num_rows])
                self.lists.settle(slice(0, self._room))
            batches.clear()
            # A batch's memory is freed as soon as it is stored.
            run_in_parallel(lambda _: self._put(*waiting.pop(), found.place), range(len(waiting)), threads)
        else:
            order = np.concatenate([np.empty(0, np.int32), *self._leaves])
            offsets = np.concatenate([*self._firsts, [self.n_read]])
        self.leaves = FinestGroups(names(codes[order], texts), offsets, codes[order], self._sums[order])
        if self.lists is not None:
            self.lists.close()

    def _find_runs(self, batch: pa.RecordBatch, leaves: Numbers, start: int) -> None:
        """Record the leaves of a sorted batch's rows, where they begin, and which rows are tied."""
        hashes = _hashes(batch)
        first = np.ones(batch.num_rows, dtype=np.bool_)
        first[1:] = leaves[1:] != leaves[:-1]
        before, self._last = self._last, (int(leaves[-1]), int(hashes[-1]))
        first[0] = before is None or before[0] != leaves[0]
        self._tied[start + 1 : self.n_read] = (hashes[1:] == hashes[:-1]) & ~first[1:]
        self._tied[start] = not first[0] and before is not None and before[1] == hashes[0]
        positions = np.flatnonzero(first)
        self._leaves.append(leaves[positions])
        self._firsts.append(positions + start)

    def _put(self, batch: pa.RecordBatch, start: int, place: IntArray | None = None) -> None:
        """Store a batch's rows, the first of which arrived at ``start``: at their ``place``, or in order of arrival."""
        came = slice(start, start + batch.num_rows)
        rows = came if place is None else place[came]
        self._put_items(batch, rows)
        if self.lists is not None:
            self.lists.put(batch, rows)
        if self._layout.weighted:
            self.weight[rows] = _floats(batch.column("w"))
        else:
            self.weight[came] = 1.0
        self.y[rows] = self._labels(batch.column("y"), self.weight[rows])
        if self._layout.marked:
            self.split[rows] = batch.column("v").to_numpy(zero_copy_only=False)
        else:
            self.split[came] = 0
        for name, hashes in zip("st", self.hashes if self._layout.drawn else (), strict=False):
            hashes[rows] = batch.column(name).to_numpy()

    def _put_items(self, batch: pa.RecordBatch, rows: slice | IntArray) -> None:
        numeric: dict[str, int] = {}
        # A row's codes are written at once: rows that go elsewhere are far from each other.
        codes = self.codes[rows] if isinstance(rows, slice) else np.empty((len(rows), self._layout.n_codes), np.int32)
        for position, item in enumerate(self._layout.items):
            name = f"x{position}"
            if item.is_number:
                numeric[name] = item.column
            if item.is_number or item.is_list:
                continue
            column = batch.column(name)
            if item.kind == "array":
                values = arrays.numbers(column, item.buckets)
                self.numeric[rows, item.column : item.column + item.buckets] = values
            elif item.kind == "hash":
                codes[:, item.column] = pc.fill_null(column, -1).to_numpy(zero_copy_only=False)
            else:
                codes[:, item.column] = self._texts[item.column].numbered(column)
        if not isinstance(rows, slice):
            self.codes[rows] = codes
        fields = [batch.schema.get_field_index(name) for name in numeric]
        reader = NumberReader(pa.struct(list(batch.schema)), fields, [*numeric.values()])
        if isinstance(rows, slice):
            reader.read(batch, self.numeric[rows])
        else:
            reader.read(batch, self.numeric, rows)

    def _labels(self, label: Any, weight: FloatArray) -> FloatArray:
        classes, length = self._layout.classes, self._layout.label_length
        if length:
            values = arrays.numbers(label, length, byte_scale=1.0)
            return values if classes is None else arrays.class_numbers(values, classes)
        found = _floats(label if classes is None else _class_numbers(label, classes))
        # A label that is NaN, as opposed to NULL.
        odd = np.isnan(found) & label.is_valid().to_numpy(zero_copy_only=False)
        if not odd.any():
            return found
        if classes is not None:
            strays = label.filter(pa.array(odd & (weight != 0)))  # a class whose rows all have weight 0 is none
            self.stray = next((text for text in strays.to_pylist() if text not in _NO_CLASS), self.stray)
        return np.where(odd, np.inf, found)

    def finish(self, forget_pages: Callable[[], None] | None = None) -> None:
        """Renumber category texts by their place in the sorted dictionary, and order rows with equal hashes.

        ``forget_pages`` is called now and then if the arrays are files.
        """
        ranks = {}
        for column, texts in self._texts.items():
            ranks[column], in_order = texts.ranks()
            self._dictionaries[column] = tuple(in_order.to_pylist())
        for rows in _chunks(self._room) if ranks else []:
            for column, rank in ranks.items():
                self.codes[rows, column] = rank[self.codes[rows, column]]  # -1 reads the last entry
            if forget_pages is not None:
                forget_pages()
        if self.lists is not None:
            self._of_lists = self.lists.finish(_chunks(self._room), forget_pages)
        self._settle_ties()

    @property
    def dictionaries(self) -> tuple[tuple[str, ...], ...]:
        """Return the sorted texts of each column of ``codes``, none for hash items; then those of lists."""
        codes = [self._dictionaries.get(item.column, ()) for item in self._layout.items if item.is_coded]
        return (*codes, *(self._of_lists.get(item.column, ()) for _, item in self._layout.lists))

    def _settle_ties(self) -> None:
        """Order rows of one group and hash by content; nearly always they are equal and nothing moves."""
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
        """Sort rows by their bits: any order that depends only on content will do."""
        order = np.lexsort([column for bits in self._bits() for column in np.atleast_2d(bits[rows].T)])
        hashes = self.hashes if self._layout.drawn else ()
        bounds = () if self.lists is None else (self.lists.lists.bounds,)
        for array in (self.numeric, self.codes, self.y, self.weight, self.split, *hashes, *bounds):
            array[rows] = array[rows][order]

    def _bits(self) -> Sequence[npt.NDArray[Any]]:
        """Return the arrays as integers, in which NaN equals NaN and 0.0 differs from -0.0."""
        # Single-precision numbers have the same order as the doubles that they equal.
        numeric = self.numeric.view(np.int32 if self._layout.single else np.int64)
        return [numeric, self.y.view(np.int64), self.weight.view(np.int64), self.codes, self.split]


def _chunks(n_rows: int, step: int = _CHUNK_VALUES) -> list[slice]:
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def _runs(tied: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return [first, last) of the runs in which every row but the first is tied to the one before."""
    starts = np.flatnonzero(~tied[:-1] & tied[1:])
    stops = np.flatnonzero(tied[:-1] & ~tied[1:]) + 1
    return starts, np.append(stops, tied.size)[: starts.size]


def _hashes(batch: pa.RecordBatch) -> HashArray:
    hashes: HashArray = batch.column("h").to_numpy().astype(np.uint64, copy=False)
    return hashes


def _floats(column: Any) -> FloatArray:
    return _numbers(column).astype(np.float64, copy=False)


def _numbers(column: Any) -> npt.NDArray[Any]:
    """Return numbers of any type, NULL as NaN."""
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if column.null_count:
        values = np.where(column.is_null().to_numpy(zero_copy_only=False), np.nan, values)
    return values


def _class_numbers(column: Any, classes: Sequence[str]) -> Any:
    return pc.index_in(column, value_set=pa.array(classes, type=pa.string()))
