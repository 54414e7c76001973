"""``con.model("m")``: a trained model in Python, its tables, its plots and its report.

::

    m = con.model("demand")           # grouplearn.model(con, "demand") on any DuckDB connection
    m.trials.filter("is_best").df()   # relations: m.trials, m.curves, m.weights, m.importance, m.schedule
    m.plot.curves()                   # matplotlib axes; also m.plot.importance(), m.plot.schedule()
    m.report("demand.html")           # one self-contained page
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.bind.sql.outside import Outside
from grouplearn.catalog.models import StoredModel
from grouplearn.catalog.overview import Overview
from grouplearn.errors import BindError
from grouplearn.frontends.python.dbapi import Connection
from grouplearn.prediction.prediction import predictor_for
from grouplearn.sqltext import identifier, plain
from grouplearn.statements.databases import Databases
from grouplearn.store import writer as store
from grouplearn.visible import visible

if TYPE_CHECKING:
    from grouplearn.frontends.python.plots import Plots

_NAME = re.compile(r'\s*(?:\w+|"(?:[^"]|"")+")(?:\s*\.\s*(?:\w+|"(?:[^"]|"")+"))*\s*')


def model(connection: Connection | duckdb.DuckDBPyConnection, name: str) -> Model:
    """Return a trained model by its name, which may be qualified and quoted as in SQL: ``m``, ``shop.main."my model"``.

    Names that need quotes in SQL may be given without. Raises BindError for an unknown model.
    """
    return connection.model(name) if isinstance(connection, Connection) else Model.named(connection, name)


class Model:
    """A model as it was when looked up; training it again makes another."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, stored: StoredModel) -> None:
        self._connection = connection
        self._stored = stored

    @classmethod
    def named(cls, connection: duckdb.DuckDBPyConnection, name: str) -> Model:
        """Look a model up; see :func:`model`."""
        from grouplearn.parser.parse import parse
        from grouplearn.parser.statements import DescribeModel

        text = f"DESCRIBE MODEL {plain(name) if _NAME.fullmatch(name) else identifier(name)}"
        statements = [each for each in parse(text) if isinstance(each, DescribeModel)]
        predictor_for(connection).guard.refuse_hidden(connection)
        try:
            return cls(
                connection,
                Databases(connection, predictor_for(connection).guard).model(
                    statements[0].name, SqlChecker(connection, text)
                ),
            )
        except BindError as error:  # without the caret in our statement
            raise BindError(error.message, hint=error.hint) from None

    @property
    def name(self) -> str:
        """The model's name, without quotes."""
        return self._stored.location.name

    @property
    def statement(self) -> str:
        """The TRAIN statement."""
        return self._stored.definition.statement

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
    def plot(self) -> Plots:
        """Its plots, with matplotlib: ``m.plot.curves()``, ``m.plot.importance()``, ``m.plot.schedule()``."""
        from grouplearn.frontends.python.plots import Plots

        return Plots(self.overview())

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return one self-contained HTML page about the model, and write it to ``path`` if given.

        The same as ``grouplearn report DATABASE MODEL -o path`` in a terminal. Raises AccessRefused if DuckDB's settings
        forbid writing there, as for ``COPY``.
        """
        from grouplearn.frontends.report.report import report

        if path is not None:
            Outside(self._connection).refuse(Path(path).parent, "", None)

        page = report(self.overview())
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def overview(self) -> Overview:
        """Return the data of plots and report."""
        return Overview(self._connection, self._stored)

    def __repr__(self) -> str:
        definition = self._stored.definition
        facts = self.overview().facts
        trials = f"{facts.groups:,} groups, {facts.trials:,} trials, {facts.failed:,} failed"
        return visible(f"<grouplearn.Model {self.name}: {definition.described}, {trials}>")

    def _repr_html_(self) -> str:
        from grouplearn.frontends.notebook.model_table import rendered

        return rendered(self.trials.filter("is_best"), self._connection, self._stored) or ""

    def _relation(self, suffix: str) -> duckdb.DuckDBPyRelation:
        """Return the view's query as we make it; the view in a file could be anything."""
        predictor_for(self._connection).guard.refuse_hidden(self._connection)
        query = store.view_query(self._connection, self._stored, suffix)
        relation: duckdb.DuckDBPyRelation = self._connection.sql(query, alias=self.name + suffix)
        return relation
