"""``%load_ext grouplearn``: SQL cells in Jupyter and IPython.

``%grouplearn [path]`` opens a database; ``%%gl`` (and ``%%sql``, where nobody else provides it) runs a cell::

    %%gl                     -- shows the result
    %%gl best <<             -- puts the result, a DuckDB relation, into the variable best
    %%gl connection          -- runs on a connection of your own, from then on
    SELECT * FROM df WHERE x > $threshold      -- data frames and $parameters are Python variables
"""

from __future__ import annotations

import contextlib
import keyword
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, cast

import duckdb

from grouplearn.errors import Cancelled, Error, ProgrammingError
from grouplearn.frontends.completion import completions
from grouplearn.frontends.notebook.model_table import SHOWN_ROWS, find_model, ordered, relation_html, rendered
from grouplearn.frontends.python.call_errors import shortened_errors
from grouplearn.frontends.python.dbapi import Connection, connect, wrap
from grouplearn.frontends.python.interrupts import interruptible
from grouplearn.frontends.python.model import Model
from grouplearn.frontends.python.pieces import sendable
from grouplearn.frontends.python.scope import Scope
from grouplearn.frontends.report.drawing import rounded, shortened
from grouplearn.frontends.shell.console import interruption, is_answer, is_report, relation_of, statements
from grouplearn.frontends.shell.output import for_people, is_number
from grouplearn.plan.explain.gantt import text as escaped
from grouplearn.statements.result_sql import measures
from grouplearn.visible import visible_lines

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_USAGE = "Usage: %grouplearn [path] [--readonly]"
_OWN_MAGICS = ("gl", "grouplearn")
#: The name of our completions among IPython's.
_MATCHER = "grouplearn"
#: A cell of ours, and the statement of a line of ours.
_CELL, _LINE = re.compile(r"\s*%%(gl|sql)\b"), re.compile(r"\s*%(?:gl|sql)\s(?:\s*\w+\s*<<)?(.*)")
_Magic = TypeVar("_Magic", bound=Callable[..., Any])


def _not_expanded(magic: _Magic) -> _Magic:
    """Mark a magic whose line IPython must not expand: it would replace ``$name`` and ``{name}`` by text in the SQL.

    ``IPython.core.magic.no_var_expand`` does the same, but importing IPython is slow.
    """
    magic._ipython_magic_no_var_expand = True  # type: ignore[attr-defined]
    return magic


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics, ``%sql`` only if no other extension has."""
    magics = SqlMagics(shell)
    shell.register_magic_function(magics.open, "line", "grouplearn")
    shell.register_magic_function(magics.run, "line_cell", "gl")
    _formatters(shell)[duckdb.DuckDBPyRelation] = relation_html
    shell.Completer.custom_matchers.append(magics.matcher())
    if shell.find_line_magic("sql") is None and shell.find_cell_magic("sql") is None:
        shell.register_magic_function(magics.run, "line_cell", "sql")


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics, ``%sql`` only if it is still ours."""
    functions = shell.magics_manager.magics
    _formatters(shell).pop(duckdb.DuckDBPyRelation, None)
    matchers = shell.Completer.custom_matchers
    matchers[:] = [each for each in matchers if getattr(each, "matcher_identifier", None) != _MATCHER]
    for kind in ("line", "cell"):
        for name in (*_OWN_MAGICS, "sql"):
            owner = getattr(functions[kind].get(name), "__self__", None)
            if isinstance(owner, SqlMagics):
                del functions[kind][name]


def _formatters(shell: InteractiveShell) -> dict[Any, Any]:
    """Return the HTML formatters, which also show model tables that ``con.sql()`` returned."""
    formatters: dict[Any, Any] = shell.display_formatter.formatters["text/html"].type_printers
    return formatters


