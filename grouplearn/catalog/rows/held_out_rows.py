"""The rows of ``held_out``: many predictions in one row, as one per prediction takes DuckDB ten times as long to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.data.dataset import FloatArray, RowNumbers
from grouplearn.train.job import Job

#: Most predictions in a row of the table.
_MOST = 1 << 16
_NUMBERS = pa.list_(pa.float64())
_SCHEMA = pa.schema(
    [
        ("group_id", pa.int32()),
        ("fold", pa.int32()),
        ("keys", pa.list_(pa.list_(pa.string()))),
        ("labels", _NUMBERS),
        ("outputs", pa.list_(_NUMBERS)),
    ]
)


@dataclass(frozen=True, slots=True)
class Predicted:
    """Held-out rows of a group by ``numbers`` (n,) in the dataset, their labels (n,), and the outputs (n, width).

    ``fold`` is None where there are no folds.
    """

    group: int
    fold: int | None
    numbers: RowNumbers
    labels: FloatArray
    outputs: FloatArray

    def parts(self) -> Iterator[Predicted]:
        """Yield the predictions in parts of at most ``_MOST``."""
        for first in range(0, self.numbers.size, _MOST):
            run = slice(first, first + _MOST)
            yield Predicted(self.group, self.fold, self.numbers[run], self.labels[run], self.outputs[run])


def held_out_rows(job: Job, predicted: Iterable[Predicted]) -> Any:
    """Return the rows of ``held_out``."""
    parts = [part for each in predicted for part in each.parts()]
    sizes = np.array([part.numbers.size for part in parts], np.int64)
    numbers = np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)])
    keys = [pa.array(job.dataset.dictionary(item), pa.string()) for item in job.held_out or ()]
    columns = [
        pa.array([part.group for part in parts], pa.int32()),
        pa.array([part.fold for part in parts], pa.int32()),
        _transposed([texts.take(_codes(job, place, numbers)) for place, texts in enumerate(keys)], sizes),
        _lists(pa.array(np.concatenate([np.empty(0), *(part.labels for part in parts)])), sizes),
        _outputs(parts, sizes),
    ]
    return pa.table(columns, _SCHEMA)


def _codes(job: Job, place: int, numbers: RowNumbers) -> Any:
    codes = job.dataset.column("codes", (job.held_out or ())[place].column, numbers)
    return pa.array(codes, mask=codes < 0)


def _transposed(columns: list[Any], sizes: npt.NDArray[np.int64]) -> Any:
    """Return a list per part with a list of its rows' values for each of the columns."""
    count, ends = len(columns), np.concatenate([[0], np.cumsum(sizes)])
    total = int(ends[-1])
    order = [np.arange(first, last) + column * total
             for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True) for column in range(count)]  # fmt: skip
    values = pa.concat_arrays([pa.array([], pa.string()), *columns])
    values = values.take(pa.array(np.concatenate([np.empty(0, np.int64), *order])))
    return _lists(_lists(values, np.repeat(sizes, count)), np.full(sizes.size, count))


def _outputs(parts: list[Predicted], sizes: npt.NDArray[np.int64]) -> Any:
    widths = np.array([part.outputs.shape[1] for part in parts], np.int64)
    values = np.concatenate([np.empty(0), *(part.outputs.T.ravel() for part in parts)])
    return _lists(_lists(pa.array(values), np.repeat(sizes, widths)), widths)


def _lists(values: Any, sizes: npt.NDArray[np.int64]) -> Any:
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32()), values)
