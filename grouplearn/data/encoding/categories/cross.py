"""``cross``: a column per combination of the values of several columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.categories.category import MIN_COUNT, NULL_OPTION, marked, names_null
from grouplearn.data.encoding.categories.onehot import OneHot
from grouplearn.data.encoding.columns import Around, Reading, SqlColumn
from grouplearn.data.encoding.encoder import Elsewhere
from grouplearn.data.encoding.encoder_calls import SCOPE, EncoderCall
from grouplearn.data.encoding.wide import WideCategories

#: What stands between the values of a combination, and what becomes of it within one.
_BETWEEN, _SIGN, _ESCAPED = " & ", "'&'", "'\\&'"


class Cross(OneHot):
    """A column for each combination of values that training rows have, 1 where a row has it.

    A combination is the texts of its values with `` & `` between them. With a NULL in it, it is NULL, unless ``null`` makes
    NULL a value like others.
    """

    name: ClassVar[str] = "cross"
    elsewhere: ClassVar[Elsewhere] = "combination"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "cross",
        {"cross(x, z, ...)": "one of 0 and 1 for each combination of the values of two or more columns that was seen"},
        (SCOPE, NULL_OPTION, MIN_COUNT),
        hint="For example cross(origin, carrier).",
        together=None,
    )
    suggested: ClassVar[bool] = False
    taken: ClassVar[str] = "columns of single values"

    def named(self, names: Sequence[str], options: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return the names of the columns with `` & `` between them."""
        return _BETWEEN.join(dict.fromkeys(names))

    def takes(self, column: SqlColumn) -> bool:
        """Return whether all columns have texts that name categories."""
        return all(each.named for each in (column, *column.others))

    def is_meant(self, column: SqlColumn) -> bool:  # noqa: ARG002
        """Return False: a plain expression is one column."""
        return False

    def reading(self, column: SqlColumn, item: Item) -> Reading:
        """Return the text of the combination."""
        each = [marked(own, names_null(item)) for own in (column, *column.others)]
        return Reading(_joined([own.extract for own in each]), _joined([own.replayed for own in each]))


class WideCross(WideCategories, Cross):
    """Combinations so many that most weights would be 0."""

    name: ClassVar[str] = "wide_cross"


def _joined(texts: Sequence[Around]) -> Around:
    """Return the SQL of several texts with a sign between them that has a backslash before it within them."""
    parts = ["(replace("]
    for place, (before, after) in enumerate(texts):
        parts[-1] += before
        last = place + 1 == len(texts)
        parts.append(f"{after}, {_SIGN}, {_ESCAPED})" + (")" if last else f" || '{_BETWEEN}' || replace("))
    return tuple(parts)
