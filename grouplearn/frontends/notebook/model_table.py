"""A model table in a notebook: best trials first, status, metrics, learning curves as sparklines.

Colours are tints of the page's, so that both light and dark pages are readable; all data are escaped.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from grouplearn.catalog import naming
from grouplearn.catalog.checks import trust
from grouplearn.catalog.lookup.attached import Attachments, attachments_of
from grouplearn.catalog.models import load_by_id
from grouplearn.catalog.overview import Curve, Overview, drawn, identity_columns, identity_sql
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import databases_with_models, table
from grouplearn.errors import Error
from grouplearn.frontends.report.drawing import ACCENT, GREY, aligned, rounded, shortened, sparkline
from grouplearn.frontends.shell.output import is_number
from grouplearn.plan.explain.gantt import text
from grouplearn.prediction.prediction import predictor_for
from grouplearn.sqltext import folded, identifier, literal, string

SHOWN_ROWS = 50
_METRIC = re.compile(r"(?:train|valid)_\w+")
_ORDERED = re.compile(r"\border\s+by\b", re.IGNORECASE)
_LONGEST = 200
_NULL = '<span class="null">NULL</span>'
#: A model table has one of these columns besides those that identify a trial.
_FACTS = frozenset({"status", "is_best", "n_rows", "epochs"})
#: How a group's rows were used: less interesting than metrics, so shown after them.
_COUNTS = frozenset({"n_train", "n_valid", "n_skipped"})
#: Most parent groups without a model that are listed.
_MOST_MISSING = 3
#: The class is doubled to override the notebook's style for all tables.
STYLE = """
.grouplearn-table { font-size: 13px; line-height: 1.35 }
.grouplearn-table .scroll { overflow-x: auto }
.grouplearn-table.grouplearn-table table { border-collapse: collapse; margin: 0; color: inherit; font-size: inherit }
.grouplearn-table.grouplearn-table tbody tr { background: none }
.grouplearn-table.grouplearn-table th, .grouplearn-table.grouplearn-table td { padding: 3px 10px; text-align: left;
  white-space: pre; vertical-align: middle; border: 0; border-bottom: 1px solid rgba(128, 128, 128, 0.25);
  background: none; color: inherit; max-width: none }
