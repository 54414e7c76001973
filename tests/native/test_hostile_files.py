"""A poisoned file in the stock shell: nothing of its author's runs, and what is wrong with it is said."""

import subprocess
from pathlib import Path

import pytest
from native_builds import TRAIN

from grouplearn.catalog.schema import TABLES

FIELDS = ("name", "kind", "position", "encoder", "impute", "scope", "buckets", "options", "type")
CHANGED = "UPDATE grouplearn.models SET "
ITEM = (
    "UPDATE grouplearn.models SET items = [{{"
    + ", ".join(f"'{name}': items[1]['{name}']" for name in FIELDS)
    + ", 'sql': {}}}];"
)
PREDICT = "SELECT predict('m', t) FROM t LIMIT 1;"
EVALUATE = "EVALUATE MODEL m ON t;"


@pytest.fixture
def poisoned(run, shell: str, database: str):
    """Let ``sql`` spoil the file without us, and run statements on it in a process that did not train it."""

    def poisoned(sql: str, *statements: str):
        spoilt = subprocess.run([shell, database], input=sql, capture_output=True, text=True, timeout=120, check=False)
        assert (spoilt.returncode, spoilt.stderr) == (0, "")
        return run("-csv", database, stdin="\n".join(statements))

    return poisoned


def copied(*changes: str) -> str:
    """Return what makes models m0, m1 ... of model m, with a change of each: a process reads a model once."""
    made = []
    for number, change in enumerate(changes):
        other = f"'{number:032x}'::UUID"
        column, _, value = change.removesuffix(";").partition(" = ")
        for table in TABLES:
            given = f", 'm{number}' AS model_name, {value} AS {column}" if table == "models" else ""
            made.append(
                f"INSERT INTO grouplearn.{table} SELECT * REPLACE ({other} AS model{given}) FROM grouplearn.{table}"
                " SEMI JOIN (SELECT model FROM grouplearn.models WHERE model_name = 'm') USING (model);"
            )
    return "".join(reversed(made))  # models last


def asked_of(models: int) -> list[str]:
    return [
        each.replace("m'", f"m{number}'").replace("L m", f"L m{number}")
        for number in range(models)
        for each in (PREDICT, EVALUATE)
    ]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.thorough
def test_several_statements_in_an_expression(poisoned, ours, tmp_path: Path):
    canary = tmp_path / "canary"
    hostile = f"1) AS a; COPY (SELECT 1) TO '{canary}'; SELECT (1"
    statements = (PREDICT, EVALUATE, "ALTER MODEL m RENAME TO n;", f"EXPORT MODEL m TO '{tmp_path}/out';")
    done = poisoned(ITEM.format(quoted(hostile)), *statements)
    assert done.stderr.count(" is not one expression: ") == len(statements), done.stderr
    assert not canary.exists()
    done = poisoned("", ours("SHOW MODELS;"), "DESCRIBE MODEL m;", "DROP MODEL m;")
    assert (done.stderr, canary.exists()) == ("", False)
    assert "model m is dropped" in done.stdout


