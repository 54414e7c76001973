"""The extracted rows of a statement, sorted by group, and the groups as runs of rows."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from grouplearn.data.files.checksums import Damaged
from grouplearn.data.files.own_files import plain_file
from grouplearn.data.files.plain_values import IF_OTHER
from grouplearn.data.lists import LIST_ARRAYS, Lists
from grouplearn.layout.pages import forget_pages

FloatArray = npt.NDArray[np.float64]
#: Single or double precision; equal numbers give equal models, bit for bit.
FeatureArray = npt.NDArray[np.float32] | npt.NDArray[np.float64]
RowNumbers = npt.NDArray[np.int64]
#: What the rows of a group are sorted by.
Order = Literal["hash", "time"]

#: The arrays of a dataset with an entry per row, by field name.
ARRAYS = ("numeric", "codes", "y", "weight", "split")
#: Their allowed types and numbers of axes.
_SHAPES = {
    "numeric": (("f4", "f8"), (2,)),
    "codes": (("i4",), (2,)),
    "y": (("f8",), (1, 2)),
    "weight": (("f8",), (1,)),
    "split": (("i2",), (1,)),
    "bounds": (("i8",), (2,)),
    "entries": (("i4",), (1,)),
    "amounts": (("f8",), (1,)),
}
#: Rows read at a time when a column is copied.
_COLUMN_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class Item:
    """One scalar column that a FEATURES item produces in the extract, and how it becomes feature columns.

    ``kind`` says where it is: ``numeric`` and ``binned`` are a column of ``Dataset.numeric``, ``array`` several adjacent
    ones; ``category``, ``target`` and ``hash`` are columns of ``Dataset.codes``. ``column`` is the (first) index there.
    ``encoder`` names its encoder (see ``data.encoding``). ``impute`` fills missing numeric values first: ``mean``, ``median``
    or a constant. ``scope`` says whether it is fitted per group or on all training rows. ``buckets`` is the number of feature
    columns, if the statement or an array determines it. ``options`` are those that its encoder alone has, by name, in the
    order in which it declares them. ``name`` is what users see.
    """

    name: str
    kind: str
    column: int
    encoder: str = "none"
    impute: Literal["mean", "median"] | float | None = None
    scope: Literal["group", "all"] = "group"
    buckets: int = 0
    options: tuple[tuple[str, float | int | str], ...] = ()

    def option(self, name: str) -> Any:
        """Return the value of an option of its encoder."""
        return dict(self.options)[name]

    def has(self, name: str) -> bool:
        """Return whether an option of its encoder was given, or has a default."""
        return name in dict(self.options)

    @property
    def numbers(self) -> int:
        """How many columns of ``Dataset.numeric`` it takes."""
        return self.buckets if self.kind == "array" else int(self.is_number)

    @property
    def is_number(self) -> bool:
        """Whether it is one column of ``Dataset.numeric``."""
        return self.kind in ("numeric", "binned")

    @property
    def is_numeric(self) -> bool:
        """Whether it is columns of ``Dataset.numeric``."""
        return self.is_number or self.kind == "array"

    @property
    def is_coded(self) -> bool:
        """Whether it is a column of ``Dataset.codes``."""
        return self.is_named or self.kind == "hash"

    @property
    def is_named(self) -> bool:
        """Whether it is a category, whose text is looked up among those of a group."""
        return self.kind in ("category", "target")

    @property
    def is_list(self) -> bool:
        """Whether it is an item of ``Dataset.lists``."""
        return self.kind in ("categories", "hashes", "entries")


class Runs(Sequence[tuple[int, int]]):
    """Half-open runs of dataset rows: entries [first, last) of ``bounds`` (n, 2).

    A CUBE of 12 keys has millions of runs: 16 bytes each in an array that groups share, where a tuple takes 168.
    """

    __slots__ = ("_bounds", "_first", "_last")

    def __init__(self, bounds: RowNumbers, first: int, last: int) -> None:
        self._bounds, self._first, self._last = bounds, first, last

    def __len__(self) -> int:
        return self._last - self._first

    @overload
    def __getitem__(self, place: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[tuple[int, int]]: ...
    def __getitem__(self, place: int | slice) -> tuple[int, int] | Sequence[tuple[int, int]]:
        return tuple(self)[place]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        yield from map(tuple, self._bounds[self._first : self._last].tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Runs, (self._bounds[self._first : self._last], 0, len(self))


def runs_of(bounds: RowNumbers, first: int, last: int) -> Sequence[tuple[int, int]]:
    """Return entries of ``bounds`` (n, 2) as runs; a single one, as for all finest groups, as a tuple."""
    if last - first == 1:
        return ((int(bounds[first, 0]), int(bounds[first, 1])),)
    return Runs(bounds, first, last)


@dataclass(frozen=True, slots=True)
class Group:
    """One group: its level (index of the grouping set), its key values as text (None: NULL or rolled up), its rows.

    ``ranges`` are half-open runs of dataset rows; a parent's runs are its children's. ``checksum`` is the sum of the rows'
    hashes, modulo 2^64: whatever their order, it tells whether a statement reads the same rows later.
    """

    id: int
    level: int
    keys: tuple[str | None, ...]
    ranges: Sequence[tuple[int, int]]
    checksum: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows of the group."""
        return sum(stop - start for start, stop in self.ranges)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Rows sorted by finest group, and within it in ``order``: by a hash of (seed, row), or by time.

    Their order depends only on data and seed. Blocks of them are append-only: later rows are sorted among themselves and make
    new blocks, so that old blocks, and sums over them, stay as they are.

    - ``numeric`` (n, p): NaN is missing; float32 where that holds all columns exactly, else float64.
    - ``codes`` (n, c) int32: indexes into ``dictionaries[j]`` (sorted category texts; empty for hash items), -1 is missing.
    - ``lists``: the items that are lists, or None; their dictionaries come after those of ``codes``.
    - ``y`` (n,) float64, (n, L) for an array label: the value, or the class number in ``classes``; NaN where the label is
    NULL,
      infinite where it is NaN or infinite.
    - ``weight`` (n,); ``split`` (n,) int16: the numbers by which ``data.split.Split`` tells training rows from judging ones.

    Arrays that lie in ``files`` are read-only memory maps.
    """

    numeric: FeatureArray
    codes: npt.NDArray[np.int32]
    y: FloatArray
    weight: FloatArray
    split: npt.NDArray[np.int16]
    dictionaries: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...] = ()
    files: DatasetFiles | None = None
    lists: Lists | None = None
    order: Order = field(default="hash", metadata=IF_OTHER)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.y.shape[0])

    @property
    def label_length(self) -> int:
        """Length of array labels; 1 for others."""
        return 1 if self.y.ndim == 1 else int(self.y.shape[1])

    @property
    def n_bytes(self) -> int:
        """Bytes of the rows, in memory or in files."""
        lists = 0 if self.lists is None else self.lists.nbytes
        return lists + sum(int(getattr(self, name).nbytes) for name in ARRAYS)

    @property
    def array_names(self) -> tuple[str, ...]:
        """The names of all arrays, including those of lists if there are any."""
        return ARRAYS if self.lists is None else (*ARRAYS, *LIST_ARRAYS)

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return one of ``array_names``."""
        found: npt.NDArray[Any] = getattr(self.lists if name in LIST_ARRAYS else self, name)
        return found

    def rows(self, start: int, stop: int) -> Dataset:
        """Return rows [start, stop) without copying them."""
        arrays: dict[str, Any] = {name: getattr(self, name)[start:stop] for name in ARRAYS}
        lists = self.lists and self.lists.rows(slice(start, stop))
        return replace(self, **arrays, lists=lists, files=self.files and self.files.rows(start, stop))

    def dictionary(self, item: Item) -> tuple[str, ...]:
        """Return the texts that an item's codes refer to."""
        return self.dictionaries[item.column + (self.codes.shape[1] if item.is_list else 0)]

    def observed(self, item: Item, rows: RowNumbers | slice) -> tuple[npt.NDArray[Any], Sequence[str]]:
        """Return a one-column item's values in some rows (all entries of lists) and its dictionary, empty for numbers."""
        if item.is_list:
            if self.lists is None:
                raise ValueError("these rows have no lists")
            return self.lists.rows(rows).item(item.column)[1], self.dictionary(item)
        if not item.is_coded:
            return self.column("numeric", item.column, rows), ()
        return self.column("codes", item.column, rows), self.dictionary(item)

    def forget_pages(self, start: int = 0, stop: int | None = None) -> None:
        """Let the operating system free the memory of rows [start, stop) that lie in files; later reads load them again."""
        if self.files is not None:
            for name in ARRAYS:
                forget_pages(getattr(self, name)[start:stop])
            if self.lists is not None:
                self._forget_lists(self.lists.rows(slice(start, stop)))

    def _forget_lists(self, lists: Lists) -> None:
        forget_pages(lists.bounds)
        if lists.bounds.size:
            first, last = int(lists.bounds.min()), int(lists.bounds.max())
            forget_pages(lists.entries[first:last])
            forget_pages(lists.amounts[first:last])

    def has_label(self) -> npt.NDArray[np.bool_]:
        """Return which rows (n,) have a label."""
        return has_label(self.y)

    def validation_error(self, items: Sequence[Item]) -> str | None:
        """Return in words what is invalid in rows for these items: a class or a category without a name; None if nothing
        is."""
        lists, n_lists = self.lists, sum(item.is_list for item in items)
        if (lists is not None) != (n_lists > 0):
            return "there are lists, and no names for them" if lists else "there are names for lists, and no lists"
        every = np.array([len(each) for each in self.dictionaries], np.int64)
        limits, of_lists = every[: every.size - n_lists], every[every.size - n_lists :]
        for item in items:
            own = of_lists if item.is_list else limits
            if item.kind in ("hash", "hashes", "entries") and item.column < own.size:
                own[item.column] = item.buckets
        if self.codes.shape[1] != limits.size:
            return f"there are {self.codes.shape[1]} columns of categories, and names for {limits.size}"
        if lists is not None and (flaw := lists.validation_error(of_lists.tolist())):
            return flaw
        for start in range(0, self.n_rows, _COLUMN_ROWS):
            part = self.rows(start, start + _COLUMN_ROWS)
            if ((part.codes < -1) | (part.codes >= limits)).any():
                return "a category has no name"
            y = part.y[np.isfinite(part.y)]
            if self.classes and not ((y >= 0) & (y < len(self.classes)) & (y == np.floor(y))).all():
                return "a class has no name"
            part.forget_pages()
        return None

    def column(self, name: Literal["numeric", "codes"], column: int, rows: RowNumbers | slice) -> npt.NDArray[Any]:
        """Return a copy of a column of some rows; from files, few rows at a time."""
        array: npt.NDArray[Any] = getattr(self, name)
        if self.files is None:
            return array[rows, column]
        numbers = np.arange(self.n_rows)[rows] if isinstance(rows, slice) else rows
        values = np.empty(numbers.size, array.dtype)
        for start in range(0, numbers.size, _COLUMN_ROWS):
            run = numbers[start : start + _COLUMN_ROWS]
            values[start : start + run.size] = array[run, column]
            self.forget_pages(int(run[0]), int(run[-1]) + 1)
        return values


