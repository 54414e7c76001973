"""Checks that Arrow arrays received as bytes stay within them, as ``udfs/native/channel/arrow_checks.cpp`` does.

Arrow trusts C structures: an offset past the end of a buffer would read other memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grouplearn.frontends.native.frames import Malformed

#: Deepest nesting; Arrow's reader of C structures has the same limit.
DEEPEST = 64
#: Largest count, as counts are added and multiplied by widths.
LONGEST = (1 << 31) - 1
_WIDTHS = dict(zip("cCsSeiIflLg", (1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8), strict=True))
_WIDTHS |= {"tdD": 4, "tdm": 8, "tts": 4, "ttm": 4, "ttu": 8, "ttn": 8, "tiM": 4, "tiD": 8, "tin": 16}
_INDICES = dict(zip("cCsSiIlL", ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"), strict=True))
_OFFSETS = {"u": "i4", "z": "i4", "+l": "i4", "+m": "i4", "U": "i8", "Z": "i8", "+L": "i8"}
_LIST_VIEWS = {"+vl": "i4", "+vL": "i8"}
_VIEWS = ("vu", "vz")
#: Bytes of a string view that are stored inline; a longer text is in a buffer.
_INLINE = 12


@dataclass(frozen=True, slots=True)
class ArrowLayout:
    """A type by Arrow's format string, with its children."""

    format: str
    children: tuple[ArrowLayout, ...]
    dictionary: ArrowLayout | None

    def __post_init__(self) -> None:
        """Raise Malformed for an invalid or unsupported type."""
        one = (self.format in _OFFSETS and self.format[0] == "+") or self.format in _LIST_VIEWS or self._is_fixed_list
        some = self.format == "+s" or self.is_union
        _check(len(self.children) == 1 if one else bool(self.children) == some, "a type with other children")
        members = ",".join(map(str, range(len(self.children))))
        _check(not self.is_union or self.format == f"+us:{members}", "members that are not numbered from 0")
        if self.format == "+m":
            (entry,) = self.children
            _check(entry.format == "+s" and len(entry.children) == 2, "a map without keys and values")
        _check(self.dictionary is None or self.format in _INDICES, "a dictionary without indices")
        known = self.format in _OFFSETS or self.format in _VIEWS or self.format in ("n", "b")
        _check(one or some or known or width(self.format) > 0, "a type that is not taken")

    @property
    def is_union(self) -> bool:
        """Whether it is a sparse union: each row names a member, and all members have all rows."""
        return self.format.startswith("+us:")

    @property
    def _is_fixed_list(self) -> bool:
        return self.format.startswith("+w:") and self.format[3:].isdecimal()

    @property
    def elements(self) -> int:
        """How many elements each row has in its children."""
        return int(self.format[3:]) if self._is_fixed_list else 1

    def has_buffers(self, count: int) -> bool:
        """Return whether arrays of the type have so many buffers."""
        if self.format in _VIEWS:
            return 3 <= count <= LONGEST
        if self.format == "n":
            return count == 0
        if self.format == "+s" or self.is_union or self._is_fixed_list:
            return count == 1
        return count == (3 if self.format in ("u", "z", "U", "Z", *_LIST_VIEWS) else 2)


def width(kind: str) -> int:
    """Return the bytes per value of a fixed-width type, by Arrow's format string; 0 for other types."""
    match kind[:1]:
        case "w":
            return int(kind[2:]) if kind[2:].isdecimal() and len(kind) < 12 else 0
        case "d":
            numbers = kind[2:].split(",")
            return {"32": 4, "64": 8, "128": 16}.get(numbers[2], 0) if len(numbers) > 2 else 16
        case "t":
            return _WIDTHS.get(kind, 8)  # for timestamps and durations, unit and time zone follow the letter
    return _WIDTHS.get(kind, 0)