def test_what_reads_files_is_refused_until_it_is_trusted(poisoned, ours, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("7")
    text = f"(SELECT max(content)::DOUBLE FROM read_text('{secret}'))"
    trusting = (ours("SET grouplearn_trust = true;"), PREDICT, ours("RESET grouplearn_trust;"), PREDICT)
    done = poisoned(ITEM.format(quoted(text)), PREDICT, EVALUATE, *trusting)
    refusal = 'feature "x" of model "m" calls read_text, which may read or write outside the database'
    assert done.stderr.count(refusal) == 3, done.stderr
    assert done.stderr.count("SET grouplearn_trust = true") == 3
    assert "prediction" in done.stdout, done.stderr


#: What only seems to stay inside the database, and why it is refused.
SEEMING = {
    '(WITH RECURSIVE "{0}" AS (SELECT v FROM "{0}" UNION ALL SELECT 1 WHERE false) SELECT max(v) FROM "{0}") + x': (
        "which is no table or view of an attached database"
    ),
    "s.reader(x)": "which is no table or view of an attached database",
    "(SELECT count(*) FROM sqlite_scan('a.db', 't')) + x": "calls sqlite_scan",
    "length('1.2.3.4'::INET::VARCHAR) + x": "has type inet",
    "length(repeat('[', 9)::JSON::VARIANT::VARCHAR) + x": "has type variant",
    "(CAST(NULL AS STRUCT(a VARIANT[])) IS NULL)::INT + x": "has type variant",
    "length(json_structure(repeat('[', 9))) + x": "calls json_structure",
    "(CAST(NULL AS STRUCT(a INET[])) IS NULL)::INT + x": "has type inet",
}
#: Types that are not DuckDB's own, or end its process.
KINDS = ("INET", "VARIANT", "STRUCT(a INET)", "MAP(INTEGER, VARIANT)")


def test_what_only_seems_to_stay_inside(poisoned, tmp_path: Path):
    secret = tmp_path / "secret.csv"
    secret.write_text("v\n4242\n")
    names = f'USE s; CREATE TABLE "{secret}"(v INTEGER); CREATE MACRO reader(a) AS a + (SELECT max(v) FROM "{secret}");'
    names = f"CREATE SCHEMA s; CREATE MACRO sqlite_scan(a, b) AS 1; {names} USE main;"
    changes = [ITEM.format(quoted(feature.format(secret))).removeprefix(CHANGED) for feature in SEEMING]
    done = poisoned(names + copied(*changes), *asked_of(len(changes)))
    for reason in set(SEEMING.values()):
        times = 2 * list(SEEMING.values()).count(reason)
        assert done.stderr.count(reason) == times, done.stderr
    assert "4242" not in done.stdout


def test_a_type_of_a_model_is_duckdbs_own(poisoned):
    changes = [f"keys = [{{'name': 'g', 'sql': 'g', 'type': '{kind}'}}];" for kind in KINDS]
    done = poisoned(copied(*changes), *asked_of(len(changes)))
    for number in range(len(KINDS)):
        assert done.stderr.count(f'the type of key "g" of model "m{number}" has type') == 2, done.stderr


def test_what_a_type_is_made_of_stays_inside(poisoned):
    kinds = (
        "DECIMAL(9, 2)",
        "TIMESTAMPTZ",
        "mood",
        "STRUCT(a INT, b mood[])",
        "MAP(UINTEGER, VARCHAR(3))",
        "BLOB",
        "HUGEINT[2]",
    )
    feature = "x + " + " + ".join(f"(CAST(NULL AS {kind}) IS NULL)::INT" for kind in kinds)
    done = poisoned("CREATE TYPE mood AS ENUM ('a');" + ITEM.format(quoted(feature)), PREDICT, EVALUATE)
    assert done.stderr == ""
    assert "prediction" in done.stdout


def test_macros_that_hide_functions_of_duckdb(poisoned, ours, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("7")
    reads = f"SELECT system.main.error('read ' || content) AS a FROM system.main.read_text('{secret}')"
    # What the extension itself asks for when it is loaded and when it answers, and what we ask for then.
    one = "".join(f"CREATE MACRO {name}(a) AS ({reads});" for name in ("lower", "current_setting", "typeof"))
    rows = f"CREATE MACRO duckdb_tables() AS TABLE {reads}; CREATE MACRO query(a) AS TABLE {reads};"
    statements = (ours("SHOW MODELS;"), "DESCRIBE MODEL m;", PREDICT, EVALUATE, TRAIN, "DROP MODEL m;")
    done = poisoned(one + rows, *statements)
    assert done.stderr.count("hides DuckDB's own") == len(statements), done.stderr
    assert "read 7" not in done.stderr
    drop = "DROP MACRO lower; DROP MACRO current_setting; DROP MACRO typeof; DROP MACRO TABLE duckdb_tables;"
    trusting = (ours("SET grouplearn_trust = true;"), "DESCRIBE MODEL m;", ours("RESET grouplearn_trust;"))
    done = poisoned(drop, *trusting, "DESCRIBE MODEL m;")
    assert done.stderr.count('macro "a"."main"."query" hides DuckDB\'s own "query"') == 1, done.stderr
    done = poisoned("DROP MACRO TABLE query;", ours("SHOW MODELS;"), "DROP MODEL m;")
    assert done.stderr == ""


def test_tables_that_are_not_ours(poisoned, ours, tmp_path: Path):
    canary = tmp_path / "canary"
    hostile = f"m''::UUID; COPY (SELECT 1) TO ''{canary}''; --"
    done = poisoned(
        "CREATE TABLE other AS FROM grouplearn.models; DROP TABLE grouplearn.models;"
        f"CREATE TABLE grouplearn.models AS SELECT '{hostile}' AS model, * EXCLUDE (model) FROM other;",
        ours("SHOW MODELS;"), "DESCRIBE MODEL m;", PREDICT, EVALUATE, TRAIN, "DROP MODEL m;",
    )  # fmt: skip
    assert done.stderr.count('grouplearn.models has a column "model" of type VARCHAR, and ours is UUID') == 6, (
        done.stderr
    )
    assert not canary.exists()


def test_what_names_mean_is_looked_at_in_each_query_of_a_transaction(poisoned, ours):
    predict = "SELECT predict('a.main.m', t).value FROM a.t LIMIT 1;"
    statements = ("BEGIN;", predict, ours("SHOW MODELS;"), predict, "USE a;", predict, "ROLLBACK;", predict)
    there = ("ATTACH ':memory:' AS here;", "USE here;", *statements)
    done = poisoned("CREATE MACRO abs(a) AS 1e9 + a;" + ITEM.format(quoted("abs(x)")), *there)
    assert done.stdout.count("value") == 2, done.stderr
    assert done.stderr.count("hides DuckDB's own") == 2, done.stderr


@pytest.mark.parametrize("within", ["", "BEGIN;"])
def test_what_comes_into_the_database_is_looked_at_by_the_next_query(poisoned, tmp_path: Path, within: str):
    predict = "SELECT predict('m', t).value FROM t LIMIT 1;"
    evil = f"ATTACH '{tmp_path}/evil.duckdb' AS e;"
    done = poisoned(f"{evil} CREATE MACRO e.abs(a) AS 1e9 + a;" + ITEM.format(quoted("abs(x)")), evil, within, predict,
                    f"COPY FROM DATABASE e TO a; {'COMMIT;' if within else ''}", predict)  # fmt: skip
    assert done.stdout.count("value") == 1, done.stderr
    assert done.stderr.count("hides DuckDB's own") == 1, done.stderr
