"""Models predict in SQL alone: what m_predict says is what the function predict says, and nothing has to be installed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from exchange_models import MODELS, TARGETS
from predictions import SHOWN, assert_same, by_function, by_macro, by_plain_macro, numbers

import grouplearn


@pytest.mark.examples(5)
@pytest.mark.parametrize("name", MODELS)
def test_macro_and_function_agree(con: grouplearn.Connection, name: str) -> None:
    expected = by_function(con, name)
    assert len({level for *_, level in expected.values()}) > 1  # rows fall back to several levels
    assert_same(by_macro(con, name), expected, 1e-6)
    assert_same(by_plain_macro(con, name), expected, 1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_describe_says_that_it_is_sql(con: grouplearn.Connection, name: str) -> None:
    assert dict(con.execute(f"DESCRIBE MODEL {name}").fetchall())["prediction"] == "SQL"


@pytest.mark.examples(3)
@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith(("trees", "roots", "rest"))])
def test_trees_that_test_many_numbers_are_walked(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    learner, task, features, given = MODELS[name]
    monkeypatch.setattr("grouplearn.models.forms.trees.leaf_tables.MOST_SLOTS", 0)
    walked = f"walked_{task}"
    con.execute("BEGIN")
    con.execute(
        f"TRAIN MODEL {walked} USING {learner} PREDICT {TARGETS[task]} FEATURES ({features}) FROM t GROUP BY g {given}"
    ).fetchall()
    assert con.execute("SELECT count(*) > 0 FROM grouplearn.nodes").fetchall() == [(True,)]
    assert_same(by_plain_macro(con, walked), by_function(con, walked), 1e-6)
    con.execute("ROLLBACK")


PLAIN = """
import json, sys
import duckdb
con = duckdb.connect(sys.argv[1], read_only=True)
con.execute("SET enable_progress_bar = false")  # it prints where the answers are printed
answers = {}
for name, column in json.loads(sys.argv[2]).items():
    sql = f"SELECT id, {column}, prediction::VARCHAR, model_level FROM {name}_predict(fresh)"
    answers[name] = con.execute(sql).fetchall()
assert not any(module.startswith(("grouplearn", "lightgbm", "torch")) for module in sys.modules)
print(json.dumps(answers))
"""


def test_database_predicts_where_grouplearn_is_not(con: grouplearn.Connection, database: Path, tmp_path: Path) -> None:
    con.execute("CHECKPOINT")
    alone = shutil.copy(database, tmp_path)
    columns = {name: SHOWN[name.rpartition("_")[2]] for name in MODELS}
    run = subprocess.run(
        [sys.executable, "-c", PLAIN, str(alone), json.dumps(columns)],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    answers = json.loads(run.stdout)
    for name in MODELS:
        found = {row[0]: numbers(tuple(row)) for row in answers[name]}
        assert_same(found, by_function(con, name), 1e-6)


def test_large_forest_goes_through_the_function(con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grouplearn.models.forms.trees.trees.MOST_NODES", 100)
    con.execute("BEGIN")
    con.execute("TRAIN MODEL big_value USING gbdt PREDICT y FEATURES (x, z) FROM t").fetchall()
    assert_same(by_macro(con, "big_value"), by_function(con, "big_value"), 0)
    said = dict(con.execute("DESCRIBE MODEL big_value").fetchall())["prediction"]
    con.execute("ROLLBACK")
    assert said == "function predict: its size"


@pytest.mark.parametrize("tests_few_numbers", [True, False])
def test_deep_trees_are_planned(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch, tests_few_numbers: bool
) -> None:
    if not tests_few_numbers:
        monkeypatch.setattr("grouplearn.models.forms.trees.leaf_tables.MOST_SLOTS", 0)
    con.execute("BEGIN")
    con.execute(
        "TRAIN MODEL deep_value USING gbdt PREDICT hash(id) % 1000 FEATURES (id) FROM t"
        " OVER GRID ((num_leaves, min_data_in_leaf, num_iterations) IN ((200, 1, 2)))"
    ).fetchall()
    counted = "SELECT (SELECT max(depth) > 15 FROM grouplearn.trees), (SELECT max(most) > 150 FROM grouplearn.leaves)"
    deep, of_many_cases = con.execute(counted).fetchall()[0]
    assert of_many_cases if tests_few_numbers else deep
    assert_same(by_plain_macro(con, "deep_value"), by_function(con, "deep_value"), 1e-6)
    con.execute("ROLLBACK")


def test_dropping_a_model_takes_its_nodes_along(con: grouplearn.Connection) -> None:
    con.execute("BEGIN")
    count = "SELECT count(*) FROM grouplearn.leaves"
    before = con.execute(count).fetchall()
    con.execute("TRAIN MODEL passing USING gbdt PREDICT y FEATURES (x, z) FROM t").fetchall()
    assert con.execute(count).fetchall() != before
    con.execute("ALTER MODEL passing RENAME TO gone")
    assert len(con.execute("FROM gone_predict(fresh)").fetchall()) > 100
    con.execute("DROP MODEL gone")
    assert con.execute(count).fetchall() == before
    con.execute("ROLLBACK")


@pytest.mark.examples(2)
@pytest.mark.parametrize("learner", ["gbdt", "mlp"])
@pytest.mark.parametrize("rest", ["GROUP BY id"])
@pytest.mark.parametrize("target", ["y", "kind"])
def test_model_without_a_group_that_predicts(con: grouplearn.Connection, learner: str, rest: str, target: str) -> None:
    con.execute("BEGIN")
    source = "(FROM t WHERE id < 3)"
    con.execute(f"TRAIN MODEL nothing USING {learner} PREDICT {target} FEATURES (z) FROM {source} {rest}").fetchall()
    assert con.execute("SELECT count(*) FROM nothing WHERE status = 'done'").fetchall() == [(0,)]
    con.execute("ALTER MODEL nothing RENAME TO none")
    assert con.execute("SELECT count(*), count(prediction) FROM none_predict(t)").fetchall() == [(640, 0)]
    assert dict(con.execute("DESCRIBE MODEL none").fetchall())["prediction"] == "SQL"
    con.execute("ROLLBACK")
