"""The order of rows: by key texts of finest groups, NULLs first, and within a group by hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.interrupting import CHECK_EVERY, check_interrupt, run_in_parallel, run_in_thread, with_checks
from grouplearn.kernels.library import calling_back
from grouplearn.kernels.row_order import GroupPositions
from grouplearn.kernels.texts import Numbers, Texts

Keys = tuple[str | None, ...]
IntArray = npt.NDArray[np.int64]
HashArray = npt.NDArray[np.uint64]

#: Rows of groups per task of a thread.
_ROWS = 1 << 18


class LeafNumbers:
    """Numbers for the finest groups by their key texts; some may have no rows."""

    def __init__(self, n_keys: int) -> None:
        self._texts = [Texts() for _ in range(n_keys)]
        self._leaves = Texts()

    def numbered(self, keys: Sequence[pa.Array], n_rows: int) -> Numbers:
        """Return each row's group number (n,)."""
        if len(keys) == 1:
            return self._texts[0].numbered(keys[0]) + np.int32(1)
        rows = np.empty((n_rows, len(keys)), np.int32)
        for place, (texts, key) in enumerate(zip(self._texts, keys, strict=True)):
            rows[:, place] = texts.numbered(key)
        return self._leaves.numbered_rows(rows)

    def ordered(self) -> tuple[Numbers, list[pa.Array]]:
        """Return each leaf's places (leaves, keys) among the sorted texts of its keys, -1 for NULL; and the sorted texts."""
        if len(self._texts) == 1:
            codes = np.arange(-1, len(self._texts[0]), dtype=np.int32)[:, None]
        else:
            codes = self._leaves.rows(len(self._texts)).copy()
        sorted_texts = []
        for column, texts in zip(codes.T, self._texts, strict=True):
            ranks, in_order = run_in_thread(texts.ranks, len(texts))
            column[:] = ranks[column]  # -1 reads the last entry
            sorted_texts.append(in_order)
        return codes, sorted_texts


def names(codes: Numbers, texts: Sequence[pa.Array]) -> tuple[Keys, ...]:
    """Return the leaves' key texts (leaves, keys) from their places in ``texts``."""
    columns = [_texts_of(in_order, column) for in_order, column in zip(texts, codes.T, strict=True)]
    return tuple(with_checks(zip(*columns, strict=True))) if columns else ((),) * len(codes)


def _texts_of(texts: pa.Array, codes: Numbers) -> Iterator[str | None]:
    known = pa.array(codes, mask=codes < 0)
    for start in range(0, len(codes), CHECK_EVERY):
        yield from texts.take(known.slice(start, CHECK_EVERY)).to_pylist()


def places(
    leaves: Sequence[Numbers], hashes: Sequence[HashArray], order: IntArray, threads: int
) -> tuple[GroupPositions, IntArray]:
    """Return the places of batches' rows, by leaf and hash; and the leaves that have rows.

    ``order`` is the order of leaves.
    """
    sizes = np.zeros(order.size, np.int64)
    for batch in with_checks(leaves):
        sizes += np.bincount(batch, minlength=order.size)
    order = order[sizes[order] > 0]
    found = GroupPositions(sizes, order)
    with calling_back(check_interrupt):
        for batch, own in zip(leaves, hashes, strict=True):
            check_interrupt()
            found.add(batch, own)
    run_in_parallel(lambda part: found.sort(*part), list(together(found.start)), threads)
    return found, order


def together(start: IntArray) -> Iterator[tuple[int, int]]:
    """Yield runs of the groups that begin at ``start`` (G + 1,), of at most ``_ROWS`` rows; longer groups alone."""
    first, n_groups = 0, start.size - 1
    while first < n_groups:
        last = max(first + 1, int(np.searchsorted(start, start[first] + _ROWS, side="right")) - 1)
        yield first, last
        first = last
