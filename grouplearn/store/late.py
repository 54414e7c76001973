"""Trials that are added to a stored model, in the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

import duckdb
import numpy as np
import pyarrow as pa

from grouplearn.catalog.records import ModelDefinition, Outcome, StoredModel
from grouplearn.catalog.rows import run_rows
from grouplearn.catalog.rows.artifact_rows import artifacts
from grouplearn.catalog.schema import table
from grouplearn.data.dataset import Group
from grouplearn.models.state import Artifact
from grouplearn.store import objects
from grouplearn.store import writer as store
from grouplearn.store.refreshing import predicting
from grouplearn.train.results.trials import CurvePoint, TrialResult, Trials


@dataclass(frozen=True, slots=True)
class LateTrial:
    """A further trial of a group: its model and the objective there, or the reason why there is none."""

    group: int
    artifact: Artifact | None
    loss: float = 0.0
    reason: str | None = None

    def result(self, config: int) -> TrialResult:
        """Return it as the result of a trial; it has no metrics, which need rows."""
        if self.artifact is None:
            return TrialResult(config, "failed", self.reason)
        curve = (CurvePoint(1, self.loss, float("nan")),)
        return TrialResult(config, "done", epochs=1, curve=curve, artifact=self.artifact, converged=True)


def write_trials(
    con: duckdb.DuckDBPyConnection,
    model: StoredModel,
    definition: ModelDefinition,
    trials: Sequence[LateTrial],
) -> StoredModel:
    """Write a further trial of each group, which predicts from now on; the caller holds the transaction.

    ``model`` is a new version, and ``definition`` what it becomes, with one configuration more.
    """
    catalog, own = model.location.catalog, f"model = '{model.id}'::UUID"
    config = len(definition.configs) - 1
    store.insert(con, catalog, model.id, [("configs", run_rows.configs(definition).slice(config))])
    store.insert(con, catalog, model.id, _tables(definition, config, trials))
    done = pa.table({"group_id": pa.array([each.group for each in trials if each.artifact is not None], pa.int32())})
    with store.registered(con, done) as source:
        those = f"t.{own} AND t.group_id = source.group_id"
        con.execute(f"UPDATE {table(catalog, 'groups')} AS t SET best = {config} FROM {source} AS source WHERE {those}")
        con.execute(
            f"UPDATE {table(catalog, 'trials')} AS t SET is_best = (t.config = {config}) FROM {source} AS source WHERE {those}"
        )
    columns = [{"name": each.name, "type": each.type} for each in definition.hyperparameters]
    con.execute(f"UPDATE {table(catalog, 'models')} SET hyperparameters = ? WHERE {own}", [columns])
    con.execute(f"DELETE FROM {table(catalog, 'refreshed')} WHERE {own}")
    objects.drop_objects(con, model)
    stored = changed(model, definition=definition)
    objects.create_objects(con, stored.location, definition, stored.id, stored.form)
    return predicting(con, stored)


def _tables(definition: ModelDefinition, config: int, trials: Sequence[LateTrial]) -> list[tuple[str, object]]:
    ordered = sorted(trials, key=lambda each: each.group)
    results = Trials.joined([Trials.of(each.group, [each.result(config)], definition.metrics) for each in ordered])
    groups = tuple(Group(each.group, 0, (), ()) for each in ordered)
    best = np.array([config if each.artifact is not None else -1 for each in ordered], np.int32)
    found = Outcome(groups, (None,) * len(groups), results, best)
    return [
        ("trials", run_rows.trials(definition, found)),
        ("curves", run_rows.curves(found)),
        *(("artifacts", part) for part in artifacts(definition, found, found.trials.usable)),
        ("errors", run_rows.errors(found)),
    ]
