"""Times as steps: the number of months, days or other units at which a time lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.columns import Reading, SqlColumn
from grouplearn.data.encoding.encoder import Elsewhere, FittedItem, NoForm, OnnxGraph
from grouplearn.data.encoding.encoder_calls import EncoderCall, EncoderOption, OptionValue
from grouplearn.data.encoding.numbers.number import Number
from grouplearn.data.encoding.types import is_date_or_timestamp, is_whole
from grouplearn.data.frequency import DAY_IN_MICROSECONDS, UNITS, Frequency

#: Whole numbers that doubles have.
_MOST = 2**53


class Step(Number):
    """The step of a time, see ``Frequency``; whole numbers count as times."""

    name: ClassVar[str] = "time_step"
    elsewhere: ClassVar[Elsewhere] = "nothing"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "time_step",
        {"time_step(time, ...)": "the number of units since 1970-01-01: a trend"},
        (
            EncoderOption("unit", "text", "the unit of a step", default="day", choices=UNITS),
            EncoderOption("every", "whole", "how many units a step has", default=1, low=1, high=_MOST),
            EncoderOption("offset", "whole", "the unit at which step 0 lies", default=0, low=-_MOST, high=_MOST),
            EncoderOption(
                "day", "whole", "the day of the month at which a step of months lies", default=1, low=1, high=31
            ),
            EncoderOption("zone", "text", "the time zone of timestamps with time zone", default="UTC"),
            EncoderOption(
                "time_of_day",
                "whole",
                "the time at which a step of days or months lies, in microseconds",
                default=0,
                low=0,
                high=DAY_IN_MICROSECONDS - 1,
            ),
        ),
    )
    taken: ClassVar[str] = "dates, timestamps and whole numbers"
    plain: ClassVar[bool] = False
    suggested: ClassVar[bool] = False

    def takes(self, column: SqlColumn) -> bool:
        """Return whether it is a time or a whole number."""
        return is_whole(column.type) or is_date_or_timestamp(column.type)

    def is_meant(self, column: SqlColumn) -> bool:  # noqa: ARG002
        """Return False: a time says nothing by itself."""
        return False

    def validation_error(self, options: Mapping[str, OptionValue]) -> str | None:
        """Return that a time zone has an impossible name."""
        return "zone is the name of a time zone" if not str(options.get("zone", "UTC")).isprintable() else None

    def reading(self, column: SqlColumn, item: Item) -> Reading:
        """Return the step as DOUBLE."""
        around = Frequency.of(item.options).step(column.type)
        return Reading(around, around)

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Raise NoForm: ONNX has no times."""
        raise NoForm(f"ONNX has no times, which {fitted.item.name} is made of")
