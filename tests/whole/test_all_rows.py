"""The model that is kept where rows are held out by default is the one of all rows, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.learners import OF_ROWS
from helpers.thorough import THOROUGH

import grouplearn
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.plan import physical

#: Stacks of groups of 4 to 40 rows, of which some hold no row out, lack a class, weights or features; and one of several blocks.
TABLE = """
CREATE TABLE t AS
SELECT g, i, hash(g, i) % 1009 / 97 AS x, nullif(hash(g, i, 1) % 11, 7) / 3 AS z,
  ['a', 'b', 'c'][1 + (hash(g, i, 2) % 3)::INTEGER] AS c,
  hash(g, i, 3) % 5 AS n, CASE WHEN hash(g, i, 4) % 20 > 0 THEN x / 3 + hash(g, i, 5) % 7 END AS y,
  CASE WHEN g % 5 = 1 THEN i = 3 ELSE hash(g, i, 6) % 7 < 3 END AS b, hash(g, i, 7) % 4 AS w
FROM range(60) AS s(g), range(40) AS r(i) WHERE i < 4 + 4 * (g % 10)
UNION ALL SELECT 99, i, i % 97 / 9, i % 13 / 3, ['a', 'b', 'c'][1 + i % 3], i % 5, i % 31 / 5, i % 3 = 0, 1 + i % 2
FROM range(600) AS r(i)
"""
FEATURES = "FEATURES (zscore(x), impute(z), onehot(c), zscore(i, scope := 'all')) FROM t GROUP BY g"
MODELS = """
SELECT g.* EXCLUDE (model, n_train, n_valid, best), a.* EXCLUDE (model, group_id, config)
FROM grouplearn.artifacts AS a JOIN grouplearn.groups AS g USING (model, group_id)
SEMI JOIN grouplearn.models USING (model) WHERE a.config = g.best ORDER BY group_id
"""
SHORT = {"num_iterations": "3", "min_data_in_leaf": "5", "k": "2", "n_components": "1"}
LABELS = {"poisson_regression": "n", "linear_regression": "y", "gbdt": "c || g % 2", "random_forest": "y"}
#: Two configurations of learners that have no l2.
GRIDS = {"gbdt": "num_leaves IN (3, 7)", "random_forest": "num_leaves IN (3, 7)", "mlp": "hidden_layers IN ([2], [3])"}


def statement(learner: Learner, rest: str, over: str = "") -> str:
    label = (
        f"PREDICT {LABELS.get(learner.declaration.name, 'b')} AS label"
        if learner.declaration.name not in ("kmeans", "pca")
        else ""
    )
    short = [
        each.name
        for each in learner.declaration.hyperparameters
        if each.name in SHORT and f"{each.name} " not in over + rest
    ]
    options = [f"{name} = {SHORT[name]}" for name in short]
    options += ["epochs = 2"] if learner.declaration.default_epochs is not None else []
    options += ["weight = w", rest]
    return f"TRAIN OR REPLACE MODEL m USING {learner.declaration.name} {label} {FEATURES} {over} WITH ({', '.join(options)})"


@pytest.fixture
def con(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(physical, "BLOCK_ROWS", 256)
    with grouplearn.connect(progress=False) as connection:
        connection.execute(TABLE)
        yield connection


def kept(con: grouplearn.Connection, text: str) -> list[tuple[Any, ...]]:
    con.execute(text).fetchall()
    return con.execute(MODELS).fetchall()


@pytest.mark.examples(4)
@pytest.mark.parametrize("name", [name for name in OF_ROWS if name not in ("kmeans", "pca")])
def test_of_one_configuration(con: grouplearn.Connection, name: str) -> None:
    learner = registry.learner(name)
    expected = kept(con, statement(learner, "workers = 1", "VALIDATE NONE"))
    assert len(expected) > 40
    for workers in (1, 3) if THOROUGH else (3,):
        assert kept(con, statement(learner, f"workers = {workers}")) == expected
        judged = con.execute("SELECT count(*) FROM m WHERE n_valid > 0 AND status = 'done'").fetchone()
        assert judged is not None
        assert judged[0] > 30
    assert con.execute("SELECT count(*) FROM m WHERE n_valid = 0 AND status = 'done'").fetchone() != (0,)


@pytest.mark.examples(3)
@pytest.mark.parametrize("name", OF_ROWS)
def test_of_several_configurations(con: grouplearn.Connection, name: str) -> None:
    learner = registry.learner(name)
    over = f"OVER GRID ({GRIDS.get(name, 'l2 IN (0.5, 50)')})"
    over = {"kmeans": "OVER GRID (k IN (2, 3))", "pca": "OVER GRID (n_components IN (1, 2))"}.get(name, over)
    found = kept(con, statement(learner, "workers = 2", over))
    assert len(found) > 40
    wanted: list[tuple[Any, ...]] = []
    for (point,) in con.execute("SELECT DISTINCT parameters FROM grouplearn.configs").fetchall():
        options = ", ".join(f"{key} = {value}" for key, value in point.items() if key in over)
        wanted += kept(con, statement(learner, f"workers = 1, {options}", "VALIDATE NONE"))
    assert all(row in wanted for row in found)
