"""``parts``: the year, month, day, weekday and hour of a time as numbers, and where on their circles they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.columns import Around, IntArray, Reading, SqlColumn
from grouplearn.data.encoding.encoder import Elsewhere, FittedItem, NoForm, OnnxGraph
from grouplearn.data.encoding.encoder_calls import SCOPE, EncoderCall, EncoderOption, OptionValue
from grouplearn.data.encoding.numbers.number import IMPUTE
from grouplearn.data.encoding.numbers.scaled import Scaled
from grouplearn.data.encoding.types import is_date_or_timestamp
from grouplearn.data.frequency import DAY_IN_MICROSECONDS, ZONED
from grouplearn.kernels.spreads import Spreads
from grouplearn.sqltext import literal

#: Parts that are numbers, by DuckDB's name, and the first and the number of those that come round again.
_NUMBERS = {
    "year": "year",
    "month": "month",
    "day": "day",
    "weekday": "isodow",
    "day_of_year": "doy",
    "hour": "hour",
    "minute": "minute",
}
_CIRCLES = {"month": (1, 12), "weekday": (1, 7), "hour": (0, 24)}
_TURNS = ("sin", "cos")
DAYS = "days"
#: Parts that are counted from the first training row: large numbers that go on are bad for learners that take steps.
_COUNTED = ("year", DAYS)
#: The parts without a list of them: of a date, and further ones of a timestamp.
OF_DATE = ("year", "month", "day", "weekday", DAYS, "month_sin", "month_cos", "weekday_sin", "weekday_cos")
OF_TIME = ("hour", "hour_sin", "hour_cos")
ALL = (*_NUMBERS, DAYS, *(f"{part}_{turn}" for part in _CIRCLES for turn in _TURNS))


class Part(Scaled):
    """A part of a date or timestamp: one item each.

    - ``year`` since that of the first training row, ``month`` (1 to 12), ``day`` of the month, ``weekday`` (Monday 1 to
    Sunday 7), ``day_of_year``, ``hour``, ``minute``;
    - ``days`` since the first training row, with fractions of a timestamp;
    - ``month_sin`` = sin(2π (month - 1) / 12) and ``month_cos``, so that December is next to January; of weekday and hour, too.

    Trees split the plain numbers, linear models take sines and cosines. A part that is constant in training rows is 0.
    """

    name: ClassVar[str] = "parts"
    elsewhere: ClassVar[Elsewhere] = "part"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "parts",
        {
            "parts(time, ...)": "of a date: years and days since the first training row, month, day, weekday (Monday is 1), and"
            " sine and cosine of month and weekday; of a timestamp also hour, its sine and cosine",
            "parts(time, ['month', 'hour'])": "these alone",
        },
        (
            EncoderOption(
                "part",
                "texts",
                "the parts, each a feature; without it all but `day_of_year` and `minute`",
                choices=ALL,
                hint="Write parts(a), parts({column}) for two columns.",
            ),
            EncoderOption("zone", "text", "the time zone of timestamps with time zone; without it UTC"),
            SCOPE,
            IMPUTE,
        ),
        unnamed=("part",),
    )
    taken: ClassVar[str] = "dates and timestamps"

    def takes(self, column: SqlColumn) -> bool:
        """Return whether it is a date or a timestamp."""
        return is_date_or_timestamp(column.type)

    def is_meant(self, column: SqlColumn) -> bool:  # noqa: ARG002
        """Return False: which parts count has to be said."""
        return False

    def validation_error(self, options: Mapping[str, OptionValue]) -> str | None:
        """Return that a time zone has an impossible name."""
        return None if str(options.get("zone", "UTC")).isprintable() else "zone is the name of a time zone"

    def divided(self, column: SqlColumn, options: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Return the options of an item for each part."""
        usual = OF_DATE if column.type == "DATE" else (*OF_DATE, *OF_TIME)
        return [{**options, "part": part} for part in dict.fromkeys(options["part"] or usual)]

    def named(self, names: Sequence[str], options: Mapping[str, Any]) -> str:
        """Return ``time.part``."""
        return f"{names[0]}.{options['part']}"

    def reading(self, column: SqlColumn, item: Item) -> Reading:
        """Return the part as DOUBLE."""
        around = _part(item.option("part"), *_time(column.type, item))
        return Reading(around, around)

    def spread(self, item: Item, found: Spreads, known: FloatArray, start: IntArray) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Return the first year or day as the centre, else 0; the scale is 1."""
        return found.low if item.option("part") in _COUNTED else np.zeros_like(found.low), np.ones_like(found.low)

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Raise NoForm: ONNX has no times."""
        raise NoForm(f"ONNX has no times, which {fitted.item.name} is made of")


def in_circle(part: str) -> tuple[str, str | None, int, int]:
    """Return DuckDB's name of what a part but ``days`` is made of, and where it is its place on a circle ``sin`` or ``cos``, the
    first number and how many there are."""
    base, _, turn = part.rpartition("_")
    return (_NUMBERS[base], turn, *_CIRCLES[base]) if turn in _TURNS else (_NUMBERS[part], None, 0, 0)


def _time(kind: str, item: Item) -> tuple[str, str]:
    """Return the SQL around a time, as TIMESTAMP by the clock of its zone."""
    if kind != ZONED:
        return "CAST((\n", "\n) AS TIMESTAMP)"
    zone = item.option("zone") if item.has("zone") else "UTC"
    return "(CAST((\n", f"\n) AS {ZONED}) AT TIME ZONE {literal(zone)})"


def _part(part: str, before: str, after: str) -> Around:
    """Return the SQL around a time of its part; an infinite time has none."""
    if part == DAYS:
        days = f"epoch_us(t) / CAST({DAY_IN_MICROSECONDS} AS DOUBLE)"
        return f"list_transform([{before}", f"{after}], lambda t: CASE WHEN isfinite(t) THEN {days} END)[1]"
    number, turn, first, length = in_circle(part)
    if turn is None:
        return f"CAST(date_part('{number}', {before}", f"{after}) AS DOUBLE)"
    return f"{turn}(2 * pi() * (date_part('{number}', {before}", f"{after}) - {first}) / {length})"
