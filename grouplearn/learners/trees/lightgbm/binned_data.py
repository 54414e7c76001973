"""Rows binned for LightGBM, a byte or so per value, from memory or read from files block by block."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.memory import give_back
from grouplearn.data.shard import FloatArray, Matrix, RowNumbers, Shard, StoredShard
from grouplearn.learners.trees import offset
from grouplearn.learners.trees.lightgbm.library import (
    Handle,
    MatrixArguments,
    address,
    call,
    categorical_columns,
    joined,
    type_of,
)

#: LightGBM takes values up to this size for zeros (``meta.h``), and is not given those of the rows that place bins.
_ZERO = float(np.float32(1e-35))


class BinnedData(Handle):
    """Binned rows with their labels, weights and categorical columns (by number).

    Validation rows use the bins of the training rows, ``reference``. Rows in files are in memory one block at a time,
    besides those that place the bins; bins and models are the same. ``look`` is called between blocks, and may raise.
    ``names`` are those of the columns if the last one is an offset.
    """

    freed_by = "LGBM_DatasetFree"

    def __init__(
        self,
        rows: Shard | StoredShard,
        categorical: Sequence[int],
        parameters: Mapping[str, Any],
        reference: BinnedData | None = None,
        look: Callable[[], None] = lambda: None,
        names: Sequence[bytes] = (),
    ) -> None:
        super().__init__()
        #: What the scores of rows begin with.
        self.offsets = offset.of_shard(rows) if names else None
        rows = offset.taken_off(rows) if names else rows
        self.parameters = {**parameters, **categorical_columns(categorical)}
        if isinstance(rows, StoredShard) and self._gains_by_blocks(rows, reference):
            self._read_in_blocks(rows, reference, look)
        else:
            self._read_at_once(rows.read().x, reference)
        y, weight = zip(*(_single(*run) for run in rows.label_runs()), strict=True)
        self.set_field("label", np.concatenate(y))
        # LightGBM is faster without weights, and unit weights give the same trees.
        self.set_field("weight", None if all(np.all(run == 1) for run in weight) else np.concatenate(weight))
        if self.offsets is not None:
            self.begin_with(None)
            call("LGBM_DatasetSetFeatureNames", self.handle, (ctypes.c_char_p * len(names))(*names), len(names))

    def begin_with(self, scores: FloatArray | None) -> None:
        """Let scores of rows (n · outputs) begin with these, or with the offsets."""
        self.set_field("init_score", self.offsets if scores is None else scores)

    def set_field(self, name: str, values: npt.NDArray[Any] | None) -> None:
        """Set a field of all rows (label, weight: float32; init_score: float64), or remove it."""
        given = np.empty(0, np.float64 if name == "init_score" else np.float32) if values is None else values
        place = None if values is None else address(given)
        call("LGBM_DatasetSetField", self.handle, name.encode(), place, len(given), type_of(given))

    def _gains_by_blocks(self, rows: StoredShard, reference: BinnedData | None) -> bool:
        """Whether blocks save memory: linear trees keep all rows, a gang places bins together, and of few rows all place
        bins."""
        if str(self.parameters.get("linear_tree", False)).casefold() == "true" or "num_machines" in self.parameters:
            return False
        return reference is not None or self._sample(rows.n_rows).size < rows.n_rows

    def _sample(self, n_rows: int) -> RowNumbers:
        """Return in ascending order the rows, of so many, by which LightGBM places bins."""
        drawn, count = np.empty(n_rows, np.int32), ctypes.c_int32()
        call("LGBM_SampleIndices", n_rows, joined(self.parameters), address(drawn), ctypes.byref(count))
        return drawn[: count.value].astype(np.int64)

    def _read_at_once(self, x: Matrix, reference: BinnedData | None) -> None:
        rows, other = MatrixArguments(x), None if reference is None else reference.handle
        given = (*rows.arguments, joined(self.parameters), other)
        call(f"LGBM_DatasetCreateFrom{rows.kind}", *given, ctypes.byref(self.handle))

    def _read_in_blocks(self, rows: StoredShard, reference: BinnedData | None, look: Callable[[], None]) -> None:
        give_back()  # the previous pack's memory
        if reference is None:
            self._place_bins(rows)
            give_back()  # the sample's memory
        else:
            call("LGBM_DatasetCreateByReference", reference.handle, rows.n_rows, ctypes.byref(self.handle))
        begin = 0
        for block in rows.blocks():
            look()
            if not block.n_rows:
                continue
            part = MatrixArguments(np.ascontiguousarray(x) if isinstance(x := block.read().x, np.ndarray) else x)
            if part.kind == "CSR":
                call("LGBM_DatasetPushRowsByCSR", self.handle, *part.arguments, begin)
            else:
                call("LGBM_DatasetPushRows", self.handle, *part.arguments[:-1], begin)
            begin += block.n_rows

    def _place_bins(self, rows: StoredShard) -> None:
        """Make the set without rows, as ``LGBM_DatasetCreateFromMat`` does before it adds them."""
        sample = self._sample(rows.n_rows)
        values, places = zip(*_columns(rows.picked(sample), sample.size), strict=True)
        counts = np.array([each.size for each in places], np.int32)
        pointers = [np.array([address(each) for each in columns], np.uintp) for columns in (values, places)]
        given = (*map(address, pointers), len(values), address(counts), sample.size, rows.n_rows, rows.n_rows)
        call("LGBM_DatasetCreateFromSampledColumn", *given, joined(self.parameters), ctypes.byref(self.handle))


def _single(*arrays: FloatArray) -> list[npt.NDArray[np.float32]]:
    return [each.astype(np.float32) for each in arrays]


def _columns(parts: Iterator[Matrix], n_rows: int) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]]:
    """Return each column's nonzero values and their rows; the parts have ``n_rows`` rows together."""
    first = next(parts)
    if not isinstance(first, np.ndarray):
        import scipy.sparse  # slow to import, and only needed for sparse rows

        by_column = scipy.sparse.vstack([first, *parts]).tocsc()
        by_column.sort_indices()
        bounds = zip(by_column.indptr[:-1].tolist(), by_column.indptr[1:].tolist(), strict=True)
        return [
            _no_zeros(by_column.data[low:high], by_column.indices[low:high].astype(np.int32)) for low, high in bounds
        ]
    columns, at = np.empty((first.shape[1], n_rows)), 0
    for part in itertools.chain([first], parts):
        columns[:, at : at + len(part)] = part.T
        at += len(part)
    everyone = np.arange(n_rows, dtype=np.int32)
    return [_no_zeros(column, everyone) for column in columns]


def _no_zeros(
    values: npt.NDArray[np.float64], rows: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    kept = (np.abs(values) > _ZERO) | np.isnan(values)
    return (values, rows) if kept.all() else (values[kept], rows[kept])
