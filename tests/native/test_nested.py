"""Statements of ours inside DuckDB's in the stock shell; tests/slt/nested.slt says more, and plain Python runs it, too."""

import importlib.metadata
import os
import subprocess
import sys

import duckdb
import pytest
from native_builds import GROUPLEARN, TABLE, TRAIN, built, cli


@pytest.fixture
def answers(run, shell):
    """Run lines of SQL after a TRAIN; return what they print, the errors after it."""
    if "1.4." in shell:
        pytest.skip("its own parser takes SHOW MODELS; see the tests of the oldest shell")

    def answers(*lines: str) -> str:
        done = run("-csv", "-noheader", stdin="\n".join([TABLE, f".mode trash\n{TRAIN}\n.mode csv", *lines]))
        return done.stdout + done.stderr.strip("\n")

    return answers


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["SELECT model, groups FROM (SHOW MODELS);"], "m,3\n"),
        (["CREATE TABLE e AS EVALUATE MODEL m ON t;", "SELECT count(*), sum(n_rows) FROM e;"], "3,300\n"),
        (["CREATE TEMP TABLE e AS (EVALUATE MODEL m ON t WHERE g = 1);", "SELECT n_rows FROM e;"], "100\n"),
        (
            [
                "CREATE TABLE e AS EVALUATE MODEL m ON t;",
                "INSERT INTO e EVALUATE MODEL m ON t;",
                "SELECT count(*) FROM e;",
            ],
            "6\n",
        ),
        (["COPY (SELECT model FROM (SHOW MODELS)) TO '/dev/stdout' (HEADER false);"], "m\n"),
        (["WITH c AS (SHOW MODELS) SELECT count(*) FROM c;"], "1\n"),
        (["SET VARIABLE n = (SELECT groups FROM (SHOW MODELS));", "SELECT getvariable('n');"], "3\n"),
        (
            [
                "WITH c AS (FROM t WHERE g = 2) TRAIN MODEL n USING linear_regression PREDICT y FEATURES (x) FROM c;",
                "SELECT groups FROM (SHOW MODELS) WHERE model = 'n';",
                "DROP MODEL m, n;",
                "SELECT count(*) FROM (SHOW MODELS);",
            ],
            "model m is dropped; model n is dropped\n0\n",
        ),
        (
            ["BEGIN; DROP MODEL m; SELECT count(*) FROM (SHOW MODELS); ROLLBACK;", "FROM (SHOW MODELS) SELECT model;"],
            "0\nm\n",
        ),
    ],
)
def test_they_stand_where_queries_do(answers, lines: list[str], told: str) -> None:
    assert answers(*lines).endswith(told)


@pytest.mark.parametrize(
    ("text", "told", "place", "width"),
    [
        ("SELECT 1,\n  nothing FROM (SHOW MODELS);", "Binder", "nothing", 7),
        ("CREATE TABLE e AS SELECT nothing FROM (EVALUATE MODEL m ON t);", "Binder", "nothing", 7),
        ("CREATE TABLE e AS EVALUATE MODEL nobody ON t;", "Binder", "nobody", 6),
        ("INSERT INTO t SELECT nothing\nFROM (SHOW MODELS);", "Binder", "nothing", 7),
        ("SELECT model FROM (SHOW MODELS) WHERE ORDER;", "Binder", "ORDER", 5),
        ("CREATE VIEW v AS FROM (SHOW MODELS);", "Parser", "SHOW MODELS", 11),
        ("PREPARE p AS SELECT model FROM (SHOW MODELS) WHERE groups = ?;", "Parser", "SHOW MODELS", 11),
        ("CREATE TABLE e AS TRAIN MODEL n USING linear_regression PREDICT y FROM t;", "Parser", "TRAIN", 5),
    ],
)
def test_errors_point_at_what_was_written(answers, text: str, told: str, place: str, width: int) -> None:
    shown = answers(text, "SELECT 'next';")
    assert f"{told} Error: " in shown
    lines = shown.splitlines()
    (number,) = [n for n, line in enumerate(lines) if line.lstrip().startswith("^")]
    before = lines[number - 1]
    assert before.startswith(f"LINE {text[: text.index(place)].count(chr(10)) + 1}: ")
    assert lines[number] == " " * before.index(place) + "^" * width
    assert "next" in lines


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "SELECT '(SHOW MODELS)', $$(SHOW MODELS)$$ /* (SHOW MODELS) */; -- (SHOW MODELS)",
            "(SHOW MODELS),(SHOW MODELS)\n",
        ),
        ('SELECT "(SHOW MODELS)" FROM (SELECT 1 AS "(SHOW MODELS)");', "1\n"),
        ("WITH evaluate AS (SELECT 1 AS model), train AS (FROM evaluate) SELECT model AS learner FROM train;", "1\n"),
        (
            "CREATE TABLE train (model INTEGER, train INTEGER);INSERT INTO train (model, train) VALUES (2, 3);FROM train;",
            "2,3\n",
        ),
        ("CREATE TABLE evaluate AS SELECT 5 AS model; SELECT (model) AS train FROM evaluate AS learner;", "5\n"),
        ("CREATE TABLE model AS SELECT 4 AS a; SELECT count(*) FROM (DESCRIBE model);", "1\n"),
    ],
)
def test_such_words_in_sql_of_others(answers, text: str, told: str) -> None:
    assert answers(text).endswith(told)


