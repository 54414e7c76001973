"""``bins``: a column per range of numbers that holds an equal share of the training rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.categories.category import NULL, NULL_OPTION, names_null
from grouplearn.data.encoding.columns import Columns, IndicatorColumns, IntArray, Reading, SqlColumn
from grouplearn.data.encoding.encoder import (
    Elsewhere,
    Encoder,
    FittedGroups,
    FittedItem,
    GroupRows,
    OnnxGraph,
    Replay,
    Role,
)
from grouplearn.data.encoding.encoder_calls import SCOPE, EncoderCall, EncoderOption
from grouplearn.data.encoding.numbers.quantiles import quantiles
from grouplearn.data.shard import starts

_COUNT = EncoderOption(
    "n",
    "whole",
    "how many bins there are at most",
    required=True,
    low=2,
    high=1000,
    words="the number of bins",
    example="10",
    hint="{call} takes one column and a number; write an item for each column.",
)


class Bins(Encoder):
    """A column for each bin, 1 where a row's number lies in it, as scikit-learn's ``KBinsDiscretizer`` with quantiles.

    The edges are the quantiles at i/n of a group's training rows, by linear interpolation; equal ones are one, so that there may
    be fewer bins. A number that is an edge lies in the bin above it. The first bin has no lower and the last no upper end:
    they take what is out of range, and infinities. NULL is all zeros, or with ``null`` a bin of its own.

    The categories of a group are the lower ends of its bins as texts, the first of them -inf.
    """

    kind: ClassVar[str] = "binned"
    name: ClassVar[str] = "bins"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "bins",
        {"bins(x, n)": "one of 0 and 1 for each of at most n ranges that hold equally many training rows"},
        (_COUNT, SCOPE, NULL_OPTION),
        unnamed=("n",),
        hint="For example bins(column, 10).",
    )
    taken: ClassVar[str] = "numbers"
    role: ClassVar[Role] = "indicator"
    elsewhere: ClassVar[Elsewhere] = "number"
    fills: ClassVar[bool] = True
    per_category: ClassVar[bool] = True
    suggested: ClassVar[bool] = False

    @property
    def counted(self) -> bool:
        """Return False: the statement gives the number of bins."""
        return False

    def takes(self, column: SqlColumn) -> bool:
        """Return whether it is a number."""
        return column.kind == "numeric"

    def reading(self, column: SqlColumn, item: Item) -> Reading:  # noqa: ARG002
        """Return a cast to DOUBLE."""
        around = ("CAST((\n", "\n) AS DOUBLE)")
        return Reading(around, around)

    def needs_fit(self, item: Item) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def width(self, item: Item, categories: int) -> int:  # noqa: ARG002
        """Return the most bins."""
        return int(item.option("n")) + names_null(item)

    def stored_width(self, item: Item, categories: int) -> int:  # noqa: ARG002
        """Return as many as a group lists."""
        return categories

    def fitted_width(self, fitted: FittedItem) -> int:
        """Return the number of a group's bins."""
        return len(fitted.categories)

    def fit(self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str]) -> FittedItem:  # noqa: ARG002
        """Find the bins."""
        return self._fitted(item, np.asarray(values, np.float64), GroupRows.of_one(len(values)))[0]

    def fit_groups(
        self,
        item: Item,
        values: npt.NDArray[Any],
        dictionary: Sequence[str],  # noqa: ARG002
        rows: GroupRows,
    ) -> FittedGroups:
        """Find the bins of each group."""
        fitted = self._fitted(item, np.asarray(values, np.float64), rows)
        bins = GroupBins(fitted)
        return FittedGroups(
            fitted, lambda columns, of: IndicatorColumns(bins.places(of, columns.numeric[:, item.column]))
        )

    def _fitted(self, item: Item, numbers: FloatArray, rows: GroupRows) -> list[FittedItem]:
        """Return the item of each group, fitted on its training rows."""
        known, missing = np.isfinite(numbers), rows.counts(np.isnan(numbers)) > 0
        shares = np.arange(item.option("n") + 1) / item.option("n")
        edges = quantiles(numbers[known], starts(rows.counts(known)), shares)
        bins = [_lower_ends(own) for own in edges]
        nulls = names_null(item)
        return [
            FittedItem(item, categories=(*own, NULL) if nulls and has_null else own)
            for own, has_null in zip(bins, missing.tolist(), strict=True)
        ]

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item=[low, high)."""
        name, ends = fitted.item.name, [text for text in fitted.categories if text != NULL]
        ranges = itertools.pairwise([*ends, "inf"])
        bins = [f"{name}={'(' if low == '-inf' else '['}{low}, {high})" for low, high in ranges] if ends else []
        return (*bins, *(f"{name}={NULL}" for text in fitted.categories if text == NULL))

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:  # noqa: ARG002
        """Return a function that finds bins."""
        column, bins = fitted.item.column, GroupBins([fitted])
        return lambda rows: IndicatorColumns(bins.places(np.zeros(rows.n_rows, np.intp), rows.numeric[:, column]))

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Add a DOUBLE input, NaN for NULL."""
        x, pieces = graph.input(fitted.item.name, "DOUBLE"), []
        ends = np.array([float(text) for text in fitted.categories if text != NULL])
        if ends.size:
            low, high = graph.constant(ends[None]), graph.constant(np.append(ends[1:], np.nan)[None])
            above = [graph.doubles(graph.add("GreaterOrEqual", x, each)) for each in (low, high)]
            pieces.append(graph.add("Sub", *above))
        return pieces + ([graph.doubles(graph.add("IsNaN", x))] if NULL in fitted.categories else [])


class GroupBins:
    """The bins of several groups."""

    def __init__(self, fitted: Sequence[FittedItem]) -> None:
        apart: dict[tuple[str, ...], int] = {}
        self._list = np.array([apart.setdefault(own.categories, len(apart)) for own in fitted], np.int64)
        ends = [[float(text) for text in own if text != NULL] for own in apart]
        #: The ends of each list, then NaN, which no number reaches.
        self._ends = np.full((len(ends), max(map(len, ends), default=0)), np.nan)
        for own, values in zip(self._ends, ends, strict=True):
            own[: len(values)] = values
        self._null = np.array([len(own) - 1 if NULL in own else -1 for own in apart], np.int64)

    def places(self, group: npt.NDArray[Any], values: npt.NDArray[Any]) -> IntArray:
        """Return the place of each number in its group's bins, -1 for none."""
        of, numbers = self._list[group], values.astype(np.float64)
        if len(self._ends) == 1:
            found = np.searchsorted(self._ends[0], numbers, side="right") - 1
        else:
            found = np.full(numbers.size, -1, np.int64)
            for ends in self._ends.T:
                found += numbers >= ends[of]
        return np.where(np.isnan(numbers), self._null[of], found)


def bin_sql(item: Item, value: str, ends: str, bins: str) -> str:
    """Return the SQL of the bin of a number as its text, NULL for none, given the lists of a group's ends and of their texts."""
    missing = f"'{NULL}'" if names_null(item) else "NULL"
    place = f"len(list_filter({ends}, lambda low: low <= {value}))"
    return f"CASE WHEN {value} IS NULL OR isnan({value}) THEN {missing} ELSE ({bins})[{place}] END"


def _lower_ends(edges: FloatArray) -> tuple[str, ...]:
    """Return the lower ends of bins as texts, the first -inf; none without edges."""
    distinct = np.unique(edges[~np.isnan(edges)])
    return ("-inf", *map(repr, distinct[1:-1].tolist())) if distinct.size else ()
