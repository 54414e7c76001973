"""A number as it is, or with what replaces NULL: the base of all numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.columns import Columns, IntArray, Numbers, Reading, SqlColumn
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
from grouplearn.data.encoding.encoder_calls import EncoderCall, EncoderOption
from grouplearn.data.shard import starts
from grouplearn.kernels import spreads

FILL = EncoderOption(
    "method",
    "number",
    "what replaces NULL and infinite values: the mean or the median of the training rows, or a constant",
    default="mean",
    choices=("mean", "median"),
    wrong="missing values are replaced by",
    hint="Write impute(a), impute({column}) for two columns, or coalesce(a, {column}) for one.",
    sets="impute",
)
IMPUTE = replace(FILL, name="impute", default=None)


class Number(Encoder):
    """One number; ``impute`` says what replaces NULL."""

    kind: ClassVar[str] = "numeric"
    name: ClassVar[str] = "none"
    call: ClassVar[EncoderCall | None] = None
    taken: ClassVar[str] = "numbers"
    role: ClassVar[Role] = "number"
    elsewhere: ClassVar[Elsewhere] = "number"
    plain: ClassVar[bool] = True

    def takes(self, column: SqlColumn) -> bool:
        """Return whether it is a number."""
        return column.kind == "numeric"

    def is_meant(self, column: SqlColumn) -> bool:
        """Return whether it is a number."""
        return self.call is None and self.takes(column)

    def reading(self, column: SqlColumn, item: Item) -> Reading:  # noqa: ARG002
        """Return a cast to DOUBLE."""
        around = ("CAST((\n", "\n) AS DOUBLE)")
        return Reading(around, around)

    def needs_fit(self, item: Item) -> bool:
        """Return whether the fill is computed from rows."""
        return not (item.impute is None or isinstance(item.impute, float))

    def fit(self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str]) -> FittedItem:  # noqa: ARG002
        """Find the fill, the centre and the scale."""
        return self._fitted(item, np.asarray(values, np.float64), GroupRows.of_one(len(values)))[0]

    def fit_groups(
        self,
        item: Item,
        values: npt.NDArray[Any],
        dictionary: Sequence[str],  # noqa: ARG002
        rows: GroupRows,
    ) -> FittedGroups:
        """Find the fill, the centre and the scale of each group."""
        fitted = self._fitted(item, np.asarray(values, np.float64), rows)
        center, scale = (np.array([getattr(each, name) for each in fitted]) for name in ("center", "scale"))
        fill = np.array([each.fill for each in fitted], np.float64)  # NaN where there is none

        def replay(columns: Columns, of: npt.NDArray[np.intp]) -> Numbers:
            found = columns.numeric[:, item.column].astype(np.float64, copy=False)
            if item.impute is not None:
                found = np.where(np.isfinite(found), found, fill[of])
            return Numbers(((found - center[of]) / scale[of])[:, None])

        return FittedGroups(fitted, replay)

    def _fitted(self, item: Item, numbers: FloatArray, rows: GroupRows) -> list[FittedItem]:
        """Return the item of each group, fitted on its training rows; what is infinite counts as missing."""
        known = np.isfinite(numbers)
        fill: Sequence[float | None] = [None] * rows.n_groups
        if item.impute is not None:
            fill = _fills(item, numbers[known], starts(rows.counts(known)))
            if not known.all():
                numbers, known = np.where(known, numbers, rows.each(np.array(fill))), np.ones_like(known)
        counts = rows.counts(known)
        center, scale = self._scaling(item, numbers[known], starts(counts))
        return [FittedItem(item, *each) for each in zip(fill, center.tolist(), scale.tolist(), strict=True)]

    def _scaling(self, item: Item, known: FloatArray, start: IntArray) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Return centre and scale (R,) of runs of numbers that begin at ``start`` (R + 1,); 0 and 1 of an empty one."""
        return np.zeros(start.size - 1), np.ones(start.size - 1)

    def keeps_single(self, item: Item) -> bool:
        """Return whether nothing is computed and a fill is exact in single precision.

        ``zscore`` and ``minmax`` compute in double precision. Scaling rows only when they are read would save one group's
        copy (200 MB and 5% of the time for a million rows of 50 columns, where computing means and scales takes three times
        as long), but every learner, LightGBM and PyTorch included, would have to read rows in two ways.
        """
        fill = item.impute
        return fill is None or (isinstance(fill, float) and _is_single(fill))

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return the item's name."""
        return (fitted.item.name,)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:  # noqa: ARG002
        """Return a function that fills, centres and scales."""
        column, fill, center, scale = fitted.item.column, fitted.fill, fitted.center, fitted.scale

        def encoded(rows: Columns) -> Numbers:
            values = rows.numeric[:, column].astype(np.float64, copy=False)
            if fill is not None:
                values = np.where(np.isfinite(values), values, fill)
            return Numbers(((values - center) / scale)[:, None])

        return encoded

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:
        """Add a DOUBLE input, NaN for NULL."""
        x = graph.input(fitted.item.name, "DOUBLE")
        if fitted.fill is not None or finite:
            bad = graph.add("Or", graph.add("IsNaN", x), graph.add("IsInf", x))
            x = graph.add("Where", bad, graph.number(np.nan if fitted.fill is None else fitted.fill), x)
        if (fitted.center, fitted.scale) != (0.0, 1.0):
            x = graph.add("Div", graph.add("Sub", x, graph.number(fitted.center)), graph.number(fitted.scale))
        return [x]


def _is_single(value: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == value


def _fills(item: Item, known: FloatArray, start: IntArray) -> Sequence[float]:
    """Return what stands for NULL in each of several runs of known numbers, which begin at ``start`` (R + 1,)."""
    if isinstance(item.impute, float):
        return [item.impute] * (start.size - 1)
    if item.impute == "mean":
        return [*spreads.of_runs(known, start).mean.tolist()]
    runs = itertools.pairwise(start.tolist())
    return [float(np.median(known[first:last])) if first < last else 0.0 for first, last in runs]
