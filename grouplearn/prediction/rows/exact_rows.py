"""Rows with values that Arrow changes: a BIT becomes bytes, a TIMETZ loses its zone, a HUGEINT has at most 38 digits."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa

from grouplearn.catalog.predicting_connections import INEXACT_TYPES
from grouplearn.errors import data_error
from grouplearn.parser.lexer.tokens import lex, unquote
from grouplearn.sqltext import identifier, literal, shown

_TEXT = "__grouplearn_json"


@dataclass(frozen=True, slots=True)
class ExactRows:
    """The SQL type of rows, a STRUCT, and each row as JSON."""

    type: str
    texts: Any

    def take(self, places: Any) -> ExactRows:
        """Return some of the rows."""
        return ExactRows(self.type, self.texts.take(places))

    def beside(self, batch: Any) -> Any:
        """Return the rows' Arrow table with their JSON as a further column."""
        return batch.append_column(_TEXT, self.texts.cast(pa.string()))

    def source(self, relation: str) -> str:
        """Return the query that restores the original values from such a table."""
        read = [
            f"CAST(json_extract_string({_TEXT}, {literal(_pointer(name))}) AS {kind}) AS {identifier(name)}"
            for name, kind in _fields(self.type)
            if kind in INEXACT_TYPES
        ]
        replaced = f" REPLACE ({', '.join(read)})" if read else ""
        return f"(SELECT * EXCLUDE ({_TEXT}){replaced} FROM {relation})"


def _fields(kind: str) -> list[tuple[str, str]]:
    """Return the names and types of a STRUCT's fields, as DuckDB writes it; raises DataError for anything else.

    DuckDB is not asked, as it would install an extension for a type in an untrusted table.
    """
    tokens = [*lex(kind)]
    depths = [*accumulate(token.is_symbol("(") - token.is_symbol(")") for token in tokens)]
    inside = depths[1:-1]
    is_one = len(tokens) > 3 and not (depths[0] or depths[-1]) and all(each > 0 for each in inside)
    if not is_one or tokens[0].word not in ("STRUCT", "TUPLE"):
        raise data_error(f"{shown(kind)} is not a type of rows")
    if tokens[0].word == "TUPLE":  # its fields have no names
        return []
    commas = [place for place, token in enumerate(tokens) if depths[place] == 1 and token.is_symbol(",")]
    names = [tokens[place + 1] for place in (1, *commas)]
    ends = [tokens[place].start for place in (*commas, -1)]
    return [(unquote(name), kind[name.end : end].strip()) for name, end in zip(names, ends, strict=True)]


def _pointer(name: str) -> str:
    """Return a field's JSON pointer."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
