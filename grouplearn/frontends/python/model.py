"""``con.model("m")``: a trained model in Python, its tables, its plots and its report.

::

    m = con.model("demand")           # grouplearn.model(con, "demand") on any DuckDB connection
    m.trials.filter("is_best").df()   # relations: m.trials, m.curves, m.weights, m.importance, m.schedule
    m.plot.curves()                   # matplotlib axes; also m.plot.importance(), m.plot.roc(), m.plot.forecast() and others
    m.report("demand.html")           # one self-contained page
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.bind.sql.external_access import ExternalAccess
from grouplearn.catalog.overview import Overview
from grouplearn.catalog.records import StoredModel
from grouplearn.errors import BindError
from grouplearn.frontends.python.scope import Scope, frames_registered
from grouplearn.prediction.prediction import predictor_for
from grouplearn.sqltext import identifier, plain, qualified
from grouplearn.statements.databases import Databases
from grouplearn.store import writer as store
from grouplearn.visible import visible

if TYPE_CHECKING:
    from grouplearn.frontends.python.plots import Plots

_NAME = re.compile(r'\s*(?:\w+|"(?:[^"]|"")+")(?:\s*\.\s*(?:\w+|"(?:[^"]|"")+"))*\s*')


class Model:
    """The model of a name: each property and method reads it as it is then, all at once, also if it has been trained again."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, stored: StoredModel) -> None:
        self._connection = connection
        self._stored = stored

    @classmethod
    def named(cls, connection: duckdb.DuckDBPyConnection, name: str) -> Model:
        """Look a model up by its name, which may be qualified and quoted as in SQL: ``m``, ``shop.main."my model"``.

        Names that need quotes in SQL may be given without. Raises BindError for an unknown model.
        """
        with _looked_up(connection, plain(name) if _NAME.fullmatch(name) else identifier(name)) as stored:
            return cls(connection, stored)

    @property
    def name(self) -> str:
        """The model's name, without quotes."""
        return self._stored.location.name

    @property
    def statement(self) -> str:
        """The TRAIN statement."""
        with self._now() as stored:
            return stored.definition.statement

    @property
    def trials(self) -> duckdb.DuckDBPyRelation:
        """The model table: a row per group and configuration."""
        return self._relation("")

    @property
    def curves(self) -> duckdb.DuckDBPyRelation:
        """A row per trial and epoch: training loss, held-out metric."""
        return self._relation("_curves")

    @property
    def weights(self) -> duckdb.DuckDBPyRelation:
        """A linear model's weights on the encoded features."""
        return self._relation("_weights")

    @property
    def importance(self) -> duckdb.DuckDBPyRelation:
        """A row per trial and feature."""
        return self._relation("_importance")

    @property
    def schedule(self) -> duckdb.DuckDBPyRelation:
        """The schedule as it ran: which worker trained what, and when."""
        return self._relation("_schedule")

    @property
    def versions(self) -> duckdb.DuckDBPyRelation:
        """A row per version that ``ALTER MODEL ... USE VERSION`` can use."""
        return self._relation("_versions")

    @property
    def history(self) -> duckdb.DuckDBPyRelation:
        """A row per version that there was."""
        return self._relation("_history")

    @property
    def plot(self) -> Plots:
        """Its plots, with matplotlib: ``m.plot.curves()``, ``importance()``, ``schedule()``, ``forecast()``; of labelled or
        held-out rows ``confusion()``, ``roc()``, ``pr()``, ``lift()``, ``calibration()``."""
        from grouplearn.frontends.python.plots import Plots

        return Plots(self.overview)

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return one self-contained HTML page about the model, and write it to ``path`` if given.

        The same as ``grouplearn report DATABASE MODEL -o path`` in a terminal. Raises AccessRefused if DuckDB's settings
        forbid writing there, as for ``COPY``.
        """
        from grouplearn.frontends.report.report import report

        if path is not None:
            ExternalAccess(self._connection).refuse(Path(path).parent, "", None)

        scope = Scope.of_caller()
        with (
            self.overview() as overview,
            frames_registered(self._connection, overview.stored.definition.statement, scope),
        ):
            page = report(overview)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    @contextmanager
    def overview(self) -> Iterator[Overview]:
        """Give the data of plots and report for the time of a block."""
        with self._now() as stored:
            yield Overview(self._connection, stored)

    def __repr__(self) -> str:
        with self.overview() as overview:
            definition, facts = overview.stored.definition, overview.facts
        trials = f"{facts.groups:,} groups, {facts.trials:,} trials, {facts.failed:,} failed"
        return visible(f"<grouplearn.Model {self.name}: {definition.described}, {trials}>")

    def _repr_html_(self) -> str:
        from grouplearn.frontends.notebook.model_table import rendered

        with self._now() as stored:
            query = store.view_query(self._connection, stored, "")
            best = self._connection.sql(query, alias=self.name).filter("is_best")
            return rendered(best, self._connection, stored) or ""

    def _relation(self, suffix: str) -> duckdb.DuckDBPyRelation:
        """Return the view's query as we make it; the view in a file could be anything."""
        with self._now() as stored:
            query = store.view_query(self._connection, stored, suffix)
        relation: duckdb.DuckDBPyRelation = self._connection.sql(query, alias=self.name + suffix)
        return relation

    def _now(self) -> AbstractContextManager[StoredModel]:
        """Give the model as it is now for the time of a block, in which what others commit is not seen."""
        place = self._stored.location
        return _looked_up(self._connection, qualified(place.catalog, place.schema, place.name))


@contextmanager
def _looked_up(connection: duckdb.DuckDBPyConnection, name: str) -> Iterator[StoredModel]:
    """Give the model that SQL names so for the time of a block, which is one transaction."""
    from grouplearn.parser.parse import parse
    from grouplearn.parser.statements import DescribeModel

    text = f"DESCRIBE MODEL {name}"
    (statement,) = (each for each in parse(text) if isinstance(each, DescribeModel))
    guard = predictor_for(connection).guard
    guard.refuse_hidden(connection)
    databases = Databases(connection, guard)
    with databases.transaction():
        try:
            stored = databases.model(statement.name, SqlChecker(connection, text))
        except BindError as error:  # without the caret in our statement
            raise BindError(error.message, hint=error.hint) from None
        yield stored