@pytest.mark.parametrize(
    ("text", "values", "rows"),
    [
        ("SELECT model FROM (SHOW MODELS) WHERE groups = ?", [3], [("m",)]),
        ("SELECT ?, n_rows FROM (EVALUATE MODEL m ON (FROM t WHERE x < ?)) WHERE g >= ?", ["a", 10, 2], [("a", 6)]),
        ("SELECT $a + n_rows FROM (EVALUATE MODEL m ON t) WHERE g = $b AND $a = 1", {"a": 1, "b": 2}, [(101,)]),
        ("CREATE TABLE e AS EVALUATE MODEL m ON t WHERE x < ?", [10], [(3,)]),
        ("INSERT INTO n SELECT ? FROM (SHOW MODELS)", [7], [(1,)]),
    ],
)
def test_parameters_inside_and_around(text: str, values: object, rows: list[tuple[object, ...]]) -> None:
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{built(importlib.metadata.version('duckdb'))}'; {TABLE} CREATE TABLE n (a INTEGER)")
        connection.execute(TRAIN)
        assert connection.execute(text, values).fetchall() == rows


def test_in_the_oldest_shell_what_its_parser_lets_us(tmp_path) -> None:
    """It asks for what it cannot parse; SHOW MODELS in brackets it can, as the description of a table."""
    built("1.4.4")
    lines = [
        TABLE,
        TRAIN,
        "CREATE TABLE e AS EVALUATE MODEL m ON t;",
        "INSERT INTO e EVALUATE MODEL m ON t WHERE g = 1;",
        f"COPY (EVALUATE MODEL m ON t) TO '{tmp_path}/e.csv';",
        f"SELECT 'rows', (SELECT count(*) FROM e), count(*) FROM '{tmp_path}/e.csv';",
        "SELECT 'target', value FROM (DESCRIBE MODEL m) WHERE property = 'target';",
        "WITH c AS (FROM t) TRAIN MODEL n USING linear_regression PREDICT y FEATURES (x) FROM c;",
        "SELECT 'models', count(*) FROM grouplearn('SHOW MODELS');",
        "DROP MODEL m, n;",
        "FROM (SHOW MODELS);",
        "SET VARIABLE n = (SELECT count(*) FROM (EVALUATE MODEL m ON t));",
    ]
    environment = {**os.environ, "GROUPLEARN_DUCKDB": cli("1.4.4.post2"), "GROUPLEARN_PYTHON": sys.executable}
    command = [GROUPLEARN, "duckdb", "-csv", "-noheader"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=120, env=environment)
    for told in ("rows,4,3", "target,y", "models,2", "model m is dropped; model n is dropped"):
        assert told in done.stdout.splitlines()
    assert "Hint: Write FROM grouplearn('SHOW MODELS'), or use DuckDB 1.5." in done.stderr
    assert "no statement of grouplearn's can stand inside SET" in done.stderr
