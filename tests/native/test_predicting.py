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


def test_forecasts_go_on_beyond_those_that_are_stored(run):
    sales = (
        "CREATE TABLE sales AS SELECT s AS store, DATE '2020-01-01' + CAST(i AS INTEGER) AS day, 5.0 + s + i % 7 AS y"
        " FROM range(40) AS r(i), range(2) AS q(s);"
        "TRAIN MODEL m USING seasonal_naive PREDICT y ORDER BY day FROM sales GROUP BY store WITH (horizon = 2);"
    )
    steps = "SELECT store, unnest(forecast('m', s, {}), recursive := true) FROM (SELECT DISTINCT store FROM sales) AS s"
    done = run(
        "-csv",
        "-noheader",
        stdin=f"{sales}SELECT store, step, time, prediction FROM ({steps.format('3')}) WHERE step = 3 ORDER BY ALL;"
        f"SELECT count(*) FROM ({steps.format('2, 0.5')}) JOIN m_forecast(level := 0.5) USING (store, step, prediction, upper);",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-3:] == ["0,3,2020-02-12,5.0", "1,3,2020-02-12,6.0", "4"]


def test_rows_of_the_steps_to_come_are_forecast(run):
    done = run(
        "-csv",
        "-noheader",
        stdin="CREATE TABLE sales AS SELECT i AS day, i % 7 + 2 * (i % 3) AS y, i % 3 AS price FROM range(40) AS r(i);"
        "TRAIN MODEL m USING linear_regression PREDICT y ORDER BY day FEATURES (lags(7), price) FROM sales WITH (horizon = 2);"
        "SELECT unnest([round(f.prediction) FOR f IN forecast('m', list(p))]) FROM"
        " (SELECT unnest([40, 41, 42]) AS day, 0 AS price) AS p;",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()[-3:]) == 3
    assert all(float(each) < 9 for each in done.stdout.splitlines()[-3:])


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


def test_the_macro_of_trees_calls_the_function_where_it_is_loaded(tmp_path) -> None:
    """And plain DuckDB, which lacks it, gives the same rows."""
    path = str(tmp_path / "shop.duckdb")
    train = TRAIN.replace("linear_regression", "gbdt").replace(
        "VALIDATE NONE", "VALIDATE NONE WITH (num_iterations = 3)"
    )
    with duckdb.connect(path, config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{built(importlib.metadata.version('duckdb'))}'; {TABLE}")
        connection.execute(train)
        assert "Join" not in connection.execute("EXPLAIN FROM m_predict(t)").fetchall()[0][1]
        expected = connection.execute("FROM m_predict(t)").fetchall()
    with duckdb.connect(path) as plain:
        assert "Join" in plain.execute("EXPLAIN FROM m_predict(t)").fetchall()[0][1]
        found = plain.execute("FROM m_predict(t)").fetchall()
    assert len(found) == 300
    for (*row, prediction, level), (*same, value, of) in zip(found, expected, strict=True):
        assert (row, level, prediction) == (same, of, pytest.approx(value, rel=1e-6))


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


def test_rows_begin_with_a_column_of_any_type(run):
    """A feature that is an expression is computed by the database, from rows that the process sends back to it."""
    told = run("-csv", "-noheader", "-c", "SELECT column_name FROM (DESCRIBE FROM test_all_types())")
    columns = told.stdout.split()
    assert {"bool", "varchar", "hugeint", "struct", "int_array", "map", "union"} < set(columns)
    table = (
        "CREATE TABLE p AS SELECT i % 7 AS x, 'abcdefg'[i % 7:] AS s, i % 7 * 3 AS y FROM range(60) r(i);"
        " TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x * 2 AS z, length(s) AS n) FROM p;"
    )
    rows = "SELECT a.{0}, x, s, a.{0} AS again FROM test_all_types() AS a, p WHERE {1}"
    predicted = "SELECT x, predict_value('m', r) AS v FROM ({1}) AS r"
    count = f"SELECT '{{0}}', count(v), bool_and(abs(v - 3 * x) < 0.001) FROM ({predicted});"
    asked = [count.format(column, rows.format(f'"{column}"', "true")) for column in columns]
    asked += [count.format("none", rows.format("bool", "false")), count.format("part", rows.format("bool", "x > 3"))]
    done = run("-csv", "-noheader", stdin="\n".join([table, *asked]))
    assert (done.returncode, done.stderr) == (0, "")
    expected = [*(f"{column},180,true" for column in columns), "none,0,NULL", "part,72,true"]
    assert done.stdout.splitlines()[1:] == expected
