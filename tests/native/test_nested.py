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
    """Run cases, each some lines of SQL, after a TRAIN; return what each prints, the errors after it."""
    if "1.4." in shell:
        pytest.skip("its own parser takes SHOW MODELS; see the tests of the oldest shell")

    def answers(cases: list[list[str]]) -> list[str]:
        begun = "SELECT '--- case'; SELECT error('--- case');"
        lines = [line for case in cases for line in (begun, *case, "DROP TABLE IF EXISTS e;")]
        done = run("-csv", "-noheader", stdin="\n".join([TABLE, f".mode trash\n{TRAIN}\n.mode csv", *lines]))
        printed, told = done.stdout.split("--- case\n")[1:], done.stderr.split("Invalid Input Error: --- case\n")[1:]
        assert len(printed) == len(told) == len(cases), done.stderr
        return [out + err.strip("\n") for out, err in zip(printed, told, strict=True)]

    return answers


#: The last one leaves no model.
QUERIES = [
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
    (
        [
            "COPY (SELECT model FROM (SHOW MODELS)) TO '{folder}/copied.csv' (HEADER false);",
            "SELECT trim(content, chr(10)) FROM read_text('{folder}/copied.csv');",
        ],
        "m\n",
    ),
    (["WITH c AS (SHOW MODELS) SELECT count(*) FROM c;"], "1\n"),
    (["WITH c AS (FROM t WHERE g = 1) SELECT n_rows FROM (EVALUATE MODEL m ON c);"], "100\n"),
    (["WITH t AS (FROM t WHERE x < 5) SELECT sum(n_rows) FROM (EVALUATE MODEL m ON t);"], "10\n"),
    (["SET VARIABLE n = (SELECT groups FROM (SHOW MODELS));", "SELECT getvariable('n');"], "3\n"),
    (
        ["BEGIN; DROP MODEL m; SELECT count(*) FROM (SHOW MODELS); ROLLBACK;", "FROM (SHOW MODELS) SELECT model;"],
        "0\nm\n",
    ),
    (
        [
            "WITH c AS (FROM t WHERE g = 2) TRAIN MODEL n USING linear_regression PREDICT y FEATURES (x) FROM c;",
            "SELECT groups FROM (SHOW MODELS) WHERE model = 'n';",
            "DROP MODEL m, n;",
            "SELECT count(*) FROM (SHOW MODELS);",
        ],
        "model m is dropped; model n is dropped\n0\n",
    ),
]


def test_they_stand_where_queries_do(answers, tmp_path) -> None:
    cases = [[line.replace("{folder}", str(tmp_path)) for line in lines] for lines, _ in QUERIES]
    for case, seen, (_, told) in zip(cases, answers(cases), QUERIES, strict=True):
        assert seen.endswith(told), case


#: A text, the kind of its error, and what is marked.
ERRORS = [
    ("SELECT 1,\n  nothing FROM (SHOW MODELS);", "Binder", "nothing"),
    ("CREATE TABLE e AS SELECT nothing FROM (EVALUATE MODEL m ON t);", "Binder", "nothing"),
    ("CREATE TABLE e AS EVALUATE MODEL nobody ON t;", "Binder", "nobody"),
    ("INSERT INTO t SELECT nothing\nFROM (SHOW MODELS);", "Binder", "nothing"),
    ("SELECT model FROM (SHOW MODELS) WHERE ORDER;", "Binder", "ORDER"),
    ("CREATE VIEW v AS FROM (SHOW MODELS);", "Parser", "SHOW MODELS"),
    ("PREPARE p AS SELECT model FROM (SHOW MODELS) WHERE groups = ?;", "Parser", "SHOW MODELS"),
    ("CREATE TABLE e AS TRAIN MODEL n USING linear_regression PREDICT y FROM t;", "Parser", "TRAIN"),
    ("PREPARE p AS INSERT INTO e EVALUATE MODEL m ON t;", "Parser", "EVALUATE MODEL"),
    ("PREPARE p AS DROP MODEL m;", "Parser", "DROP"),
    ("PREPARE p AS\nEXPLAIN ANALYZE TRAIN MODEL n USING linear_regression PREDICT y FROM t;", "Parser", "EXPLAIN"),
    ("PREPARE p AS RETRY FAILED MODEL m;", "Parser", "RETRY"),
    ("PREPARE p AS EXPORT MODEL m TO 'folder';", "Parser", "EXPORT"),
]


def test_errors_point_at_what_was_written(answers) -> None:
    for (text, told, place), shown in zip(
        ERRORS, answers([[text, "SELECT 'next';"] for text, *_ in ERRORS]), strict=True
    ):
        assert f"{told} Error: " in shown, text
        lines = shown.splitlines()
        (number,) = [n for n, line in enumerate(lines) if line.lstrip().startswith("^")]
        before = lines[number - 1]
        assert before.startswith(f"LINE {text[: text.index(place)].count(chr(10)) + 1}: "), text
        assert lines[number] == " " * before.index(place) + "^" * len(place), text
        assert "next" in lines, text


OTHERS = [
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
]


def test_such_words_in_sql_of_others(answers) -> None:
    for (text, told), seen in zip(OTHERS, answers([[text] for text, _ in OTHERS]), strict=True):
        assert seen.endswith(told), text


@pytest.fixture(scope="module")
def connection():
    config = {"allow_unsigned_extensions": "true"}
    with pytest.MonkeyPatch.context() as patch, duckdb.connect(config=config) as connection:
        patch.setenv("GROUPLEARN_PYTHON", sys.executable)
        connection.execute(f"LOAD '{built(importlib.metadata.version('duckdb'))}'; {TABLE} CREATE TABLE n (a INTEGER)")
        connection.execute(TRAIN)
        yield connection


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
def test_parameters_inside_and_around(connection, text: str, values: object, rows: list[tuple[object, ...]]) -> None:
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
