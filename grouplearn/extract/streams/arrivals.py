"""Reads the rows of a statement once, in the order in which they come."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.bind.bound import BoundTrain, Holdout
from grouplearn.bind.clauses.features import all_fit_float
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.arrivals import Arrivals, BoolArray, IntArray, Keys
from grouplearn.data.dataset import FloatArray
from grouplearn.extract.batches import batches
from grouplearn.extract.extract import columns_read
from grouplearn.extract.row_order import LeafNumbers
from grouplearn.kernels.number_columns import NumberReader
from grouplearn.parser.statements import Sql


def arrivals(
    connection: duckdb.DuckDBPyConnection, checker: SqlChecker, bound: BoundTrain
) -> Generator[Arrivals, None, None]:
    """Yield the rows of a statement whose features are numbers; those drawn to be held out depend on the seed and their order."""
    groups, kind = _GroupNumbers(len(bound.keys)), np.float32 if all_fit_float(bound.items) else np.float64
    draws = np.random.Generator(np.random.PCG64([bound.options.training.seed, 1]))
    with closing(batches(connection, checker, _query(bound), 8 * (len(bound.items) + 2))) as read:
        for batch in read:
            number, keys = groups.numbered(
                [batch.column(f"k{place}") for place in range(len(bound.keys))], batch.num_rows
            )
            weight = _doubles(batch.column("w")) if bound.options.rows.weight else np.ones(batch.num_rows)
            held = _held(batch, bound.holdout, draws)
            yield Arrivals(
                keys, number, _features(batch, len(bound.items), kind), _labels(batch.column("y")), weight, held
            )


def _query(bound: BoundTrain) -> list[str | Sql]:
    pieces: list[str | Sql] = ["SELECT"]
    narrow = {f"x{number}" for number, item in enumerate(bound.items) if item.fits_float}
    for place, (name, expression) in enumerate(columns_read(bound)):
        cast = ("CAST((", *expression, ") AS FLOAT)") if name in narrow else expression
        pieces += [*([","] if place else []), *cast, f"AS {name}"]
    return [*pieces, *bound.source]


class _GroupNumbers:
    """Numbers for groups in the order in which they come."""

    def __init__(self, n_keys: int) -> None:
        self._leaves = LeafNumbers(n_keys)
        #: By the number of a leaf; -1 for one that has not come.
        self._numbers = np.full(1, -1, np.int64)
        self._met = 0

    def numbered(self, keys: Sequence[pa.Array], n_rows: int) -> tuple[IntArray, list[Keys]]:
        """Return the numbers of the groups of rows, and the key texts of those that are new."""
        leaves = self._leaves.numbered(keys, n_rows)
        most = int(leaves.max(initial=0)) + 1
        self._numbers = np.append(self._numbers, np.full(max(0, most - self._numbers.size), -1))
        first = np.full(self._numbers.size, -1)
        first[leaves[::-1]] = np.arange(n_rows)[::-1]
        rows = np.sort(first[(first >= 0) & (self._numbers < 0)])
        self._numbers[leaves[rows]] = np.arange(self._met, self._met + rows.size)
        self._met += rows.size
        texts = [key.take(pa.array(rows)).to_pylist() for key in keys]
        return self._numbers[leaves], [*zip(*texts, strict=True)] if texts else [()] * rows.size


def _held(batch: pa.RecordBatch, holdout: Holdout, draws: np.random.Generator) -> BoolArray:
    if holdout.drawn:
        return np.asarray(draws.random(batch.num_rows) < holdout.share)
    if holdout.kind == "where":
        return np.asarray(batch.column("v").to_numpy(zero_copy_only=False), np.bool_)
    return np.zeros(batch.num_rows, np.bool_)


def _features(batch: pa.RecordBatch, width: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    found = np.empty((batch.num_rows, width), kind)
    fields = [batch.schema.get_field_index(f"x{number}") for number in range(width)]
    NumberReader(pa.struct(list(batch.schema)), fields, range(width)).read(batch, found)
    return found


def _labels(label: pa.Array) -> FloatArray:
    """Return labels, NULL as NaN, and NaN as infinite."""
    found = _doubles(label)
    odd = np.isnan(found) & label.is_valid().to_numpy(zero_copy_only=False)
    return np.where(odd, np.inf, found) if odd.any() else found


def _doubles(column: pa.Array) -> FloatArray:
    """Return numbers, NULL as NaN."""
    found: FloatArray = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), np.nan, found) if column.null_count else found
