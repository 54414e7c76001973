"""DuckDB checks the SQL inside our clauses: queries are built from fragments, and errors point at the user's text."""

from __future__ import annotations

import bisect
import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import duckdb

from grouplearn.bind.sql.external_access import ExternalAccess
from grouplearn.errors import BindError, Error, TrainingError
from grouplearn.interrupting import with_checks
from grouplearn.messages import Span, cells
from grouplearn.parser.lexer.keywords import quoting
from grouplearn.parser.statements import Sql
from grouplearn.sqltext import Typed

#: A query as literal text and user fragments; each fragment has its own lines, so that DuckDB's line number identifies it.
Pieces = tuple[str | Sql, ...]

_LOCATION = re.compile(r"\n\nLINE (\d+): (.*)\n( *)(\^+)", re.DOTALL)
_NAME = re.compile(r'^Referenced \w+ "([^"]+)"')
_CAST = re.compile(r"^Could not convert \w+ '.*' to .+? when casting from source column (.+)$", re.DOTALL)
#: Constants that Python reads as DuckDB does.
_PLAIN = re.compile(
    r"(?P<integer>-?[0-9]{1,18})|(?P<decimal>-?[0-9]{1,9}\.[0-9]{1,9})|(?P<double>-?[0-9]{1,9}(?:\.[0-9]{1,9})?[eE]-?[0-9]{1,2})"
    r"|'(?P<text>[^'\0]*)'"
)
_IN_PYTHON: dict[str, Callable[[str], Any]] = {
    "integer": int,
    "decimal": lambda text: Decimal(text) + 0,
    "double": float,
    "text": str,
}
#: Types some of whose values Python does not have: infinite dates, nanoseconds; or has under another text.
_OTHER = re.compile(r"DATE|TIME.*|INTERVAL|BLOB|BIT|UUID|GEOMETRY.*|BIGNUM")
_GROUPS = re.compile(r"\bgroup\s+by\b|\bhaving\b", re.IGNORECASE)
_KIND = re.compile(r"^(\w+(?: \w+)?) Error: ")

_ABORTED = "transaction is aborted"
_OUT_OF_MEMORY = "DuckDB did not have enough memory to read the rows, so nothing was trained"
_MORE_MEMORY = "Give it more with a higher memory_limit, or let fewer threads share it: SET threads = 1."
_OUT_OF_DISK = "DuckDB did not have enough room in its temporary directory to sort the rows, so nothing was trained"
_MORE_DISK = (
    "Give it more with a higher max_temp_directory_size, or a temp_directory on a disk that has room. With a higher memory_limit"
    " it needs less."
)
_TRY_CAST = "TRY_CAST(column AS type) makes NULL of such values, here or in the view that FROM reads."
_AGGREGATE = "an aggregate has no value of its own for each row"
_AGGREGATE_HINT = "Aggregate in a subquery: (SELECT max(x) FROM ...), or in FROM (SELECT ..., max(x) OVER (...) ...)."


@dataclass(frozen=True, slots=True)
class Column:
    """A result column: its name and DuckDB type as text."""

    name: str
    type: str