class SqlMagics:
    """The magics of one IPython shell and the connection they use."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._connection: Connection | None = None

    def open(self, line: str) -> None:
        """``%grouplearn [path] [--readonly]``: open a database (default: in memory) for the cells that follow."""
        with _without_traceback():
            words = _words(line)
            paths = [word for word in words if word not in ("-readonly", "--readonly")]
            if len(paths) > 1 or any(path.startswith("-") for path in paths):
                raise ProgrammingError(_USAGE)
            path = paths[0] if paths else ":memory:"
            opened = connect(path, read_only=len(words) > len(paths))
            if self._connection is not None:
                self._connection.close()
            self._connection = opened

    @_not_expanded
    def run(self, line: str, cell: str | None = None) -> Any:
        """``%gl statement``, or ``%%gl [connection] [name <<]`` above a cell of statements."""
        with _without_traceback():
            header, text = self._split_line(line) if cell is None else (line, cell)
            target = self._read_header(header)
            return self._answer(text, target)

    def matcher(self) -> Callable[[Any], Any]:
        """Return what IPython asks for completions: those of SQL in cells and lines of ours, alone."""
        from IPython.core.completer import SimpleCompletion, context_matcher

        def match(context: Any) -> Any:
            before = "\n".join(context.full_text.split("\n")[: context.cursor_line + 1])
            before = before[: len(before) - len(before.rsplit("\n", 1)[-1]) + context.cursor_position]
            sql = _sql_before(before)
            if sql is None:
                return {"completions": []}
            word, found = completions(sql, self._opened())
            shown = [SimpleCompletion(each, type="sql") for each in found]
            return {"completions": shown, "matched_fragment": word, "suppress": True}

        return cast("Callable[[Any], Any]", context_matcher(identifier=_MATCHER)(match))

    def _split_line(self, line: str) -> tuple[str, str]:
        """Split ``%gl name << SELECT ...`` and ``%gl connection`` into their header and their statement."""
        name, arrow, statement = line.partition("<<")
        if arrow and name.strip().isidentifier():  # _read_header reports keywords
            return f"{name.strip()} <<", statement
        is_connection = isinstance(self._shell.user_ns.get(line.strip()), Connection | duckdb.DuckDBPyConnection)
        return (line, "") if is_connection else ("", line)

    def _read_header(self, header: str) -> str | None:
        """Switch to the connection named in the header, if any; return the variable for the result."""
        words = header.split()
        target = None
        if words and words[-1] == "<<":
            if len(words) < 2 or not words[-2].isidentifier() or keyword.iskeyword(words[-2]):
                raise ProgrammingError(f'"{header.strip()}": write the name of a variable before <<')
            target, words = words[-2], words[:-2]
        if words:
            self._connection = self._named_connection(words)
        return target

    def _named_connection(self, words: list[str]) -> Connection:
        value = self._shell.user_ns.get(words[0])
        if len(words) > 1 or not isinstance(value, Connection | duckdb.DuckDBPyConnection):
            raise ProgrammingError(
                f'"{" ".join(words)}" is not a connection\n\n'
                "Hint: write the statement on the lines below %%gl; above them may stand a connection and a name <<"
            )
        return value if isinstance(value, Connection) else wrap(value)

    def _answer(self, text: str, target: str | None) -> Any:
        text, connection = sendable(text), self._opened()
        with interruptible(connection.interrupt, at_once=True):
            with connection.plans_as("text" if target or self._in_terminal() else "html"):
                relation = self._run(connection, text)
            if target is None:
                last = [*statements(text)][-1:]
                return None if relation is None or is_report(relation) else self._shown(relation, "".join(last))
            self._shell.user_ns[target] = relation
            return None

    def _opened(self) -> Connection:
        """Return the connection of the cells, by default to a database in memory."""
        if self._connection is None:
            self._connection = connect()
        return self._connection

    def _in_terminal(self) -> bool:
        """Whether output is text: a terminal would print HTML source."""
        from IPython.terminal.interactiveshell import TerminalInteractiveShell

        return isinstance(self._shell, TerminalInteractiveShell)

    def _shown(self, relation: duckdb.DuckDBPyRelation, text: str) -> Any:
        if not _is_plan(text) or relation.columns != ["plan"]:
            return ShownResult.of(relation, self._connection, text)
        return ShownPlan("\n".join(row[0] for row in relation.fetchall()))

    def _run(self, connection: Connection, text: str) -> duckdb.DuckDBPyRelation | None:
        names = self._shell.user_ns
        relation = None
        for statement in statements(text):
            relation = relation_of(connection, statement, _parameters(statement, names), Scope(names, names))
        return relation


def _sql_before(text: str) -> str | None:
    """Return the SQL before the cursor in a cell or a line of ours, None anywhere else."""
    head, newline, cell = text.partition("\n")
    if newline and _CELL.match(head):
        return cell
    line = _LINE.match(text.rsplit("\n", 1)[-1])
    return line[1] if line else None


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        raise ProgrammingError(
            f"{line.strip()}: a quote is not closed, or a backslash is the last character\n\n{_USAGE}"
        ) from None


@contextlib.contextmanager
def _without_traceback() -> Iterator[None]:
    """Let a database error fail the cell with its message (caret included) and no traceback."""
    try:
        with shortened_errors():
            yield
    except KeyboardInterrupt as stopped:
        raise _message_only(Cancelled(interruption(stopped))) from stopped
    except Error as error:
        raise _message_only(error) from None


def _message_only(error: Error) -> Error:
    """Attach the method by which IPython shows an exception."""
    error._render_traceback_ = lambda: visible_lines(str(error)).split("\n")  # type: ignore[attr-defined]
    return error


def _parameters(text: str, names: dict[str, Any]) -> dict[str, Any] | None:
    """Return the values of the ``$name`` parameters in ``text`` from the user's variables; None when there are none."""
    wanted = parameters_in(text)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise ProgrammingError(f"${missing[0]} is not a variable of this notebook")
    return {name: names[name] for name in wanted} or None


