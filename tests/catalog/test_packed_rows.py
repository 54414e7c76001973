"""The rows of models and of units of several groups."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import grouplearn
from grouplearn.catalog.records import ModelDefinition, RunOutcome
from grouplearn.catalog.rows import artifact_rows as model_rows
from grouplearn.catalog.rows import unit_rows as unit_rows
from grouplearn.store import writer as store

OVER = "OVER GRID (l2 IN (0, 1, 100)) VALIDATE SAMPLE 30%"


def written(monkeypatch: pytest.MonkeyPatch, options: str) -> tuple[ModelDefinition, RunOutcome]:
    """Train groups of several sizes, one of a single row, one with a constant feature, one whose label is infinite."""
    found: list[Any] = []
    real = store.write

    def noted(con: Any, definition: Any, outcome: Any, **others: Any) -> str:
        found.extend((definition, outcome))
        return real(con, definition, outcome, **others)

    monkeypatch.setattr(store, "write", noted)
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 23 AS g, sin(i) AS x, CASE WHEN i % 23 = 2 THEN 1 ELSE cos(i * i) END AS z,"
            " CASE WHEN i % 23 = 3 THEN 'inf'::DOUBLE ELSE sin(i * 3) + x END AS y FROM range(690) r(i)"
            " UNION ALL SELECT 100, 1, 1, 1"
        )
        con.execute(f"TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x, z) FROM t GROUP BY g {options}")
    definition, outcome = found
    return definition, outcome


def test_artifacts_are_made_some_models_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    definition, outcome = written(monkeypatch, OVER)
    whole = pa.concat_tables(model_rows.artifacts(definition, outcome.found)).to_pylist()
    monkeypatch.setattr(model_rows, "_MODEL_BYTES", 0)
    parts = list(model_rows.artifacts(definition, outcome.found))
    assert len(parts) == len(outcome.found.trials.models) > 1
    assert pa.concat_tables(parts).to_pylist() == whole


def test_a_unit_of_several_groups_has_a_row_for_each_and_its_bytes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, outcome = written(monkeypatch, OVER)
    found = unit_rows.units(outcome).to_pylist()
    expected = [
        (result.unit.id, group, list(result.unit.configs), result.loaded if place == 0 else 0, result.started)
        for result in outcome.units
        for place, group in enumerate(result.unit.groups)
    ]
    assert len(expected) > len(outcome.units)
    assert [(row["unit"], row["group_id"], row["configs"], row["loaded"], row["started"]) for row in found] == expected
    assert {(row["kind"], row["fold"], row["epoch"], row["fetched"]) for row in found} == {("unit", None, None, 0)}
