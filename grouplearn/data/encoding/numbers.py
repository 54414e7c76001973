"""Numbers: unchanged, imputed, scaled (``zscore``, ``minmax``); and arrays of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.columns import Columns, Numbers, Reading, SqlColumn
from grouplearn.data.encoding.encoder import Encoder, FittedItem, OnnxGraph, Replay, Role

#: Numbers whose range is below this share of the largest, a few ulps, are constant up to rounding.
_ROUNDING = 4 * float(np.finfo(np.float64).eps)
#: DuckDB's longest array.
LONGEST_ARRAY = 100_000


class Number(Encoder):
    """One number; ``impute`` says what replaces NULL."""

    kind: ClassVar[str] = "numeric"
    name: ClassVar[str] = "none"
    call: ClassVar[str | None] = None
    taken: ClassVar[str] = "numbers"
    role: ClassVar[Role] = "number"
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
        numbers: FloatArray = np.asarray(values, dtype=np.float64)
        known = numbers[np.isfinite(numbers)]
        fill = _fill(item, known)
        if fill is not None and known.size < numbers.size:
            known = np.where(np.isfinite(numbers), numbers, fill)
        return FittedItem(item, fill, *self._scaling(known)) if known.size else FittedItem(item, fill)

    def _scaling(self, known: FloatArray) -> tuple[float, float]:  # noqa: ARG002
        """Return centre and scale of numbers, of which there are some."""
        return 0.0, 1.0

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


class Imputed(Number):
    """A number in a call that only replaces NULL."""

    call: ClassVar[str | None] = "impute"


class _Scaled(Number):
    """A number that is centred and scaled by training rows."""

    scales: ClassVar[bool] = True
    plain: ClassVar[bool] = False

    def needs_fit(self, item: Item) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def keeps_single(self, item: Item) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def _scaling(self, known: FloatArray) -> tuple[float, float]:
        low, high = float(known.min()), float(known.max())
        # A constant column carries no information: with scale 1 it becomes zeros, without a division by 0 or by rounding
        # errors.
        if high - low <= _ROUNDING * max(abs(low), abs(high)):
            return low, 1.0
        return self._spread(known, low, high)

    def _spread(self, known: FloatArray, low: float, high: float) -> tuple[float, float]:
        raise NotImplementedError


class ZScore(_Scaled):
    """Minus the mean, divided by the standard deviation."""

    name: ClassVar[str] = "zscore"
    call: ClassVar[str | None] = "zscore"

    def _spread(self, known: FloatArray, low: float, high: float) -> tuple[float, float]:  # noqa: ARG002
        return _mean_and_deviation(known)


class MinMax(_Scaled):
    """Scaled to [0, 1] between the minimum and maximum of training rows."""

    name: ClassVar[str] = "minmax"
    call: ClassVar[str | None] = "minmax"

    def _spread(self, known: FloatArray, low: float, high: float) -> tuple[float, float]:  # noqa: ARG002
        return low, high - low


class Array(Encoder):
    """Several numbers, equally many in each row, unchanged; or bytes. Its SQL is in ``bind.arrays``."""

    kind: ClassVar[str] = "array"
    name: ClassVar[str] = "array"
    call: ClassVar[str | None] = None
    taken: ClassVar[str] = "arrays"
    role: ClassVar[Role] = "array"
    pure: ClassVar[bool] = False
    most: ClassVar[int | None] = LONGEST_ARRAY
    first: ClassVar[int] = 1

    def takes(self, column: SqlColumn) -> bool:
        """Return whether it is a list of numbers, or bytes."""
        return column.type == "BLOB" or (column.element is not None and column.element.kind == "numeric")

    def is_meant(self, column: SqlColumn) -> bool:
        """Return whether it takes the column."""
        return self.takes(column)

    def reading(self, column: SqlColumn, item: Item) -> Reading:  # noqa: ARG002
        """Return a cast to doubles; bytes are read unchanged."""
        around = ("(\n", "\n)") if column.type == "BLOB" else ("CAST((\n", "\n) AS DOUBLE[])")
        return Reading(around, around)

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item[place], counted from 1 as in SQL."""
        return self.numbered(fitted)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:  # noqa: ARG002
        """Return a function that takes the values unchanged."""
        first, stop = fitted.item.column, fitted.item.column + fitted.item.buckets
        return lambda rows: Numbers(rows.numeric[:, first:stop])

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Add a DOUBLE input per value."""
        return [graph.input(fitted.item.name, "DOUBLE", fitted.item.buckets)]


def _is_single(value: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == value


def _mean_and_deviation(values: FloatArray) -> tuple[float, float]:
    """Return mean and standard deviation, computed on shares of the range: small spreads keep digits, large ones do not
    overflow."""
    low = float(values.min())
    span = float(values.max()) - low
    if not span:
        return low, 0.0
    shares = (values - low) / span
    return low + span * float(shares.mean()), span * float(shares.std())


def _fill(item: Item, known: FloatArray) -> float | None:
    if item.impute is None or isinstance(item.impute, float):
        return item.impute
    if not known.size:
        return 0.0
    return float(np.median(known)) if item.impute == "median" else _mean_and_deviation(known)[0]


NUMBERS = (Number(), Imputed(), ZScore(), MinMax(), Array())