def parameters_in(text: str) -> list[str]:
    """Return the names of ``$name`` parameters, as DuckDB's tokenizer finds them (not in strings or comments)."""
    data = text.encode()  # token positions are in bytes
    starts = [start for start, _ in duckdb.tokenize(text)]
    tokens = [data[start:end].decode().strip() for start, end in pairwise([*starts, len(data)])]
    named = (token for sign, token in pairwise(tokens) if sign == "$" and token.isidentifier())
    return list(dict.fromkeys(named))


def _is_plan(text: str) -> bool:
    """Whether the last statement is our EXPLAIN: only then is the result HTML of ours, not a user's text."""
    from grouplearn.parser.parse import parse
    from grouplearn.parser.statements import ExplainTrain

    last = [statement for piece in statements(text) for statement in parse(piece)][-1:]
    return bool(last) and isinstance(last[0], ExplainTrain) and last[0].format in (None, "html")


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """EXPLAIN TRAIN in a notebook: HTML, or lines of text in a terminal."""

    page: str

    def __repr__(self) -> str:
        return self.page

    def _repr_html_(self) -> str:
        return self.page


@dataclass(frozen=True, slots=True)
class ShownResult:
    """A result in a notebook: the first rows; ``relation`` has all.

    For a model table, ``model`` is the :class:`~grouplearn.frontends.python.model.Model`, with its plots:
    ``_.model.plot.curves()``. ``rounded`` columns are shown with four digits, and with all of them as a tooltip.
    """

    relation: duckdb.DuckDBPyRelation
    text: str
    names: list[str]
    types: list[str]
    rows: list[tuple[str | None, ...]]
    has_more: bool
    model: Model | None = None
    page: str | None = None
    rounded: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, relation: duckdb.DuckDBPyRelation, connection: Connection | None = None, statement: str = ""
    ) -> ShownResult:
        """Read the first rows of the result of ``statement``."""
        native = None if connection is None else connection.native
        stored = None if native is None else find_model(native, statement, relation.columns)
        page = model = None
        if native is not None and stored is not None:
            model, page = Model(native, stored), rendered(relation, native, stored, statement)
            relation = ordered(relation, stored, statement)
        first = relation.limit(SHOWN_ROWS + 1).materialize()
        rows = first.project("CAST(COLUMNS(*) AS VARCHAR)").fetchall()
        types = [str(kind) for kind in relation.types]
        has_more = len(rows) > SHOWN_ROWS
        ours = is_answer(statement)
        text = visible_lines(str(for_people(first) if ours else first))
        short = frozenset(measures(relation.columns, types) if ours else ())
        return cls(relation, text, relation.columns, types, rows[:SHOWN_ROWS], has_more, model, page, short)

    def df(self) -> Any:
        """Return every row as a pandas DataFrame."""
        return self.relation.df()

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        if self.page is not None:
            return self.page
        if self.names == ["plan"]:  # EXPLAIN: aligned lines
            return f"<pre>{escaped(chr(10).join(row[0] or '' for row in self.rows))}</pre>"
        heads = "".join(
            f'<th style="text-align: left; padding: 2px 8px">{escaped(name)}<br>'
            f'<small style="font-weight: normal; opacity: 0.6">{escaped(kind.lower())}</small></th>'
            for name, kind in zip(self.names, self.types, strict=True)
        )
        body = "\n".join(self._row(row) for row in self.rows)
        count = f"{len(self.rows):,} row{'' if len(self.rows) == 1 else 's'}"
        note = f"the first {count}" if self.has_more else count
        return f"<table><thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table><small>{note}</small>"

    def _row(self, row: tuple[str | None, ...]) -> str:
        most = _DESCRIPTION_CHARACTERS if self.names == ["property", "value"] else _CELL_CHARACTERS
        columns = zip(self.names, row, self.types, strict=True)
        return f"<tr>{''.join(_cell(value, kind, most, name in self.rounded) for name, value, kind in columns)}</tr>"


def _cell(value: str | None, kind: str, most: int, is_rounded: bool) -> str:
    short = rounded(value) if is_rounded else value
    shown = '<span style="opacity: 0.5">NULL</span>' if short is None else escaped(shortened(short, most))
    side = "right" if is_number(kind) else "left"
    hint = "" if short == value else f' title="{escaped(value or "")}"'
    return f'<td style="text-align: {side}; padding: 2px 8px; white-space: pre"{hint}>{shown}</td>'


_CELL_CHARACTERS, _DESCRIPTION_CHARACTERS = 200, 4000
