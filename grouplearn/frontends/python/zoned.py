"""Rows with TIMESTAMP WITH TIME ZONE where ``pytz`` is not installed, without which DuckDB fetches none: by way of Arrow."""

from __future__ import annotations

import importlib.util
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from grouplearn.errors import MissingDependency

_ZONED = "TIMESTAMP WITH TIME ZONE"
#: Types whose values Arrow makes the same Python objects of as DuckDB does.
_PLAIN = re.compile(
    r"(BOOLEAN|U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|VARCHAR|BLOB|DATE|TIME|TIMESTAMP( WITH TIME ZONE)?"
    r'|DECIMAL\(\d+,\d+\)|"NULL")(\[\])*'
)
#: What becomes of others.
_OTHERS: Mapping[str, Callable[[Any], Any]] = {"HUGEINT": int, "UHUGEINT": int, "UUID": uuid.UUID}


def needs_pytz(types: Sequence[str]) -> bool:
    """Return whether DuckDB would miss ``pytz`` to fetch rows of these types."""
    return any(_ZONED in kind for kind in types) and importlib.util.find_spec("pytz") is None


def rows_of(types: Sequence[str], arrow: Callable[[], Any]) -> Iterator[tuple[Any, ...]]:
    """Return the rows of what ``arrow`` returns as DuckDB would fetch them, in zones of ``zoneinfo``.

    Raises MissingDependency for types, and points in time, of which Arrow makes no such Python objects.
    """
    if not all(_PLAIN.fullmatch(kind) or kind in _OTHERS for kind in types):
        raise _missing()
    table = arrow()
    try:
        columns = [_values(column, _OTHERS.get(kind)) for column, kind in zip(table.columns, types, strict=True)]
    except (OverflowError, ValueError) as error:  # infinity, or a year that Python has not
        raise _missing() from error
    return zip(*columns, strict=True)


def _values(column: Any, convert: Callable[[Any], Any] | None) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _missing() -> MissingDependency:
    message = f"rows with {_ZONED} are fetched by pytz, which is not installed"
    return MissingDependency(message, hint="pip install pytz, or read them with arrow().")