@dataclass(frozen=True, slots=True)
class DatasetFiles:
    """Rows [start, stop) of a dataset in files; the object is small, and any process of this machine can ``open`` it.

    ``directory`` has one ``.npy`` file per array. Processes that open it share one copy in memory, as far as there is room.
    """

    directory: str
    start: int
    stop: int
    dictionaries: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...] = ()
    has_lists: bool = False
    order: Order = field(default="hash", metadata=IF_OTHER)

    @property
    def array_names(self) -> tuple[str, ...]:
        """The names of the arrays."""
        return (*ARRAYS, *LIST_ARRAYS) if self.has_lists else ARRAYS

    def open(self) -> Dataset:
        """Return the rows, mapped read-only; raises FileNotFoundError after the run that wrote them has ended, and
        Damaged."""
        arrays: dict[str, Any] = {name: self._mapped(name)[self.start : self.stop] for name in ARRAYS}
        lists = None
        if self.has_lists:
            flat = (self._mapped(name, 0) for name in LIST_ARRAYS[1:])
            lists = Lists(self._mapped("bounds")[self.start : self.stop], *flat)
        return Dataset(
            **arrays,
            dictionaries=self.dictionaries,
            classes=self.classes,
            files=self,
            lists=lists,
            order=self.order,
        )

    def _mapped(self, name: str, fewest: int | None = None) -> npt.NDArray[Any]:
        """Return an array of at least as many places as there are rows, or of the ``fewest``."""
        fewest = self.stop if fewest is None else fewest
        path, (kinds, axes) = Path(self.directory, f"{name}.npy"), _SHAPES[name]
        with plain_file(path) as file:  # reading a pipe would block for ever
            try:
                known = np.lib.format.read_magic(file) == (1, 0)
                shape, by_columns, kind = np.lib.format.read_array_header_1_0(file) if known else ((), True, None)
            except Exception:  # any class: numpy evaluates the header as Python
                known, shape, by_columns, kind = False, (), True, None
            begin, size = file.tell(), os.fstat(file.fileno()).st_size
        if not known or kind is None:
            raise Damaged(path, "it is no array of rows")
        allowed = [np.dtype(each) for each in kinds]
        sound = all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in shape)
        if kind not in allowed or len(shape) not in axes or by_columns or not sound or shape[0] < fewest:
            expected = " or ".join(map(str, allowed))
            raise Damaged(path, f"it is an array of {kind} {shape}, not of {fewest} rows of {expected}")
        if begin + math.prod(shape) * kind.itemsize > size:
            raise Damaged(path, "it ends before its rows do")
        return np.asarray(np.memmap(path, kind, "r", begin, shape))

    def rows(self, start: int, stop: int) -> DatasetFiles:
        """Return rows [start, stop), counted from the first of these."""
        first, last, _ = slice(start, stop).indices(self.stop - self.start)
        return replace(self, start=self.start + first, stop=self.start + max(first, last))


def has_label(y: FloatArray) -> npt.NDArray[np.bool_]:
    """Return which of these labels are not NULL."""
    missing = np.isnan(y)
    return np.asarray(~missing if y.ndim == 1 else ~missing.all(axis=1))
