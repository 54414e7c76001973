"""Rows that came in any order: where each of them belongs, by finest group and then by hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.interrupting import LOOK_EVERY, apart, watched

Keys = tuple[str | None, ...]
IntArray = npt.NDArray[np.int64]

#: Numbers of groups are kept below this, so that the next key's texts can be counted in.
_MOST_GROUPS = 1 << 31
#: Up to this many groups NumPy sorts by counting.
_COUNTED_GROUPS = 1 << 16


@dataclass(frozen=True, slots=True)
class RowOrder:
    """``place`` (n,) is where each row goes; ``leaves`` are the key texts of the finest groups in order and ``firsts``
    their first places; ``tied`` (n,) tells, by place, which rows have the group and the hash of the row before."""

    place: IntArray
    leaves: tuple[Keys, ...]
    firsts: IntArray
    tied: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, keys: Sequence[pa.ChunkedArray], hashes: npt.NDArray[np.uint64]) -> RowOrder:
        """Return the order of rows by their key texts, NULLs first, and then by ``hashes``."""
        coded = [_coded(key) for key in keys]
        group = _groups([codes for codes, _ in coded], len(hashes))
        order = apart(lambda: grouped(group, np.argsort(hashes)), len(hashes))
        group, hashes = group[order], hashes[order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = group[1:] != group[:-1]
        tied = ~first
        tied[1:] &= hashes[1:] == hashes[:-1]
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        firsts = np.flatnonzero(first)
        columns = [_texts_of(texts, codes[order[firsts]]) for codes, texts in coded]
        leaves = tuple(watched(zip(*columns, strict=True))) if keys else ((),) * firsts.size
        return cls(place, leaves, firsts, tied)


def grouped(group: IntArray, order: IntArray) -> IntArray:
    """Return the rows of ``order`` group by group, in their order within each."""
    small = group.astype(np.uint16) if group.max(initial=0) < _COUNTED_GROUPS else group
    return order[np.argsort(small[order], kind="stable")]


def _coded(key: pa.ChunkedArray) -> tuple[IntArray, pa.Array]:
    """Return for each row the place of its text among all texts in order, counted from 1, 0 for NULL; and the texts."""
    encoded = apart(lambda: pc.dictionary_encode(key).unify_dictionaries(), len(key))
    met = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], pa.string())
    order = apart(lambda: pc.sort_indices(met), len(key)).to_numpy()  # of UTF-8 as of characters
    table = np.zeros(len(met) + 1, dtype=np.int64)  # -1 looks up the last entry
    table[order] = np.arange(1, len(met) + 1)
    codes = [pc.fill_null(chunk.indices, -1).to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
    return table[np.concatenate([np.empty(0, dtype=np.int64), *codes])], met.take(pa.array(order))


def _texts_of(texts: pa.Array, codes: IntArray) -> Iterator[str | None]:
    """Yield the text of each code, None for 0."""
    known = pa.array(codes - 1, mask=codes == 0)
    for start in range(0, len(codes), LOOK_EVERY):
        yield from texts.take(known.slice(start, LOOK_EVERY)).to_pylist()


def _groups(codes: Sequence[IntArray], n_rows: int) -> IntArray:
    """Return numbers that order rows as their codes do, the first key first."""
    group = np.zeros(n_rows, dtype=np.int64)
    for column in codes:
        if group.max(initial=0) >= _MOST_GROUPS:
            group = np.unique(group, return_inverse=True)[1]
        group = group * (column.max(initial=0) + 1) + column
    return group
