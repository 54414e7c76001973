"""The error for a model with invalid catalog rows: it names the model and the table, and how to remove it."""

from __future__ import annotations

from grouplearn import sqltext
from grouplearn.catalog.checks.tables import SCHEMA
from grouplearn.errors import DataError, data_error

_LONGEST = 80


def damaged(catalog: str | None, name: str, part: str, why: str) -> DataError:
    """Return the error that table ``part`` of a model is invalid in the way it describes."""
    written = sqltext.written(name)
    where = ".".join(filter(None, (catalog, SCHEMA, part)))
    return data_error(
        f'model "{name}" is damaged: in table {where}, {why}.\n\n'
        f"Hint: DROP MODEL {written} removes it, TRAIN OR REPLACE MODEL {written} trains it again"
    )


def shown(value: object) -> str:
    """Return a value for an error message, cut if long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
