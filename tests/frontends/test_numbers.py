"""What a program is given of our numbers is whole; what a person is shown has four digits."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest
from IPython.core.interactiveshell import InteractiveShell

import grouplearn
from grouplearn.frontends.shell.console import Console
from grouplearn.frontends.shell.output import OutputFormat, for_people

#: Keys and drawn hyperparameters have many digits, too, and tell trials apart.
SETUP = (
    "CREATE TABLE sales AS SELECT i % 2 + 0.123456789012345 AS region, hash(i) % 1000 / 7 AS price,"
    " hash(i + 1) % 1000 / 3 AS units FROM range(300) AS t(i)"
)
TRAIN = (
    "TRAIN OR REPLACE MODEL demand USING linear_regression PREDICT units FEATURES (price) FROM sales GROUP BY region"
    " OVER RANDOM (l2 BETWEEN 0.001 AND 10 LOG) WITH (trials = 3, seed = 7)"
)
STATEMENTS = {
    "train": (TRAIN, "valid_rmse", "SELECT valid_rmse FROM demand WHERE is_best ORDER BY region"),
    "show": ("SHOW MODELS", "best", "SELECT min(valid_rmse) FROM demand"),
    "median": ("SHOW MODELS", "median", "SELECT median(valid_rmse) FROM demand WHERE is_best"),
    "seconds": ("SHOW MODELS", "seconds", "SELECT seconds FROM grouplearn.models"),
    "evaluate": (
        "EVALUATE MODEL demand ON sales",
        "rmse",
        "SELECT sqrt(avg((units - prediction) ** 2)) FROM demand_predict(sales) GROUP BY region ORDER BY region",
    ),
}


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    console = Console(lambda path, read_only: grouplearn.connect(path, read_only=read_only, progress=None))
    console.connection.execute(SETUP)
    console.connection.execute(TRAIN)
    yield console
    console.close()


@pytest.fixture(params=STATEMENTS)
def asked(request: pytest.FixtureRequest, console: Console) -> tuple[str, str, list[float]]:
    """A statement, one of its columns, and what the catalog has in it."""
    statement, column, truth = STATEMENTS[request.param]
    values = [value for (value,) in console.connection.execute(truth).fetchall()]
    assert any(float(f"{value:.6g}") != value for value in values)
    return statement, column, values


def by_fetchall(con: grouplearn.Connection, statement: str, column: str) -> list[float]:
    rows = con.execute(statement).fetchall()
    place = [name for name, *_ in con.description or ()].index(column)
    return [row[place] for row in rows]


PROGRAMS: dict[str, Callable[[grouplearn.Connection, str, str], list[float]]] = {
    "fetchall": by_fetchall,
    "df": lambda con, statement, column: con.execute(statement).df()[column].tolist(),
    "arrow": lambda con, statement, column: con.execute(statement).arrow()[column].to_pylist(),
    "relation": lambda con, statement, column: con.sql(statement).project(f'"{column}"').fetchnumpy()[column].tolist(),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_python_is_given_all_digits(program: str, console: Console, asked: tuple[str, str, list[float]]) -> None:
    statement, column, values = asked
    assert_same(PROGRAMS[program](console.connection, statement, column), values)


def assert_same(seen: list[float], values: list[float]) -> None:
    """As many digits as DOUBLE has; a TRAIN that has run again took another time, and other threads sum in another order."""
    assert seen == pytest.approx(values, rel=1e-14)


def printed(console: Console, mode: str, text: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    console.layout = OutputFormat(mode, max_width=400)
    console.run(text)
    return capsys.readouterr().out


@pytest.mark.parametrize("mode", ["csv", "json", "jsonlines"])
def test_files_are_given_all_digits(
    mode: str, console: Console, asked: tuple[str, str, list[float]], capsys: pytest.CaptureFixture[str]
) -> None:
    statement, column, values = asked
    text = printed(console, mode, statement, capsys)
    rows: list[dict[str, Any]] = {
        "csv": lambda: list(csv.DictReader(io.StringIO(text))),
        "json": lambda: json.loads(text),
        "jsonlines": lambda: [json.loads(line) for line in text.splitlines()],
    }[mode]()
    assert_same([float(row[column]) for row in rows], values)


@pytest.mark.parametrize("mode", ["duckbox", "box"])
def test_boxes_have_four_digits(
    mode: str, console: Console, asked: tuple[str, str, list[float]], capsys: pytest.CaptureFixture[str]
) -> None:
    statement, _, values = asked
    text = printed(console, mode, statement, capsys)
    for value in values:
        assert f" {four(value)} │" in text
        assert str(value) not in text


def four(value: float) -> str:
    return str(float(f"{value:.4g}"))


def test_a_box_has_keys_and_hyperparameters_whole(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(console, "duckbox", TRAIN, capsys)
    (l2,) = console.connection.execute("SELECT l2 FROM demand WHERE is_best AND region < 1").fetchall()[0]
    assert "0.123456789012345 │" in text
    assert f"{l2} │" in text


def test_answers_fit_into_a_terminal(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    console.layout = OutputFormat(max_width=100)
    capsys.readouterr()
    console.run("SHOW MODELS")
    text = capsys.readouterr().out
    heads = [word.strip() for word in text.splitlines()[1].split("│") if word.strip()]
    assert {"model", "target", "groups", "metric", "best", "median"} <= set(heads)
    assert max(map(len, text.splitlines())) <= 100


def test_queries_of_the_user_are_not_rounded(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    (best,) = console.connection.execute("SELECT min(valid_rmse) FROM demand").fetchall()[0]
    assert str(best) in printed(console, "duckbox", "SELECT best FROM (SHOW MODELS)", capsys)
    assert str(best) in printed(console, "duckbox", "SELECT valid_rmse FROM demand ORDER BY ALL", capsys)
    console.run(
        "CREATE OR REPLACE TABLE kept AS SHOW MODELS; CREATE OR REPLACE TABLE other AS EVALUATE MODEL demand ON sales"
    )
    assert console.connection.execute("SELECT best FROM kept").fetchall() == [(best,)]
    assert console.connection.execute("SELECT count(*) FROM other WHERE rmse = round(rmse, 6)").fetchall() == [(0,)]


def test_four_digits_of_any_number() -> None:
    values = [0.0, 1e-9 / 3, -1 / 3, 999.96, 12345.678, -123456789.5, math.inf, -math.inf, math.nan, None]
    with duckdb.connect() as con:
        relation = for_people(con.sql("SELECT unnest($v)::DOUBLE AS x, 1 AS n", params={"v": values}))
        assert [str(value) for (value,) in relation.project("x").fetchall()] == [
            "0.0",
            "3.333e-10",
            "-0.3333",
            "1000.0",
            "12346.0",
            "-123456790.0",
            "inf",
            "-inf",
            "nan",
            "None",
        ]
        untouched = con.sql("SELECT 0.12345678::DOUBLE AS k, 3 AS n_rows, 0.12345678::FLOAT AS f, 0.12345678 AS d")
        assert for_people(untouched).fetchall() == untouched.fetchall()


def test_a_notebook_shows_four_digits_and_keeps_all(console: Console, asked: tuple[str, str, list[float]]) -> None:
    statement, column, values = asked
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "grouplearn")
    shell.user_ns["con"] = console.connection
    answer = shell.run_cell_magic("gl", "con", statement)
    assert_same(answer.df()[column].tolist(), values)
    page = answer._repr_html_()
    for value in values:
        assert re.search(rf'title="{re.escape(str(value))[:12]}[0-9e-]*">[0-9.e-]+<', page), page
        assert f">{value}<" not in page
        assert str(value) not in repr(answer)
        assert column == "seconds" or f" {four(value)} │" in repr(answer)  # a text of this width leaves seconds out


def test_no_time_of_ours_has_a_time_zone(console: Console) -> None:
    """DuckDB cannot give Python a TIMESTAMPTZ without a package that we do not ask for."""
    con = console.connection
    views = [
        f"FROM demand{suffix}"
        for suffix in ("", "_weights", "_curves", "_importance", "_features", "_schedule", "_versions", "_history")
    ]
    listings = ["SHOW MODELS", "SHOW RUNS", "SHOW LEARNERS", "DESCRIBE MODEL demand", "EVALUATE MODEL demand ON sales"]
    kinds = {str(kind) for statement in (*views, *listings, TRAIN) for kind in con.sql(statement).types}
    kinds |= {
        kind
        for (kind,) in con.execute("SELECT data_type FROM duckdb_columns() WHERE schema_name = 'grouplearn'").fetchall()
    }
    assert "TIMESTAMP" in kinds
    assert not [kind for kind in kinds if "TIME ZONE" in kind]


def test_groups_by_a_time_with_its_zone_are_trained(console: Console) -> None:
    con = console.connection
    con.execute("CREATE OR REPLACE TABLE zoned AS SELECT *, make_timestamptz(region::BIGINT) AS moment FROM sales")
    train = (
        "TRAIN OR REPLACE MODEL zones USING linear_regression PREDICT units FEATURES (price) FROM zoned GROUP BY moment"
    )
    assert con.execute(train).arrow().num_rows == 2
    assert con.execute("SELECT typeof(moment) FROM zones LIMIT 1").fetchall() == [("TIMESTAMP WITH TIME ZONE",)]
    con.execute("DROP MODEL zones")
