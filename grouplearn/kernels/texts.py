"""Numbers texts, and whole numbers, in the order of first occurrence (``source/rows/texts.cpp``)."""

from __future__ import annotations

import ctypes
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.kernels.library import address, function

Numbers = npt.NDArray[np.int32]
_POINTER, _LONG = ctypes.c_void_p, ctypes.c_int64
#: Bytes per offset of the text types that the kernel reads.
_OFFSETS = {pa.string(): 4, pa.large_string(): 8}
_FEWEST_SLOTS = 1 << 10
#: Entries of a table of whole numbers.
_LONGEST_TABLE = 1 << 20
#: Digits of whole numbers that are sorted as numbers.
_MOST_DIGITS = 17


class Texts:
    """The texts seen so far, with numbers from 0; thread-safe."""

    def __init__(self) -> None:
        self._one_at_a_time = Lock()
        self._n_known = ctypes.c_int64(0)
        self._ends = np.zeros(_FEWEST_SLOTS // 2 + 2, np.int64)
        self._slots = np.zeros((_FEWEST_SLOTS, 2), np.uint64)
        self._content = np.empty(8 * _FEWEST_SLOTS, np.uint8)

    def __len__(self) -> int:
        return self._n_known.value

    def numbered(self, column: pa.Array) -> Numbers:
        """Return the numbers (n,) of a column's texts, -1 for NULL."""
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.type not in _OFFSETS:
            column = column.cast(pa.large_string())
        valid, offsets, content = (buffer.address if buffer else None for buffer in column.buffers())
        return self._numbered(offsets, _OFFSETS[column.type], content, valid, column.offset, len(column))

    def numbered_rows(self, rows: Numbers) -> Numbers:
        """Return the numbers (n,) of rows (n, k), whose bytes are taken as text."""
        rows = np.ascontiguousarray(rows)
        return self._numbered(None, rows.itemsize * rows.shape[1], address(rows), None, 0, len(rows))

    def numbered_values(self, column: pa.Array) -> Numbers:
        """Return the numbers (n,) of a column of int64, whose bytes are taken as text, -1 for NULL."""
        valid, values = (buffer.address if buffer else None for buffer in column.buffers())
        return self._numbered(None, 8, values, valid, column.offset, len(column))

    def _numbered(self, offsets: int | None, width: int, content: int | None, *rows: Any) -> Numbers:
        valid, first, n_rows = rows
        numbers = np.empty(n_rows, np.int32)
        kinds = (
            _POINTER,
            _LONG,
            _POINTER,
            _POINTER,
            _LONG,
            _LONG,
            _POINTER,
            _LONG,
            *[_POINTER] * 2,
            _LONG,
            *[_POINTER] * 2,
        )
        done = 0
        with self._one_at_a_time:
            while n_rows:
                done += function("number_texts", *kinds, returns=_LONG)(
                    *(offsets, width, content, valid, first + done, n_rows - done),
                    *(address(self._slots), len(self._slots), address(self._ends)),
                    *(address(self._content), self._content.size, ctypes.byref(self._n_known)),
                    address(numbers[done:]),
                )
                if done == n_rows:
                    break
                self._grow()
        return numbers

    def _grow(self) -> None:
        if 2 * len(self) >= len(self._slots):
            self._slots = np.zeros((2 * len(self._slots), 2), np.uint64)
            self._ends = np.resize(self._ends, len(self._slots) // 2 + 2)
            function("fill_slots", _POINTER, _POINTER, _LONG, _POINTER, _LONG)(
                *(address(self._ends), address(self._content), len(self), address(self._slots), len(self._slots))
            )
        else:
            self._content = np.resize(self._content, 2 * self._content.size)

    def texts(self) -> pa.Array:
        """Return the texts by number."""
        offsets, content = (pa.py_buffer(each.copy()) for each in (self._ends[: len(self) + 1], self._content))
        return pa.LargeStringArray.from_buffers(len(self), offsets, content)

    def rows(self, width: int) -> Numbers:
        """Return the numbered rows (m, width) by number."""
        return self._content[: self._ends[len(self)]].view(np.int32).reshape(len(self), width)

    def ranks(self) -> tuple[Numbers, pa.Array]:
        """Return each number's rank among the sorted texts, with -1 as last entry for NULL; and the sorted texts."""
        texts = self.texts()
        order = pc.sort_indices(texts).to_numpy()  # sorting UTF-8 sorts characters
        return _ranks(order), texts.take(pa.array(order))


class WholeNumbers:
    """As ``Texts`` with the texts of whole numbers, of which each is made once; thread-safe.

    Numbers that are close to each other are looked up in a table, others as texts of eight bytes are.
    """

    def __init__(self) -> None:
        self._one_at_a_time = Lock()
        self._apart: Texts | None = None
        self._values = np.empty(0, np.int64)  # by number
        self._base = 0
        self._table = np.empty(0, np.int32)  # the number of ``_base`` and of those after it, -1 for none

    def __len__(self) -> int:
        return len(self._values if self._apart is None else self._apart)

    def numbered(self, column: pa.Array) -> Numbers:
        """Return the numbers (n,) of a column of a type of whole numbers that int64 holds, -1 for NULL."""
        with self._one_at_a_time:
            if self._apart is None:
                found = pc.min_max(column).as_py()
                if found["min"] is None:
                    return np.full(len(column), -1, np.int32)
                if self._has_room(found["min"], found["max"]):
                    return self._looked_up(column)
                self._apart = Texts()
                self._apart.numbered_values(pa.array(self._values))
            apart = self._apart
        return apart.numbered_values(column.cast(pa.int64()))

    def _has_room(self, low: int, high: int) -> bool:
        """Make the table reach from ``low`` to ``high``, unless it were too long."""
        if self._table.size:
            low, high = min(low, self._base), max(high, self._base + self._table.size - 1)
        if high - low >= _LONGEST_TABLE:
            return False
        if high - low >= self._table.size:
            table = np.full(high - low + 1, -1, np.int32)
            table[self._base - low :][: self._table.size] = self._table
            self._base, self._table = low, table
        return True

    def _looked_up(self, column: pa.Array) -> Numbers:
        given: npt.NDArray[Any] = column.fill_null(self._base).to_numpy(zero_copy_only=False)
        place = given.astype(np.int64) - self._base
        numbers: Numbers = self._table[place]
        null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else np.zeros(len(column), np.bool_)
        met = np.zeros(self._table.size, np.bool_)
        met[place[(numbers < 0) & ~null]] = True
        unknown = np.flatnonzero(met)
        if unknown.size:
            self._table[unknown] = np.arange(len(self), len(self) + unknown.size, dtype=np.int32)
            self._values = np.append(self._values, unknown + self._base)
            numbers = self._table[place]
        numbers[null] = -1
        return numbers

    def ranks(self) -> tuple[Numbers, pa.Array]:
        """Return each number's rank among the sorted texts, with -1 as last entry for NULL; and the sorted texts."""
        values = self._values
        if self._apart is not None:
            values = np.ascontiguousarray(self._apart.rows(2)).view(np.int64).ravel()
        order = _by_text(values)
        return _ranks(order), pa.array(values[order]).cast(pa.large_string())


def _ranks(order: npt.NDArray[np.int64]) -> Numbers:
    ranks = np.full(order.size + 1, -1, np.int32)
    ranks[order] = np.arange(order.size, dtype=np.int32)
    return ranks


def _by_text(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the order of the texts of distinct whole numbers: a minus comes before digits, 10 between 1 and 2."""
    negative = values < 0
    size = np.where(negative, -values.view(np.uint64), values.view(np.uint64))
    tens = 10 ** np.arange(20, dtype=np.uint64)
    digits = np.maximum(np.searchsorted(tens, size, side="right"), 1)
    most = int(digits.max(initial=1))
    if most > _MOST_DIGITS:
        in_order: npt.NDArray[np.int64] = pc.sort_indices(pa.array(values).cast(pa.string())).to_numpy()
        return in_order
    # Digits from the left, then how many they are; below 0 for negative numbers.
    key = (size * tens[most - digits]).astype(np.int64) << 5 | digits
    return np.argsort(np.where(negative, key + np.iinfo(np.int64).min, key))