.grouplearn-table.grouplearn-table th { font-weight: 600; vertical-align: bottom }
.grouplearn-table th small { display: block; font-weight: normal; opacity: 0.6 }
.grouplearn-table.grouplearn-table .number { text-align: right; font-variant-numeric: tabular-nums }
.grouplearn-table.grouplearn-table tr.best td { background: rgba(46, 158, 91, 0.17) }
.grouplearn-table tr.failed td { opacity: 0.75 }
.grouplearn-table .null { opacity: 0.5; font-weight: normal }
.grouplearn-table .dot { display: inline-block; width: 8px; height: 8px; border-radius: 50%; margin-right: 6px;
  background: #888 }
.grouplearn-table .dot.done { background: #2e9e5b }
.grouplearn-table .dot.stopped, .grouplearn-table .dot.kept { background: #c98a00 }
.grouplearn-table .dot.failed { background: #d9483b }
.grouplearn-table .warning { border-left: 4px solid #d9483b; padding: 2px 10px; margin: 0 0 8px; overflow-wrap: anywhere }
.grouplearn-table .warning p { margin: 2px 0 }
.grouplearn-table .note { opacity: 0.7; margin: 4px 0 }
"""


@dataclass(frozen=True, slots=True)
class Cells:
    """The shown rows, as text, and the sparklines of their curves.

    ``constant`` are the numbers of columns with one value in all rows, including rows that are not shown.
    """

    names: list[str]
    types: list[str]
    rows: list[tuple[str | None, ...]]
    curves: dict[int, str]
    has_more: bool
    constant: frozenset[int] = frozenset()
    failed: str = ""


def find_model(connection: duckdb.DuckDBPyConnection, statement: str, columns: Sequence[str]) -> StoredModel | None:
    """Return the model that ``statement`` names, if its result's ``columns`` identify trials, else None."""
    present = {folded(name) for name in columns}
    if not (present & _FACTS or any(_METRIC.fullmatch(name) for name in present)):
        return None
    with contextlib.suppress(Error, duckdb.Error):  # an aborted transaction, models of another version
        predictor_for(connection).guard.refuse_hidden(connection)
        for catalog, model in _named(connection, statement):
            stored = load_by_id(connection, catalog, model)
            if stored is not None:
                trust.check(connection, stored.definition)
            needed = {folded(name) for name in identity_columns(stored)} - {"model_level"} if stored else set()
            if stored is not None and needed <= present:
                return stored
    return None


def _named(connection: duckdb.DuckDBPyConnection, statement: str) -> Iterator[tuple[str, str]]:
    """Yield the models that a statement names, by database and identity, looked up as their views would be, longest names
    first."""
    here = attachments_of(connection)
    models: dict[tuple[str, str, str], str] = {}
    for catalog in databases_with_models(connection):
        said = literal(statement)
        told = f"contains(lower({said}), lower(model_name)) OR contains({said}, CAST(model AS VARCHAR))"
        query = f"SELECT model::VARCHAR, schema_name, model_name FROM {table(catalog, 'models')} WHERE {told}"
        rows = connection.execute(f"{query} LIMIT {naming.MOST_READ}").fetchall()
        models |= {(catalog, schema, name): model for model, schema, name in rows}
    for own in sorted(models, key=lambda each: len(each[2]), reverse=True):
        is_told = models[own] in statement and re.search(_as_word(own[0]), statement, re.IGNORECASE) is not None
        if is_told or own in _meant(statement, own[2], here, models):
            yield own[0], models[own]


def _as_word(name: str) -> str:
    return rf"(?<!\w){re.escape(name)}(?!\w)"


def _meant(
    statement: str, name: str, here: Attachments, models: Iterable[tuple[str, str, str]]
) -> Iterator[tuple[str, str, str]]:
    """Yield the model of each name mentioned in a statement: its database, schema and name."""
    before = r'((?:(?:"(?:[^"]|"")*"|\w+)\s*\.\s*){0,2})"?'
    for found in re.finditer(before + _as_word(name), statement, re.IGNORECASE):
        parts = re.findall(r'"((?:[^"]|"")*)"|(\w+)', found[1])
        places = naming.places([quoted.replace('""', '"') or plain for quoted, plain in parts], here)
        there = (model for place in places for model in models if naming.is_at(place, name, model))
        yield from itertools.islice(there, 1)


def ordered(relation: duckdb.DuckDBPyRelation, stored: StoredModel, statement: str) -> duckdb.DuckDBPyRelation:
    """Return the rows in the statement's order; if it has none, best trials first and failed ones last."""
    if _ORDERED.search(statement):
        return relation
    direction = "DESC" if stored.definition.greater_is_better else "ASC"
    keys = [("is_best", "{} DESC"), ("status", "{} = 'failed'")]
    keys += [(f"{part}_{stored.definition.metric}", f"{{}} {direction} NULLS LAST") for part in ("valid", "train")]
    names = {folded(name): identifier(name) for name in relation.columns}
    order = [form.format(names[name]) for name, form in keys if name in names]
    return relation.order(", ".join(order)) if order else relation


def rendered(
    relation: duckdb.DuckDBPyRelation, connection: duckdb.DuckDBPyConnection, stored: StoredModel, statement: str = ""
) -> str | None:
    """Return the first rows of a model's trials as HTML; None if they cannot be read."""
    with contextlib.suppress(Error, duckdb.Error):
        first = ordered(relation, stored, statement).limit(SHOWN_ROWS + 1).materialize()
        rows = first.project("CAST(COLUMNS(*) AS VARCHAR)").fetchall()
        curves = _curves(first, connection, stored)
        types = [str(kind) for kind in first.types]
        more = len(rows) > SHOWN_ROWS
        cells = Cells(first.columns, types, rows[:SHOWN_ROWS], curves, more)
        if _is_whole(cells.names, stored):
            constant = _constant(relation if more else None, cells)
            cells = replace(cells, constant=constant, failed=failed_pooled(Overview(connection, stored)))
        return _page(cells, stored)
    return None


def _is_whole(names: Sequence[str], stored: StoredModel) -> bool:
    """Whether a result has all columns of trials, as ``FROM m`` does, and not a user's choice."""
    known = [*identity_columns(stored), "n_rows", "status", "error"]
    present = [folded(name) for name in names]
    return present[: len(known) - 3] == [folded(name) for name in known[:-3]] and set(known[-3:]) <= set(present)


def _constant(relation: duckdb.DuckDBPyRelation | None, cells: Cells) -> frozenset[int]:
    """Return the columns with one value in all rows; for a single row, those with NULL or empty values."""
    if len(cells.rows) < 2:
        return frozenset(place for row in cells.rows for place, value in enumerate(row) if value in (None, "0"))
    shown = [place for place in range(len(cells.names)) if len({row[place] for row in cells.rows}) == 1]
    if relation is None or not shown:
        return frozenset(shown)
    quoted = [identifier(cells.names[place]) for place in shown]
    same = ", ".join(
        f"min({name}) IS NOT DISTINCT FROM max({name}) AND count({name}) IN (0, count(*))" for name in quoted
    )
    (answers,) = relation.aggregate(same).fetchall()
    return frozenset(place for place, answer in zip(shown, answers, strict=True) if answer)


def failed_pooled(overview: Overview) -> str:
    """Return as HTML why parent groups have no model; empty if all have one."""
    found = overview.failed_pooled(_MOST_MISSING + 1)
    places = [(failure, level, keys) for failure in found[:_MOST_MISSING] for level, keys in failure.examples]
    lines = [
        f"<p><b>No model of {text(shortened(overview.label(keys, level), _LONGEST))}</b>: {text(failure.reason)}</p>"
        for failure, level, keys in places
    ]
    more = "<p>There are more of them.</p>" if found[_MOST_MISSING:] else ""
    return f'<div class="warning" role="alert">{"".join(lines)}{more}</div>' if found else ""


def _curves(
    first: duckdb.DuckDBPyRelation, connection: duckdb.DuckDBPyConnection, stored: StoredModel
) -> dict[int, str]:
    """Return the sparklines by row number, for rows that are single trials."""
    present = {folded(name): name for name in first.columns}
    same = " AND ".join(
        f"r.{identifier(present[folded(name)])} IS NOT DISTINCT FROM i.{identifier(name)}"
        for name in identity_columns(stored)
        if folded(name) in present
    )
    query = (
        'SELECT n, min("(group)"), min("(config)") FROM (SELECT *, row_number() OVER () AS n FROM "grouplearn shown") AS r'
        f" JOIN ({identity_sql(stored)}) AS i ON {same or 'true'} GROUP BY n HAVING count(*) = 1"
    )
    found = rows_beside(first, "grouplearn shown", query)
    overview = Overview(connection, stored)
    curves = overview.curves((group, config) for _, group, config in found)
    return {row - 1: _sparkline(overview, curves.get((group, config), [])) for row, group, config in found}


def _sparkline(overview: Overview, curve: Curve) -> str:
    """Draw the held-out metric, or in grey the training loss if there is no metric per epoch."""
    part, points = drawn(curve)
    title = f"{overview.curve_name(part)} over {len(curve)} epochs"
    return sparkline([value for _, value in points], title, colour=ACCENT if part == "valid" else GREY)


def _page(cells: Cells, stored: StoredModel) -> str:
    definition = stored.definition
    names = cells.names
    order, place = _order(cells, stored)
    shown = [_column(names[at], cells.types[at], [row[at] for row in cells.rows]) for at in order]
    heads = [_head(names[at], cells.types[at], stored) for at in order]
    if any(cells.curves.values()):
        heads.insert(place, "<th>curve</th>")
        shown.insert(place, [f"<td>{cells.curves.get(row, '')}</td>" for row in range(len(cells.rows))])
    body = "\n".join(_row(cells, row, "".join(column[row] for column in shown)) for row in range(len(cells.rows)))
    count = f"{len(cells.rows):,} row{'' if len(cells.rows) == 1 else 's'}"
    note = f"the first {count}" if cells.has_more else count
    about = f"{text(definition.name)}: {text(definition.described)}; {note}"
    about += _legend(cells.curves.values(), definition.metric) + _left_out(cells, order)
    return (
        f'<div class="grouplearn-table"><style>{STYLE}</style>{cells.failed}<div class="scroll"><table><thead><tr>'
        f'{"".join(heads)}</tr></thead><tbody>\n{body}\n</tbody></table></div><p class="note">{about}</p></div>'
    )


def _order(cells: Cells, stored: StoredModel) -> tuple[list[int], int]:
    """Return the numbers of the shown columns in order, and the place of the curves among them.

    In a whole model table the optimised metric and the curves follow the group columns, and constant columns are left out.
    """
    known = {folded(name) for name in identity_columns(stored)}
    places = range(len(cells.names))
    if not _is_whole(cells.names, stored):
        # Curves follow the columns that identify a trial, so that they stay visible in wide tables.
        return list(places), max((at for at in places if folded(cells.names[at]) in known), default=-1) + 1
    metric = stored.definition.metric
    optimized = [at for part in ("valid", "train") for at in places if cells.names[at] == f"{part}_{metric}"]
    judged = [at for at in optimized if any(row[at] is not None for row in cells.rows)]
    first = [*range(len(stored.definition.keys)), *(judged or optimized)[:1]]
    rest = [at for at in places if at not in first and at not in cells.constant]
    rest.sort(key=lambda at: cells.names[at] in _COUNTS)
    return [*first, *rest], len(first)


def _left_out(cells: Cells, order: Sequence[int]) -> str:
    """Return the values of the columns that are left out as constant, except uninteresting ones."""
    values = [(cells.names[at], cells.rows[0][at]) for at in sorted(cells.constant - set(order))]
    named = [f"{name} = {shortened(value, _LONGEST)}" for name, value in values if value is not None]
    return text(f"; the same in every row: {', '.join(named)}") if named else ""


def _legend(pictures: Iterable[str], metric: str) -> str:
    """Return the explanation of the sparklines."""
    named = {f"held-out {metric}": ACCENT, "training loss in grey": GREY}
    found = [name for name, colour in named.items() if any(colour in picture for picture in pictures)]
    return text(f"; curves: {', '.join(found)}") if found else ""


def _head(name: str, kind: str, stored: StoredModel) -> str:
    side = ' class="number"' if is_number(kind) else ""
    optimized = name in (f"train_{stored.definition.metric}", f"valid_{stored.definition.metric}")
    arrow = (" ↑" if stored.definition.greater_is_better else " ↓") if optimized else ""
    return f"<th{side}>{text(name)}{arrow}<small>{text(kind.lower())}</small></th>"


def _row(cells: Cells, row: int, shown: str) -> str:
    values = dict(zip(cells.names, cells.rows[row], strict=True))
    kind = "best" if values.get("is_best") == "true" else "failed" if values.get("status") == "failed" else ""
    marked = f' class="{kind}"' if kind else ""
    return f"<tr{marked}>{shown}</tr>"


def _column(name: str, kind: str, values: Sequence[str | None]) -> list[str]:
    """Return a column's cells; metrics have four digits, and all of them as a tooltip."""
    if kind == "DOUBLE" and (_METRIC.fullmatch(name) or name == "seconds"):
        shown = aligned([None if value is None else float(value) for value in values])
        return [_cell(value, text(short), "number", value or "") for value, short in zip(values, shown, strict=True)]
    if name == "status":
        return [_cell(value, f'<span class="dot {_state(value)}"></span>{text(value or "")}') for value in values]
    side = "number" if is_number(kind) else ""
    shown = [(rounded(value) if kind == "DOUBLE" else value) or "" for value in values]
    return [
        _cell(value, text(shortened(short, _LONGEST)), side, "" if short == value else value or "")
        for value, short in zip(values, shown, strict=True)
    ]


def _cell(value: str | None, shown: str, kind: str = "", hint: str = "") -> str:
    attributes = (f' class="{kind}"' if kind else "") + (f' title="{text(hint)}"' if hint else "")
    return f"<td{attributes}>{_NULL if value is None else shown}</td>"


def _state(status: str | None) -> str:
    return status if status in ("done", "stopped", "kept", "failed") else ""


def relation_html(relation: duckdb.DuckDBPyRelation) -> str | None:
    """Return a model table's relation as HTML; None for other relations, which the notebook shows in its own way."""
    statement = relation.sql_query()
    connection = _Through(relation)
    stored = find_model(connection, statement, relation.columns)  # type: ignore[arg-type]
    return None if stored is None else rendered(relation, connection, stored, statement)  # type: ignore[arg-type]


class _Through:
    """Runs queries like a connection, through a relation, which does not give access to its own."""

    def __init__(self, relation: duckdb.DuckDBPyRelation) -> None:
        self._relation = relation
        self._found: list[tuple[Any, ...]] = []

    def execute(self, query: str, values: Sequence[Any] | None = None) -> _Through:
        """Run a query on the relation's connection; parameters are inserted as literals, as relations take none."""
        head, *rest = query.split("?", len(values or ()))
        whole = head + "".join(_written_as(value) + part for value, part in zip(values or (), rest, strict=True))
        self._found = rows_beside(self._relation, "grouplearn relation", whole)
        return self

    def sql(self, query: str) -> _Through:
        """Run a query, as a relation of a connection does when its rows are fetched."""
        return self.execute(query)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows of the last query."""
        return self._found


def _written_as(value: str | Sequence[str]) -> str:
    """Return a text, or a list of texts, as SQL."""
    return string(value) if isinstance(value, str) else f"[{', '.join(map(string, value))}]"


def rows_beside(relation: duckdb.DuckDBPyRelation, name: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the relation's connection; the query can name the relation."""
    answer = relation.query(name, query)
    return [] if answer is None else answer.fetchall()
