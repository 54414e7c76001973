"""predict, predict_value and predict_probability of the extension: an answer stays within a query, and not longer."""

import importlib.metadata

import duckdb
import pytest
from native_builds import TABLE, TRAIN, built

AGAIN = TRAIN.replace("TRAIN", "TRAIN OR REPLACE").replace("PREDICT y", "PREDICT y + 100 AS y")
ROW = "{'g': 1, 'x': 2.0}"


def values(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.replace(".", "").isdigit()]


def test_a_window_is_ordered_by_a_prediction(run):
    window = "SELECT x FROM (SELECT x, row_number() OVER (ORDER BY predict_value('m', t) DESC) AS place FROM t)"
    done = run("-csv", "-noheader", stdin=f"{TABLE}{TRAIN}\n{window} WHERE place = 1;")
    assert (done.returncode, done.stderr) == (0, "")
    assert values(done.stdout) == ["149.5"]


QUERIES = (
    "SELECT p.prediction, p.probability FROM (SELECT predict('m', t) FROM t) AS s(p)",
    "SELECT predict('m', t).prediction, predict('m', t).probability FROM t",
    "SELECT predict('m', t).prediction FROM t WHERE predict('m', t).value > 3 ORDER BY predict('m', t).value",
)


def test_a_row_is_predicted_once_for_all_that_is_asked_of_it() -> None:
    """By the plan that is run: a filter is not shared with what is selected, in functions of DuckDB's as in ours."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{built(importlib.metadata.version('duckdb'))}'; {TABLE}")
        connection.execute(TRAIN)
        for query in QUERIES:
            plan = connection.execute(f"EXPLAIN {query}").fetchall()[0][1]
            assert plan.count("predict('m'") == 1 + ("WHERE" in query)
            assert len(connection.execute(query).fetchall()) == (298 if "WHERE" in query else 300)


@pytest.mark.thorough
def test_a_prepared_prediction_of_constants_is_the_new_models(run):
    asked = "EXECUTE q;"
    done = run(
        "-csv",
        "-noheader",
        stdin=f"{TABLE}{TRAIN} PREPARE q AS SELECT predict_value('m', {ROW}); {asked} {AGAIN} {asked}"
        f" BEGIN; {AGAIN.replace('100', '200')} {asked} ROLLBACK; {asked}",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert values(done.stdout) == ["7.0", "107.0", "207.0", "107.0"]


def test_statements_one_after_another_ask_the_model_that_is_there(run):
    asked = f"SELECT predict_value('m', {ROW});\nSELECT predict('m', {ROW}).value;\n"
    done = run("-csv", "-noheader", stdin=f"{TABLE}{TRAIN} {asked}{AGAIN}\n{asked}DROP MODEL m;\n{asked}")
    assert values(done.stdout) == ["7.0", "7.0", "107.0", "107.0"]
    assert done.stderr.count('Invalid Input Error: model "m" does not exist') == 2
