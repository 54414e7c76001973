"""Format ``sql`` with a DIALECT: a script that makes a model's tables in another database, and a query that predicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from grouplearn.amounts import on_one_line
from grouplearn.catalog.records import StoredModel
from grouplearn.exchange.best import best_of
from grouplearn.exchange.directory_reader import CannotExchange, NoSuchForm
from grouplearn.models.dialects.answers import predicting_select
from grouplearn.models.dialects.databases import Database, NotInDialect, sqlglot
from grouplearn.models.dialects.exported import ExportedModel, Query
from grouplearn.models.dialects.plain_tables import quoted, statements

#: What stands for the source in the query.
PLACEHOLDER = "{source}"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Another database, and the table there whose rows a view predicts, if any."""

    database: Database
    source: str | None = None

    @classmethod
    def of(cls, database: Database, source: str | None) -> Dialect:
        """Return the dialect; raises SqlglotMissing, and CannotExchange for a ``source`` that is no table's name."""
        sqlglot()
        return cls(database, None if source is None else _source(source, database))


def dialect_files(con: duckdb.DuckDBPyConnection, model: StoredModel, dialect: Dialect) -> Iterator[tuple[str, bytes]]:
    """Yield ``model.sql``, which makes the tables and with a source the view ``<model>_predictions``, and ``predict.sql``."""
    glot, database = sqlglot(), dialect.database
    if model.definition.calibrate:
        name = model.definition.name
        raise NoSuchForm(f'model "{name}" has no SQL for {database.title}: its probabilities are calibrated')
    groups = [each.group for each in best_of(con, model)]
    exported = ExportedModel(model.definition, groups, Query(database))
    try:
        query = exported.query.written(predicting_select(exported), PLACEHOLDER)
        script = "".join(_script(exported, query, dialect.source))
    except NotInDialect as error:
        raise NoSuchForm(str(error), error.hint) from None
    except glot.errors.SqlglotError as error:
        raise NoSuchForm(f"sqlglot cannot write the query for {database.title}: {error}") from None
    yield "model.sql", script.encode()
    yield "predict.sql", f"{_title(exported, 'query')}{query};\n".encode()


def _title(model: ExportedModel, what: str) -> str:
    name, learner = on_one_line(model.definition.name), on_one_line(model.definition.shown_learner)
    lines = [f"-- Model {name} ({learner}) for {model.database.title}, made by grouplearn."]
    if what == "query":
        lines.append(
            f"-- Write a table or a query in brackets for {PLACEHOLDER}, once the tables of model.sql are there."
        )
    return "".join(f"{line}\n" for line in lines)


def _script(model: ExportedModel, query: str, source: str | None) -> Iterator[str]:
    database = model.database
    yield _title(model, "script")
    yield database.begin
    for table in model.tables:
        yield from statements(table, database)
    if source is not None:
        name = quoted(model.name("predictions"), database)
        yield f"CREATE VIEW {name} AS\n{query.replace(PLACEHOLDER, source)};\n"
    yield database.end


def _source(text: str, database: Database) -> str:
    """Return the name of a table; raises CannotExchange for anything else."""
    glot = sqlglot()
    try:
        selects = glot.parse(f"SELECT * FROM {text}", read=database.name)
    except glot.errors.SqlglotError:
        selects = []
    table = selects[0].find(glot.exp.Table) if len(selects) == 1 and selects[0] else None
    written = table.sql(dialect=database.name) if table and not table.alias else ""
    if not written or selects[0].sql(dialect=database.name) != f"SELECT * FROM {written}":
        message = f"SOURCE is the name of a table in {database.title}, got {text[:60]!r}"
        raise CannotExchange(message, "Make a view there of any other query, and name it.")
    return str(written)
