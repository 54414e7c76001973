"""DuckDB 1.4, whose parser asks extensions only for what it cannot parse; conftest.py says how to run every test in it."""

import os
import subprocess
import sys

import pytest
from native_builds import GROUPLEARN, TABLE, TRAIN, built, cli

from grouplearn.frontends.native import launch


@pytest.fixture(scope="module")
def oldest() -> str:
    """The oldest shell that PyPI has."""
    found = cli("1.4.4.post2")
    assert launch.version_of(found) == "1.4.4"
    built("1.4.4")
    return found


@pytest.fixture
def run(oldest):
    def run(sql: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "GROUPLEARN_DUCKDB": oldest, "GROUPLEARN_PYTHON": sys.executable}
        command = [GROUPLEARN, "duckdb", "-csv", "-noheader"]
        return subprocess.run(command, input=sql, capture_output=True, text=True, timeout=120, env=environment)

    return run


def test_train_in_a_transaction(run):
    mine = TRAIN.replace("FROM t", "FROM mine")
    done = run(
        f"{TABLE} BEGIN; CREATE TEMP TABLE mine AS FROM t LIMIT 30; {mine} SELECT count(*) FROM m_predict(mine);\n"
        "SELECT sum(predict_value('m', mine)) = sum(y) FROM mine; ROLLBACK; FROM grouplearn('SHOW MODELS'); SELECT 'end';"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(",")[:2] for line in done.stdout.splitlines()[:3]] == [["0", "10"], ["1", "10"], ["2", "10"]]
    assert done.stdout.splitlines()[3:] == ["30", "true", "end"]


def test_a_failed_statement_leaves_the_shell_and_nothing_else(run):
    done = run(f"{TABLE} CREATE TABLE m_weights (a INTEGER);\n{TRAIN}\nSELECT count(*) FROM duckdb_tables();")
    assert done.stderr.startswith('Binder Error: table "m_weights" already exists')
    assert done.stdout == "2\n"


@pytest.mark.parametrize("statement", ["SHOW MODELS", "SHOW RUNS", "SHOW LEARNERS"])
def test_what_to_write_for_what_duckdb_takes_for_its_own(run, statement):
    assert run(f"{statement};").stderr == (
        f"Binder Error: DuckDB 1.4 takes {statement} for a statement of its own\n\n"
        f"Hint: Write FROM grouplearn('{statement}'), or use DuckDB 1.5.\n"
    )


def test_errors_of_others_are_theirs(run):
    assert "Table with name models does not exist!" in run("FROM models;").stderr
    assert "grouplearn() takes a statement of grouplearn's" in run("FROM grouplearn('SELECT 1');").stderr


HOSTILE = [
    "CREATE VIEW v AS FROM grouplearn('DROP MODEL m');",
    "CREATE MACRO f(s) AS TABLE FROM grouplearn(s);\nFROM f('DROP MODEL m');",
    "CREATE MACRO g() AS (SELECT count(*) FROM grouplearn('SET grouplearn_workers = 1'));",
    "FROM query('FROM grouplearn(''DROP MODEL m'')');",
    "FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM grouplearn(''DROP MODEL m'')'));",
    "CREATE TABLE x AS FROM grouplearn('DROP MODEL m');",
    "FROM range(2), grouplearn('DROP MODEL m');",
    "FROM (FROM grouplearn('CREATE TABLE x AS EVALUATE MODEL m ON t'));",
]
FORGED = "SELECT grouplearn_statement(7::UBIGINT, 1::UBIGINT, 0::UBIGINT, 0::UBIGINT, 12::UBIGINT, 'DROP MODEL m');"


def test_what_a_view_asks_for_only_reads(run):
    done = run("\n".join([TABLE, TRAIN, *HOSTILE, FORGED, "FROM grouplearn('SHOW MODELS');"]))
    assert done.stderr.count("can only be SHOW") == len(HOSTILE)
    assert done.stderr.count("is for statements of grouplearn's") == 1
    assert done.stdout.splitlines()[-1].startswith("m,y,3,")


def test_the_users_own_call_does_what_it_says_and_a_view_may_ask(run):
    done = run(
        f"{TABLE}\nFROM grouplearn('{TRAIN.rstrip(';')}');\nCREATE VIEW v AS FROM grouplearn('SHOW MODELS');\n"
        "SELECT 'seen', model FROM v;\nSELECT 'rows', sum(n_rows)::INTEGER FROM grouplearn('EVALUATE MODEL m ON t');\n"
        "FROM grouplearn('SET grouplearn_workers = 1');\nFROM grouplearn('DROP MODEL m');\nFROM v;"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[3:] == ["seen,m", "rows,300", "grouplearn_workers is 1", "model m is dropped"]