class SqlChecker:
    """Runs queries built from fragments of one statement on the user's own connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, text: str) -> None:
        self.connection = connection
        self.text = text
        #: What the statement may use outside the database.
        self.outside = ExternalAccess(connection)
        self._trees: dict[str, str] = {}
        #: DuckDB's last error and its query: later queries of the aborted transaction do not repeat it.
        self._refused: tuple[duckdb.Error, Pieces] | None = None

    def rows(self, *pieces: str | Sql) -> list[tuple[Any, ...]]:
        """Run the query and return its rows; a DuckDB error becomes a BindError with a caret in the user's text."""
        try:
            return self.connection.execute(_assemble(pieces)).fetchall()
        except duckdb.Error as error:
            self.refuse(error, pieces)

    def describe(self, *pieces: str | Sql) -> tuple[Column, ...]:
        """Return the columns of the query without running it."""
        columns, refused = self._tried(pieces)
        if refused is None:
            return columns
        try:
            # When executed as a statement, the error has a position.
            described = self.connection.execute(_assemble(("DESCRIBE", *pieces))).fetchall()
        except duckdb.Error as error:
            self.refuse(error, ("DESCRIBE", *pieces))
        return tuple(Column(row[0], row[1]) for row in described)

    def tried(self, *pieces: str | Sql) -> tuple[tuple[Column, ...], str]:
        """Return the columns of the query and no text, or none and why DuckDB refuses it.

        Unlike a refused statement, this check does not abort the transaction.
        """
        columns, refused = self._tried(pieces)
        return columns, "" if refused is None else str(refused)

    def _tried(self, pieces: Pieces) -> tuple[tuple[Column, ...], duckdb.Error | None]:
        try:
            query = self.connection.sql(_assemble(pieces))
            found = zip(query.columns, query.types, strict=True)
            return tuple(Column(name, str(kind)) for name, kind in found), None
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            if _ABORTED not in str(error):
                self._refused = error, pieces
            return (), error

    def constant(self, fragment: Sql) -> Any:
        """Return the value of a constant expression; a plain number or string needs no query."""
        plain = _PLAIN.fullmatch(fragment.text.strip())
        if plain is None or plain.lastgroup is None:
            select = "SELECT v, typeof(v), CAST(v AS VARCHAR) FROM (SELECT ("
            return _in_python(*self.rows(select, fragment, ") AS v)")[0])
        return _IN_PYTHON[plain.lastgroup](plain[plain.lastgroup])

    def values(self, *pieces: str | Sql) -> list[tuple[Any, ...]]:
        """Return the rows of a query, each value as ``constant`` returns it."""
        rows, kinds = self.rows(*pieces), [column.type for column in self.describe(*pieces)]
        if not any(map(_OTHER.fullmatch, kinds)):
            return rows
        texts = self.rows("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (", *pieces, ")")
        return [tuple(map(_in_python, row, kinds, text)) for row, text in zip(rows, texts, strict=True)]

    def tree(self, query: str) -> dict[str, Any] | None:
        """Return DuckDB's parse tree of a query, which the caller may change; None if it is not valid SQL."""
        if query not in self._trees:
            self.read_ahead([query])
        tree: dict[str, Any] = json.loads(self._trees[query])
        return None if tree["error"] else tree

    def read_ahead(self, queries: Sequence[str]) -> None:
        """Parse in one query all queries whose trees will be needed."""
        told = "SELECT system.main.json_serialize_sql(query) FROM (SELECT unnest(?::VARCHAR[]) AS query)"
        distinct = list(dict.fromkeys(queries))
        try:
            rows = self.connection.execute(told, [distinct]).fetchall()
        except duckdb.Error as error:  # a query tried before may have aborted the transaction
            self.refuse(error, ())
        self._trees.update(zip(distinct, (row[0] for row in rows), strict=True))

    def constants(self, fragments: Sequence[Sql]) -> list[Any]:
        """Return the values of constant expressions; before each query an interrupt is checked."""
        return [self.constant(fragment) for fragment in with_checks(fragments)]

    def refuse(self, error: duckdb.Error, pieces: Pieces) -> NoReturn:
        """Raise ``error`` as a BindError, its caret moved from the assembled query to the user's statement."""
        if isinstance(error, duckdb.InterruptException):
            raise error
        if _ABORTED in str(error) and self._refused is not None:
            # DuckDB expands some statements (PIVOT) into several, which abort the transaction when they fail.
            error, pieces = self._refused
        message = str(error)
        if "Out of Memory Error: " in message:
            if "'max_temp_directory_size' setting" in message:
                raise TrainingError(_OUT_OF_DISK, hint=_MORE_DISK) from None
            raise TrainingError(_OUT_OF_MEMORY, hint=_MORE_MEMORY) from None
        location = _LOCATION.search(message)
        head = _KIND.sub("", message[: location.start()] if location else message).strip()
        lines = [line for line in head.split("\n") if line.strip()]
        span = (self._span(location, pieces) if location else None) or self._named_span(head, pieces)
        if location and head.startswith("syntax error"):
            word = self.text[span.start : span.end] if span else ""
            if cut := _cut_at_line(int(location.group(1)), pieces):
                word = cut.text.strip()
                lines, span = ["this is not a whole expression"], cut.span
            raise BindError("\n".join(lines[:3]), text=self.text, span=span, hint=quoting(word)) from None
        if "must appear in the GROUP BY clause" in head and not _groups(pieces):
            # DuckDB points at the column that is none.
            whole = _fragment_at_line(int(location.group(1)), pieces) if location else None
            span = whole.span if whole else span
            raise BindError(_AGGREGATE, text=self.text, span=span, hint=_AGGREGATE_HINT) from None
        cast = _CAST.fullmatch(head)
        if cast and span is None:
            span = self._place(cast[1], pieces)
        # More lines (say the full list of overloads) would hide the error.
        raise BindError("\n".join(lines[:3]), text=self.text, span=span, hint=_TRY_CAST if cast else None) from None

    def _span(self, location: re.Match[str], pieces: Pieces) -> Span | None:
        fragment = _fragment_at_line(int(location.group(1)), pieces)
        if fragment is None:
            return None
        before, token = _around_caret(location)
        within = fragment.span
        # The text before the token tells it from the same word elsewhere, such as in a string.
        wide = fragment.searched or within
        found = self.text.find(before + token, wide.start, wide.end)
        found = found + len(before) if found >= 0 else self.text.find(token, wide.start, wide.end)
        return Span(found, found + len(token)) if token and found >= 0 else within

    def _named_span(self, head: str, pieces: Pieces) -> Span | None:
        """Return where the name at the start of DuckDB's message is written, if in exactly one place."""
        name = _NAME.search(head)
        return (self._place(name[1], pieces) if name else None) or _only_span(pieces)

    def _place(self, name: str, pieces: Pieces) -> Span | None:
        """Return where a name is written in the fragments, if in exactly one place."""
        places = [
            Span(piece.span.start + found.start(), piece.span.start + found.end())
            for piece in pieces
            if isinstance(piece, Sql)
            for found in re.finditer(rf"\b{re.escape(name)}\b", self.text[piece.span.start : piece.span.end])
        ]
        return places[0] if len(places) == 1 else None

    def error(self, message: str, span: Span | None, hint: str | None = None) -> Error:
        """Return a BindError about the statement."""
        return BindError(message, text=self.text, span=span, hint=hint)


