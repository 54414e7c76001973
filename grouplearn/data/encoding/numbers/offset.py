"""The offset: a known part of the score, which WITH (offset = ...) makes the last item."""

from __future__ import annotations

from typing import ClassVar

from grouplearn.data.encoding.columns import SqlColumn
from grouplearn.data.encoding.numbers.number import Number


class Offset(Number):
    """A number as it is, to which no learner gives a weight of its own."""

    name: ClassVar[str] = "offset"
    suggested: ClassVar[bool] = False
    required: ClassVar[bool] = True

    def is_meant(self, column: SqlColumn) -> bool:  # noqa: ARG002
        """Return False: an option makes it, not FEATURES."""
        return False
