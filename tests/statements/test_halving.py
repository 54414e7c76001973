"""HYPERBAND and ASHA over rounds of boosting and over rows: survivors are the models of one training, and cost less."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import grouplearn
from grouplearn.learners.trees.lightgbm.booster import Booster
from grouplearn.statements.workflow import search_rounds

ROUNDS = 9
FROM = "FEATURES (a, b, c) FROM t GROUP BY g"
SAMPLE = "VALIDATE SAMPLE 10%"
ARTIFACTS = (
    "SELECT group_id, a.sha256 FROM grouplearn.artifacts a JOIN grouplearn.models USING (model) WHERE model_name = '{}'"
)


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 2 AS g, hash(i) % 997 / 997 AS a, hash(i, 1) % 991 / 991 AS b, "
            "'abcde'[1 + i % 5] AS c, a * b + (c = 'b')::INT / 4 + hash(i, 2) % 100 / 300 AS n, n > 0.5 AS y, floor(n * 2) AS k "
            "FROM range(6000) AS r(i)"
        )
        yield connection


def rows(con: grouplearn.Connection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def values_of(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in found.items())


def same_as_alone(con: grouplearn.Connection, learner: str, names: list[str], fixed: str) -> int:
    """Train each configuration that had the whole budget alone; return how many there are, and have the same bits."""
    whole = rows(con, f"SELECT DISTINCT {', '.join(names)} FROM m WHERE status = 'done' ORDER BY ALL")
    bits = set(rows(con, ARTIFACTS.format("m")))
    groups = len(rows(con, "SELECT DISTINCT g FROM m"))
    for values in whole:
        config = values_of(dict(zip(names, values, strict=True)))
        con.execute(f"TRAIN OR REPLACE MODEL one USING {learner} {FROM} {SAMPLE} WITH ({config}, {fixed})")
        alone = rows(con, ARTIFACTS.format("one"))
        condition = config.replace(", ", " AND ")
        survivors = {g for (g,) in rows(con, f"SELECT g FROM m WHERE status = 'done' AND {condition}")}
        assert len(alone) == groups
        assert {(g, sha) for g, sha in alone if g in survivors} <= bits
    return len(whole)


@pytest.mark.parametrize(
    ("learner", "fixed"),
    [
        ("gbdt PREDICT y", "min_data_in_leaf = 5"),
        ("gbdt PREDICT n", "lambda_l1 = 0.1"),
        ("gbdt PREDICT k::INT::TEXT", "min_data_in_leaf = 5"),
        ("gbdt PREDICT y", "feature_fraction = 0.5"),
        ("gbdt PREDICT n", "boosting = 'dart'"),
        ("random_forest PREDICT y", "min_data_in_leaf = 5"),
    ],
)
def test_a_survivor_of_all_rungs_is_the_model_of_one_training(
    con: grouplearn.Connection, learner: str, fixed: str
) -> None:
    given = f"num_iterations = {ROUNDS}, {fixed}"
    space = "num_leaves IN (2, 3, 4, 5, 6, 7, 8, 9, 10)"
    con.execute(f"TRAIN MODEL m USING {learner} {FROM} OVER HYPERBAND ({space}) {SAMPLE} WITH ({given}, trials = 9)")
    assert same_as_alone(con, learner, ["num_leaves"], given) >= 2
    assert rows(con, "SELECT sum(epochs) FROM m") == rows(con, "SELECT count(*) FROM m_curves")


def test_trees_are_grown_once_and_forests_again_at_each_rung(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown: list[int] = []
    update = Booster.update

    def counting(self: Booster) -> bool:
        grown.append(1)
        return update(self)

    monkeypatch.setattr(Booster, "update", counting)
    search = f"OVER ASHA (num_leaves IN (2, 3, 4, 5, 6, 7, 8, 9, 10)) {SAMPLE}"
    given = f"WITH (num_iterations = {ROUNDS}, parallel_trials = 9)"
    for learner, each in (("gbdt", 9 * 1 + 3 * 2 + 1 * 6), ("random_forest", 9 * 1 + 3 * 3 + 1 * 9)):
        grown.clear()
        con.execute(f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT y {FROM} {search} {given}")
        assert rows(con, "SELECT epochs, count(*) FROM m GROUP BY ALL ORDER BY ALL") == [(1, 12), (3, 4), (9, 2)]
        assert sum(grown) == 2 * each


def test_rounds_on_ray_are_those_in_process(con: grouplearn.Connection) -> None:
    pytest.importorskip("ray")
    bits = {}
    for executor in ("local", "ray"):
        con.execute(
            f"TRAIN OR REPLACE MODEL m USING gbdt PREDICT y {FROM} OVER HYPERBAND (lambda_l2 BETWEEN 0.01 AND 1 LOG) {SAMPLE} "
            f"WITH (num_iterations = {ROUNDS}, trials = 9, executor = '{executor}', workers = 2)"
        )
        bits[executor] = sorted(rows(con, ARTIFACTS.format("m")))
    assert bits["local"] == bits["ray"]


@pytest.mark.parametrize(
    ("learner", "search", "names", "fixed"),
    [
        ("linear_regression PREDICT n", "l2 BETWEEN 0.001 AND 100 LOG", ["l2"], "l1 = 0.1"),
        ("linear_learner PREDICT y", "learning_rate BETWEEN 0.001 AND 1 LOG", ["learning_rate"], "epochs = 1"),
    ],
)
def test_a_survivor_of_rungs_of_rows_is_the_model_of_all_rows(
    con: grouplearn.Connection, learner: str, search: str, names: list[str], fixed: str
) -> None:
    con.execute(f"TRAIN MODEL m USING {learner} {FROM} OVER HYPERBAND ({search}) {SAMPLE} WITH ({fixed}, trials = 12)")
    assert same_as_alone(con, learner, names, fixed) >= 1
    assert rows(con, "SELECT count(*) > 0 FROM m WHERE status = 'stopped'") == [(True,)]


def test_rungs_train_one_pass_learners_on_more_and_more_rows(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []
    made = search_rounds.SearchRound

    def noting(*given: Any) -> Any:
        shares.append(given[3])
        return made(*given)

    monkeypatch.setattr(search_rounds, "SearchRound", noting)
    con.execute(
        "TRAIN MODEL m USING pca FEATURES (a, b) FROM (SELECT unnest(range(10)) AS copy, * FROM t) GROUP BY g "
        f"OVER ASHA (n_components IN (1, 2), whiten IN (true, false)) {SAMPLE} WITH (trials = 4, parallel_trials = 4)"
    )
    assert shares == [1 / 27, 3 / 27, 9 / 27, 1]
    assert rows(con, "SELECT count(*) FROM m WHERE status = 'done' AND is_best") == [(2,)]