def _in_python(value: Any, kind: str, text: str | None) -> Any:
    """Return a constant as a Python object that is the same value."""
    if text is None or _OTHER.fullmatch(kind) is None:
        return value
    return int(text) if kind == "BIGNUM" else Typed(text, kind)


def _groups(pieces: Pieces) -> bool:
    """Whether a query groups rows, in our part or the user's."""
    return any(_GROUPS.search(piece if isinstance(piece, str) else piece.text) for piece in pieces)


def _around_caret(location: re.Match[str]) -> tuple[str, str]:
    """Return what DuckDB shows before the token it points at, and the token; columns are counted as terminal columns."""
    number, line, spaces, carets = location.groups()
    first = len(spaces) - len(f"LINE {number}: ")
    ends = list(itertools.accumulate(map(cells, line), initial=0))
    start, end = bisect.bisect_left(ends, first), bisect.bisect_left(ends, first + len(carets))
    return line[:start].removeprefix("..."), line[start:end]


def _assemble(pieces: Pieces) -> str:
    return "\n".join(piece if isinstance(piece, str) else piece.text for piece in pieces)


def _fragment_at_line(line: int, pieces: Pieces) -> Sql | None:
    first = 1
    for piece in pieces:
        text = piece if isinstance(piece, str) else piece.text
        last = first + text.count("\n")
        if first <= line <= last:
            return piece if isinstance(piece, Sql) else None
        first = last + 1
    return None


def _cut_at_line(line: int, pieces: Pieces) -> Sql | None:
    """Return the fragment after which our part of a query begins, if DuckDB stumbles over the beginning of that part."""
    first, before = 1, None
    for piece in pieces:
        if line == first:
            return before if isinstance(piece, str) else None
        first += (piece if isinstance(piece, str) else piece.text).count("\n") + 1
        before = piece if isinstance(piece, Sql) else None
    return None


def _only_span(pieces: Pieces) -> Span | None:
    """Return where the only fragment is, or the only one before FROM, which was looked at before."""
    selected = itertools.takewhile(lambda piece: isinstance(piece, Sql) or not piece.startswith("FROM"), pieces)
    for some in (pieces, selected):
        spans = [piece.span for piece in some if isinstance(piece, Sql)]
        if len(spans) == 1:
            return spans[0]
    return None
