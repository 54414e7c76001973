"""Groups, texts and classes of any characters, exported and read back: each row has the prediction that it had."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import grouplearn

VALUES = ("\r", "\n", "\r\n", "\0", "a\rb", "it's", '"', "\\r", "\x1b[2J", "\x9b", "\u202e", "$b^$", "-- ;", "")
LEARNERS = {
    "value": "linear_regression PREDICT y FEATURES (x, onehot(c))",
    "tree": "gbdt PREDICT y FEATURES (x, c)",
    "class": "logistic_regression PREDICT z FEATURES (x)",
}
PREDICT = "SELECT g, c, x, prediction::VARCHAR, model_level FROM {}_predict(t) ORDER BY ALL ASC"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("odd") / "odd.duckdb"
    with grouplearn.connect(str(path), progress=None) as con:
        con.execute("CREATE TABLE t (x DOUBLE, g VARCHAR, c VARCHAR, y DOUBLE, z VARCHAR)")
        rows = [
            (float(n), g, VALUES[n % 5], place * 10.0 + n % 5, VALUES[(n > 9) + place % 3 * 2])
            for place, g in enumerate(VALUES)
            for n in range(20)
        ]
        con.native.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        for name, learner in LEARNERS.items():
            con.execute(f"TRAIN MODEL {name} USING {learner} FROM t GROUP BY g VALIDATE NONE").fetchall()
    return path


@pytest.fixture
def con(database: Path) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(str(database), read_only=True, progress=None) as connection:
        yield connection


@pytest.mark.examples(3)
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("newline", ["", None], ids=["exact", "line by line"])
def test_a_sql_script_predicts_the_same(
    con: grouplearn.Connection, database: Path, tmp_path: Path, name: str, newline: str | None
) -> None:
    con.execute(f"EXPORT MODEL {name} TO '{tmp_path / 'out'}' (FORMAT sql)").fetchall()
    with (tmp_path / "out" / "model.sql").open(encoding="utf-8", newline=newline) as file:
        script = file.read()
    expected = con.execute(PREDICT.format(name)).fetchall()
    assert {g for g, *_ in expected} == set(VALUES)
    assert {level for *_, level in expected} == {"g"}
    with duckdb.connect() as plain:
        plain.execute(f"ATTACH '{database}' AS odd (READ_ONLY); CREATE TABLE t AS FROM odd.t")
        plain.execute(script)
        assert plain.execute(PREDICT.format(name)).fetchall() == expected


def test_a_sql_script_does_nothing_to_a_terminal(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.execute(f"EXPORT MODEL class TO '{tmp_path / 'out'}' (FORMAT sql)").fetchall()
    script = (tmp_path / "out" / "model.sql").read_bytes().decode()
    assert not [
        character for character in script if (character < " " and character not in "\n\t") or character == "\x9b"
    ]


def test_a_sql_script_in_both_shells(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.execute(f"EXPORT MODEL value TO '{tmp_path / 'out'}' (FORMAT sql)").fetchall()
    expected = con.execute("SELECT count(*), sum(prediction) FROM value_predict(t)").fetchall()[0]
    count = "SELECT count(*) || ' ' || sum(prediction) FROM value_predict(t)"
    con.execute(f"COPY t TO '{tmp_path / 't.parquet'}'")  # the shell may be of an older version
    copied = f"CREATE TABLE t AS FROM '{tmp_path / 't.parquet'}'"
    for program in (["duckdb"], ["grouplearn"]):
        options = ["-csv", "-c", copied, "-c", f".read {tmp_path / 'out' / 'model.sql'}", "-c", count]
        done = subprocess.run(
            [*program, *options], capture_output=True, text=True, timeout=60, check=False, env=environment()
        )
        assert done.stderr == ""
        rows, total = done.stdout.splitlines()[-1].split()
        assert (int(rows), float(total)) == (expected[0], pytest.approx(expected[1]))


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": "/nonexistent",
    }


@pytest.mark.parametrize("name", LEARNERS)
def test_a_native_export_predicts_the_same(
    con: grouplearn.Connection, database: Path, tmp_path: Path, name: str
) -> None:
    con.execute(f"EXPORT MODEL {name} TO '{tmp_path / 'out'}'").fetchall()
    with grouplearn.connect(progress=None) as other:
        other.execute(f"ATTACH '{database}' AS odd (READ_ONLY); CREATE TABLE t AS FROM odd.t")
        other.execute(f"IMPORT MODEL again FROM '{tmp_path / 'out'}'").fetchall()
        assert other.execute(PREDICT.format("again")).fetchall() == con.execute(PREDICT.format(name)).fetchall()


def test_our_shell_reads_texts_of_a_script_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_bytes(b"SELECT length('a\rb\r\nc') AS n,\r\n 1 AS m;\r\n.mode\r\n")
    command = ["grouplearn", "-csv", "-f", str(tmp_path / "script.sql")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment())
    assert done.stdout == "n,m\n6,1\ncurrent output mode: csv\n"
