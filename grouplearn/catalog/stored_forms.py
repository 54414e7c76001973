"""How a model predicts: its form, made from models that were just trained or from their rows in the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from grouplearn.catalog.checks.damage import damaged, shown
from grouplearn.catalog.records import ModelDefinition, RunOutcome
from grouplearn.catalog.schema import first_row, table
from grouplearn.interrupting import with_checks
from grouplearn.learners import registry
from grouplearn.models.forms.form import Best, Prediction, SqlForm
from grouplearn.models.forms.forms import TABLES, form_of


def prediction_of(definition: ModelDefinition, outcome: RunOutcome) -> Prediction:
    """Return how a newly trained model will predict."""
    form = form_of(definition)
    models = with_checks(outcome.found.best_models() if form.tables else ())
    return form.prediction(definition, [Best(group.id, facts.fitted, artifact) for group, facts, artifact in models])


def stored_form(con: duckdb.DuckDBPyConnection, catalog: str, model: str, definition: ModelDefinition) -> SqlForm:
    """Return how a stored model's macro predicts.

    Raises DataError if a learner that is not known has models in a table of a form that only our own learners have.
    """
    rows = _Rows(con, catalog, model, definition.name)
    if not registry.is_known(definition.learner):
        for name, form in TABLES.items():
            if not form.of_any_learner and rows.first(name, "count(*)"):
                why = f"there is no learner {shown(definition.learner)} whose models are in table {name}"
                raise damaged(catalog, definition.name, "models", why)
    return form_of(definition).stored(definition, rows)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A model's rows in the catalog of a database: ``StoredRows``."""

    con: duckdb.DuckDBPyConnection
    catalog: str
    model: str
    name: str

    def greatest(self, name: str, limits: Mapping[str, tuple[int, int]]) -> list[int]:
        """Return the greatest of some numbers of a table, nothing if it has no row of the model."""
        ends = ", ".join(f"min({number}), max({number})" for number in limits)
        counts = " + ".join(f"count(*) - count({number})" for number in limits)
        row = first_row(self.con, f"SELECT count(*), {counts}, {ends} FROM {self._of_model(name)}")
        if row is None or not row[0]:
            return []
        for place, (number, (least, most)) in enumerate(limits.items()):
            low, high = row[2 + 2 * place : 4 + 2 * place]
            if row[1] or low < least or high > most:
                outside = "NULL" if row[1] else low if low < least else high
                why = f"{number} is {outside}, and it is {least:,} to {most:,}"
                raise damaged(self.catalog, self.name, name, why)
        return [int(row[3 + 2 * place]) for place in range(len(limits))]

    def first(self, name: str, expression: str) -> Any:
        """Return an aggregate over the rows of a table."""
        row = first_row(self.con, f"SELECT {expression} FROM {self._of_model(name)}")
        return None if row is None else row[0]

    def _of_model(self, name: str) -> str:
        return f"{table(self.catalog, name)} WHERE model = '{self.model}'::UUID"
