"""Rows with values that DuckDB's Arrow changes: a BIT is bytes there, a TIMETZ has no zone, a HUGEINT 38 digits at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from grouplearn.catalog.asking import INEXACT_TYPES
from grouplearn.catalog.sessions import type_of
from grouplearn.sqltext import identifier, literal

_TEXT = "__grouplearn_json"


@dataclass(frozen=True, slots=True)
class ExactRows:
    """The SQL type of rows, a STRUCT, and each of them as JSON."""

    type: str
    texts: Any

    def take(self, places: Any) -> ExactRows:
        """Return some of the rows."""
        return ExactRows(self.type, self.texts.take(places))

    def beside(self, batch: Any) -> Any:
        """Return the Arrow table of the rows with their JSON as a further column."""
        return batch.append_column(_TEXT, self.texts.cast(pa.string()))

    def source(self, cursor: duckdb.DuckDBPyConnection, relation: str) -> str:
        """Return the query that reads such a table with the values as they were."""
        columns = cursor.execute(f"DESCRIBE SELECT unnest(CAST(NULL AS {type_of(cursor, self.type)}))").fetchall()
        read = [
            f"CAST(json_extract_string({_TEXT}, {literal(_pointer(name))}) AS {kind}) AS {identifier(name)}"
            for name, kind, *_ in columns
            if kind in INEXACT_TYPES
        ]
        replaced = f" REPLACE ({', '.join(read)})" if read else ""
        return f"(SELECT * EXCLUDE ({_TEXT}){replaced} FROM {relation})"


def _pointer(name: str) -> str:
    """Return the JSON pointer of a field."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