def fixed_bytes(layout: ArrowLayout, rows: int, number: int) -> int:
    """Return the least size of a buffer, not counting text and the buffers of its sizes."""
    if layout.is_union:
        return rows
    if number == 0 or layout.format == "b":
        return -(-rows // 8)
    if layout.format in _OFFSETS:
        return (rows + 1) * np.dtype(_OFFSETS[layout.format]).itemsize if number == 1 else 0
    if layout.format in _LIST_VIEWS:
        return rows * np.dtype(_LIST_VIEWS[layout.format]).itemsize
    if layout.format in _VIEWS:
        return rows * 16 if number == 1 else 0
    return rows * width(layout.format)


@dataclass(frozen=True, slots=True)
class ArrowArray:
    """A received array: its counts and buffers, and the lengths of its children and its dictionary."""

    length: int
    null_count: int
    offset: int
    buffers: tuple[memoryview | None, ...]
    children: tuple[int, ...]
    dictionary: int

    @property
    def rows(self) -> int:
        """The rows in its buffers, including those before the offset."""
        return self.length + self.offset

    def values(self, number: int, kind: str, count: int) -> npt.NDArray[np.int64]:
        """Return this many numbers of a buffer that was checked to have them."""
        buffer = self.buffers[number]
        found: npt.NDArray[np.int64] = np.frombuffer(b"" if buffer is None else buffer, kind, count)
        return found

    def valid(self) -> npt.NDArray[np.bool_]:
        """Return which rows are not NULL."""
        if not self.null_count or self.buffers[0] is None:
            return np.ones(self.rows, bool)
        return np.unpackbits(np.frombuffer(self.buffers[0], np.uint8), bitorder="little")[: self.rows].astype(bool)


def check_array(layout: ArrowLayout, array: ArrowArray) -> None:
    """Raise Malformed unless the array matches its type and stays within its buffers; children were checked before."""
    rows = array.rows
    for number, buffer in enumerate(array.buffers):
        is_validity = number == 0 and not layout.is_union
        absent = is_validity and buffer is None and array.null_count <= 0
        needed = fixed_bytes(layout, rows, number) if rows else 0
        _check(absent or len(buffer or b"") >= needed, "a buffer that is too short")
    if not rows:
        return
    if array.dictionary >= 0:
        _check_inside(array.values(1, _INDICES[layout.format], rows)[array.valid()], array.dictionary - 1, "an index")
    elif layout.format in _OFFSETS:
        end = array.children[0] if array.children else len(array.buffers[2] or b"")
        offsets = array.values(1, _OFFSETS[layout.format], rows + 1)
        _check(bool((offsets[1:] >= offsets[:-1]).all()), "offsets that do not grow")
        _check_inside(offsets[[0, -1]], end, "offsets")
    elif layout.format in _LIST_VIEWS:
        _check_list_views(array, _LIST_VIEWS[layout.format])
    elif layout.format in _VIEWS:
        _check_views(array)
    else:
        _check(all(length >= rows * layout.elements for length in array.children), "a child that is too short")
        if layout.is_union:
            _check_inside(array.values(0, "i1", rows), len(array.children) - 1, "a member")


def _check_list_views(array: ArrowArray, kind: str) -> None:
    valid = array.valid()
    offsets, sizes = (array.values(number, kind, array.rows)[valid] for number in (1, 2))
    _check_inside(offsets, array.children[0], "offsets")
    _check_inside(sizes, array.children[0], "sizes")
    _check_inside(offsets + sizes, array.children[0], "offsets")


def _check_views(array: ArrowArray) -> None:
    _check(len(array.buffers[-1] or b"") >= 8 * (len(array.buffers) - 3), "a buffer that is too short")
    ends = np.array([len(buffer or b"") for buffer in array.buffers[2:-1]], np.int64)
    _check(bool((array.values(len(array.buffers) - 1, "i8", len(ends)) == ends).all()), "buffers of other sizes")
    views = array.values(1, "i4", 4 * array.rows).reshape(-1, 4).astype(np.int64)[array.valid()]
    _check_inside(views[:, 0], LONGEST, "a length")
    far = views[views[:, 0] > _INLINE]
    _check_inside(far[:, 2], len(ends) - 1, "a buffer")
    _check(not len(far) or bool((far[:, 0] + far[:, 3] <= ends[far[:, 2]]).all()), "offsets past the end")
    _check_inside(far[:, 3], LONGEST, "an offset")


def _check_inside(values: npt.NDArray[np.int64], last: int, what: str) -> None:
    _check(
        not len(values) or (int(values.min()) >= 0 and int(values.max()) <= last), f"{what} outside of what there is"
    )


def check_counts(counts: Sequence[int]) -> None:
    """Raise Malformed for impossible lengths and numbers of buffers and children."""
    _check(min(counts) >= 0 and max(counts) <= LONGEST, "a wrong count")


def _check(right: bool, why: str) -> None:
    if not right:
        raise Malformed(f"rows that are not what they say: {why}")
