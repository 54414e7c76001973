"""How good a model's predictions are, as numbers to be drawn: those of its held-out rows, or of labelled rows."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from grouplearn.catalog import views
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import table
from grouplearn.models.forms.form import FunctionSql
from grouplearn.models.forms.routed import Extra, ModelTables, PredictedRows, label_sql, level_names
from grouplearn.models.metrics.baselines import BASELINES
from grouplearn.models.metrics.metric import TARGET
from grouplearn.models.outputs.output import PLACE, Endpoint
from grouplearn.prediction.evaluation import asks_predict, source_rows
from grouplearn.prediction.macro import answered, parameters_of
from grouplearn.sqltext import literal


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges predictions in a temporary table: all rows together, whichever group's model predicts them."""

    connection: duckdb.DuckDBPyConnection
    stored: StoredModel
    predicted: str

    @property
    def macros(self) -> Mapping[str, Endpoint]:
        """The macros that compare predictions with labels, by suffix."""
        return macros(self.stored)

    def confusion(self) -> list[tuple[str, str, int, float]]:
        """Return how many rows of each class are predicted as which, and their share of the class."""
        return [(actual, predicted, n, share) for actual, predicted, n, share in self.rows("_confusion")]

    def rows(self, suffix: str, **given: float | None) -> list[tuple[Any, ...]]:
        """Return the rows of one of the model's macros, without groups, for values of its parameters; classes as text."""
        definition, name = self.stored.definition, f"__grouplearn_{uuid.uuid4().hex}"
        endpoint = self.macros[suffix]
        all_rows = (
            f"(SELECT {literal(self.stored.id)}::UUID AS model, 0 AS group_id, 0 AS level,"
            f" list_transform(range({len(definition.keys)}), lambda i: NULL::VARCHAR) AS keys)"
        )
        query = answered(
            endpoint, ModelTables(definition, self.stored.id, lambda _: all_rows), f"FROM {self.predicted}"
        )
        parameters = parameters_of(definition, endpoint)[0][1:]
        self.connection.execute(f"CREATE TEMP MACRO {name}({', '.join(parameters)}) AS TABLE {query}")
        values = ", ".join(f"{definition.free_parameter(key)} := {literal(value)}" for key, value in given.items())
        kind = definition.label_type
        shown = "* REPLACE (CAST(actual AS VARCHAR) AS actual, CAST(predicted AS VARCHAR) AS predicted)"
        chosen = shown if suffix == "_confusion" and kind != "VARCHAR" else "*"
        found = self.connection.execute(f"SELECT {chosen} FROM {name}({values})").fetchall()
        self.connection.execute(f"DROP MACRO TABLE temp.{name}")
        return [row[len(definition.keys) + 1 :] for row in found]

    def area(self) -> float | None:
        """Return the area under the ROC curve."""
        points = self.rows("_roc", points=None)
        if not points or points[0][1] is None or points[0][2] is None:
            return None
        known = [(0.0, 0.0), *((x, y) for _, x, y in points)]
        return float(sum((x - u) * (y + v) / 2 for (u, v), (x, y) in itertools.pairwise(known)))

    def baseline(self) -> tuple[float, str] | None:
        """Return the optimised metric of predictions without features, and what these are; None if that is not known."""
        definition = self.stored.definition
        baseline = BASELINES.get(definition.metric)
        if baseline is None:
            return None
        if baseline.value is not None:
            return baseline.value, baseline.words
        each = baseline.of_group
        if definition.label.has_classes:
            counted = (
                f"SELECT own, {TARGET}, count(*) AS n, sum(count(*)) OVER (PARTITION BY own) AS total"
                f" FROM {self.predicted} WHERE {TARGET} IS NOT NULL GROUP BY own, {TARGET}"
            )
            groups = f"SELECT own, {each} AS value, sum(n) AS n FROM ({counted}) GROUP BY own"
        else:
            median = f"median({TARGET}) OVER (PARTITION BY own) AS median"
            labels = f"SELECT own, {TARGET} AS label, {median} FROM {self.predicted} WHERE isfinite({TARGET})"
            groups = f"SELECT own, {each} AS value, count(*) AS n FROM ({labels}) GROUP BY own"
        merged = baseline.merged.format("sum(n * value) / sum(n)")
        found = self.connection.execute(f"SELECT {merged} FROM ({groups})").fetchall()[0][0]
        return None if found is None else (float(found), baseline.words)


@contextmanager
def judge(
    connection: duckdb.DuckDBPyConnection, stored: StoredModel, rows: str | None = None
) -> Iterator[Judge | None]:
    """Give what judges a model for the time of a block: on ``rows`` (what may stand after FROM), or on its held-out rows.

    None if its output is not compared with labels, or it keeps no held-out rows.
    """
    query = None if not macros(stored) else _held_out(stored) if rows is None else _of_rows(stored, rows)
    if query is None:
        yield None
        return
    name = f"temp.__grouplearn_{uuid.uuid4().hex}"
    connection.execute(f"CREATE TEMP TABLE {name.removeprefix('temp.')} AS {query}")
    yield Judge(connection, stored, name)
    connection.execute(f"DROP TABLE {name}")


def macros(stored: StoredModel) -> Mapping[str, Endpoint]:
    """Return the macros of a model that compare predictions with labels, by suffix."""
    return {each.suffix: each for each in stored.definition.output.endpoints if each.judges and each.select}


def _held_out(stored: StoredModel) -> str | None:
    """Return the query of the held-out rows of the finest groups, None if they are not kept."""
    definition = stored.definition
    if definition.held_out is None:
        return None
    query, _ = views.view_sql(definition, stored.id, stored.location.catalog, views.HELD_OUT)
    keys = [f"k{place}" for place in range(len(definition.keys))]
    others = [f"o{place}" for place in range(len(definition.held_out))]
    shown = [name for name, _ in definition.output.held_out(["NULL"] * definition.output.width, "NULL")]
    label = "CAST(label AS VARCHAR)" if definition.label.has_classes else "CAST(label AS DOUBLE)"
    finest = literal(level_names(definition)[0])
    return (
        f"SELECT hash([{', '.join(f'{key}::VARCHAR' for key in keys)}]::VARCHAR[]) AS own, 0 AS __grouplearn_group,"
        f" '' AS model_level, row_number() OVER () AS {PLACE}, {label} AS {TARGET}, {', '.join(shown)}"
        f" FROM ({query}) AS h({', '.join([*keys, 'level', *others, 'fold', 'label', *shown])}) WHERE level = {finest}"
    )


def _of_rows(stored: StoredModel, rows: str) -> str:
    """Return the query of the predictions of labelled rows."""
    definition, asked = stored.definition, asks_predict(stored)
    form, known = (stored.form, stored.id) if asked is None else (FunctionSql(""), asked)
    extras = Extra(PLACE, "row_number() OVER ()"), Extra(TARGET, label_sql(definition))
    source = source_rows(rows, None)
    predicted = form.select(
        PredictedRows(definition, known, lambda name: table(stored.location.catalog, name), source, extras)
    )
    return (
        f"SELECT * REPLACE (0 AS __grouplearn_group, '' AS model_level), __grouplearn_group AS own FROM ({predicted})"
    )
