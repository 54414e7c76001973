"""The unmodified duckdb shell with the extension: each way in, each way a statement can end."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pexpect
import pytest

from grouplearn.frontends.native import launch
from grouplearn.frontends.native.build import build

GROUPLEARN = str(Path(sys.executable).parent / "grouplearn")
TABLE = "CREATE TABLE t AS SELECT (i % 3)::INTEGER AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i);"
TRAIN = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE NONE;"
COUNT = "SELECT count(*) AS n FROM m;"
#: Minutes of work in this process.
LONG = (
    "CREATE TABLE big AS SELECT i % 40 AS g, random() AS x, random() AS z, random() > 0.5 AS b FROM range(200000) r(i);\n"
    "TRAIN MODEL long USING mlp PREDICT b FEATURES (x, z) FROM big GROUP BY g WITH (epochs = 5000, executor = 'local');"
)


def last_line(text: str) -> str:
    return text.rstrip().splitlines()[-1]


def test_c_in_order_and_csv(run):
    done = run("-csv", "-c", TABLE + TRAIN + COUNT + "SELECT 'a;b' AS s")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("g,n_rows,train_rmse")
    assert done.stdout.endswith("n\n3\ns\na;b\n")


def test_statements_of_one_text_keep_their_order(run):
    done = run(
        "-csv", "-noheader", "-c", f"SELECT 1; {TABLE} SELECT 2; {TRAIN} SELECT 3; DROP MODEL m; SELECT 4; SHOW MODELS"
    )
    lines = [line for line in done.stdout.splitlines() if len(line) == 1 or "dropped" in line]
    assert lines == ["1", "2", "3", "model m is dropped", "4"]


def test_multi_line_from_standard_input(run):
    text = TABLE + "\n" + TRAIN.replace(" PREDICT", "\n -- a comment; with a semicolon\n PREDICT") + "\n" + COUNT
    done = run("-csv", stdin=text)
    assert (done.returncode, done.stderr) == (0, "")
    assert last_line(done.stdout) == "3"


def test_f_and_read(run, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text(f"{TABLE}\n{TRAIN}\n{COUNT}")
    for done in (run("-csv", "-f", str(script)), run("-csv", stdin=f".read {script}\n")):
        assert (done.returncode, done.stderr) == (0, "")
        assert last_line(done.stdout) == "3"


def test_json(run):
    done = run("-json", "-c", TABLE, "-c", TRAIN)
    rows = json.loads(done.stdout)
    assert [row["g"] for row in rows] == [0, 1, 2]
    assert {row["status"] for row in rows} == {"done"}


def test_every_kind_of_statement(run):
    done = run(
        "-csv",
        stdin="\n".join(
            [
                TABLE,
                f"EXPLAIN {TRAIN}",
                f"EXPLAIN ANALYZE {TRAIN}",
                "SHOW MODELS;",
                "SHOW LEARNERS;",
                "SHOW RUNS;",
                "DESCRIBE MODEL m;",
                "DESCRIBE LEARNER ridge;".replace("ridge", "linear_regression"),
                "EVALUATE MODEL m ON t;",
                "SET grouplearn_workers = 1;",
                "RESET grouplearn_workers;",
                "ALTER MODEL m RENAME TO n;",
                "CREATE OR REPLACE MODEL n USING linear_regression PREDICT y FEATURES (x) FROM t;",
                "DROP MODEL n;",
                "DROP MODEL IF EXISTS n;",
            ]
        ),
    )
    assert (done.returncode, done.stderr) == (0, "")
    for seen in ("Logical plan", "Measured", "linear_regression", "model m is now n", "grouplearn_workers", "dropped"):
        assert seen.removeprefix("grouplearn_") in done.stdout
    assert last_line(done.stdout) == "model n does not exist; nothing was dropped"


def test_rollback_undoes_and_commit_keeps(run, tmp_path):
    database = str(tmp_path / "a.duckdb")
    done = run("-csv", database, stdin=f"{TABLE} BEGIN; {TRAIN} FROM m_predict(t) LIMIT 1; ROLLBACK; SHOW MODELS;")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("linear_regression") == 0
    run(database, stdin=f"BEGIN; {TRAIN} COMMIT;")
    assert last_line(run("-csv", database, "-c", COUNT).stdout) == "3"


def test_uncommitted_rows_and_temporary_tables(run):
    done = run(
        "-csv",
        stdin=TABLE
        + "BEGIN; CREATE TEMP TABLE mine AS FROM t; INSERT INTO mine SELECT 7, i, i FROM range(9) r(i);"
        + TRAIN.replace("FROM t", "FROM mine")
        + "SELECT n_rows FROM m WHERE g = 7; SELECT predict('m', mine).model_level FROM mine LIMIT 1; COMMIT;"
        + "SELECT predict_value('m', mine) > 0 AS positive FROM mine WHERE g = 7 AND x = 8;",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "n_rows\n9\n" in done.stdout
    assert last_line(done.stdout) == "true"


def test_search_path_variables_and_attached_databases(run, tmp_path):
    done = run(
        "-csv",
        stdin=f"ATTACH '{tmp_path}/other.duckdb' AS other; USE other; CREATE SCHEMA s; USE other.s; {TABLE}"
        "SET VARIABLE least = 100;"
        + TRAIN.replace("FROM t", "FROM t WHERE x >= getvariable('least')")
        + "USE memory; SELECT n_rows FROM other.s.m WHERE g = 0;"
        "SHOW MODELS;",
    )
    assert "n_rows\n33\n" in done.stdout
    assert "other,s,m," in done.stdout


def test_prediction_without_the_extension(run, shell, tmp_path):
    database = str(tmp_path / "a.duckdb")
    run(database, stdin=TABLE + TRAIN)
    plain = pexpect.run(f"{shell} -csv {database} -c 'SELECT round(sum(prediction - y), 6) FROM m_predict(t)'")
    assert plain.decode().split()[-1] in ("0.0", "-0.0")


def test_predict_agrees_with_the_macro_whatever_the_rows(run):
    done = run(
        "-csv",
        stdin=TABLE
        + TRAIN
        + "SELECT max(abs(prediction - predict_value('m', p))) < 1e-6 AS same, count(*) AS n FROM m_predict(t) AS p;"
        "SELECT count(predict_value('m', CASE WHEN x > 10 THEN t END)) AS n FROM t;"
        "CREATE TABLE many AS SELECT i % 3 AS g, i * 0.5 AS x FROM range(20000) r(i);"
        "SELECT count(predict_value('m', many)) AS n FROM many;",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "true,300" in done.stdout
    assert done.stdout.splitlines()[-3:] == ["279", "n", "20000"]


def test_read_only(run, tmp_path):
    database = str(tmp_path / "a.duckdb")
    run(database, stdin=TABLE + TRAIN)
    done = run("-readonly", "-csv", database, stdin="SHOW MODELS; " + TRAIN.replace("MODEL m", "MODEL n") + COUNT)
    assert "linear_regression" in done.stdout
    assert 'database "a" is read-only' in done.stderr
    assert (
        last_line(run("-readonly", "-csv", database, "-c", "SELECT count(predict_value('m', t)) FROM t").stdout)
        == "300"
    )


@pytest.mark.parametrize(
    ("statement", "kind", "caret"),
    [
        ("TRAIN MODEL m USING linear_regresion PREDICT y FROM t;", "Binder", (20, 16)),
        ("TRAIN MODEL m USIN x;", "Parser", (14, 4)),
        ("TRAIN MODEL m USING linear_regression PREDICT nothing FROM t;", "Binder", (46, 7)),
    ],
)
def test_our_errors_have_carets(run, statement, kind, caret):
    done = run("-csv", stdin=f"{TABLE}\n{statement}\nSELECT 'next' AS s;\n")
    assert done.stderr.startswith(f"{kind} Error: ")
    place, width = caret
    assert f"LINE 1: {statement}\n" + " " * (8 + place) + "^" * width + "\n" in done.stderr + "\n"
    assert last_line(done.stdout) == "next"


def test_errors_of_others_are_theirs(run):
    done = run("-c", f"{TABLE} SELECT nothere FROM t; {TRAIN}")
    assert 'Binder Error: Referenced column "nothere" not found' in done.stderr
    assert "TRAIN" not in done.stderr
    assert "Parser Error: syntax error" in run("-c", f"SELEC 1; {TRAIN}").stderr


def test_words_of_ours_in_sql_of_others(run):
    done = run(
        "-csv",
        "-noheader",
        "-c",
        "CREATE TABLE train (model INTEGER); INSERT INTO train VALUES (1); SELECT model FROM train; "
        'SELECT \'TRAIN MODEL m\'; SELECT $$; TRAIN MODEL m$$; /* ; TRAIN */ SELECT "TRAIN" FROM (SELECT 2 AS "TRAIN")',
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["1", "TRAIN MODEL m", "; TRAIN MODEL m", "2"]


def test_the_error_of_a_statement_leaves_nothing_behind(run):
    taken = "CREATE TABLE m_weights (a INTEGER);"
    done = run(
        "-csv",
        stdin=f"{TABLE} {taken}\n{TRAIN}\nSELECT count(*) FROM duckdb_tables() WHERE schema_name = 'grouplearn';",
    )
    assert "already exists" in done.stderr
    assert last_line(done.stdout) == "0"


@pytest.fixture
def terminal(shell, monkeypatch):
    monkeypatch.setenv("GROUPLEARN_DUCKDB", shell)
    child = pexpect.spawn(
        GROUPLEARN, ["duckdb", "-csv", "-dark-mode"], encoding="utf-8", timeout=60, dimensions=(40, 160)
    )
    child.delaybeforesend = None
    yield child
    child.close(force=True)


def ask(child: pexpect.spawn, sql: str, expected: str) -> None:
    child.send(sql + "\r")
    child.expect(expected)


def worker_of(pid: int) -> int | None:
    """Return the process of grouplearn that the shell has started."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status, command = (folder / "stat").read_text(), (folder / "cmdline").read_text()
            except OSError:
                continue
            parent = int(status.rpartition(")")[2].split()[1])
            if parent == pid and "native.worker" in command:
                return int(folder.name)
    return None


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def wait_until(condition, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_typed_over_several_lines(terminal):
    ask(terminal, TABLE, "")
    for line in TRAIN.replace(" FROM", "\nFROM").split("\n"):
        terminal.send(line + "\r")
    terminal.expect("0,100,")
    ask(terminal, "SELECT 'all' || 'right';", "allright")


def test_ctrl_c_stops_training_and_leaves_the_shell_usable(terminal):
    for line in LONG.split("\n"):
        terminal.send(line + "\r")
    terminal.expect(r"epochs \d")  # its progress is shown
    terminal.sendintr()
    asked = time.monotonic()
    ask(terminal, "SELECT 'still' || 'here';", "stillhere")
    assert time.monotonic() - asked < 6  # 2 s, and what a machine that does other things needs to say so
    ask(terminal, "SELECT count(*) || 'models' FROM duckdb_views() WHERE view_name = 'long';", "0models")
    ask(terminal, TABLE, "")
    ask(terminal, TRAIN, "0,100,")


def test_a_killed_worker_is_an_error_and_the_next_statement_has_a_new_one(terminal):
    ask(terminal, TABLE, "")
    ask(terminal, TRAIN, "0,100,")
    first = worker_of(terminal.pid)
    for line in LONG.split("\n"):
        terminal.send(line + "\r")
    time.sleep(2)
    os.kill(first, signal.SIGKILL)
    terminal.expect("the grouplearn process ended")
    ask(terminal, "SELECT count(*) || 'rows' FROM m;", "3rows")
    ask(terminal, TRAIN.replace("TRAIN", "TRAIN OR REPLACE"), "0,100,")
    assert worker_of(terminal.pid) not in (None, first)


def test_a_killed_shell_leaves_no_worker(terminal):
    for line in LONG.split("\n"):
        terminal.send(line + "\r")
    assert wait_until(lambda: worker_of(terminal.pid) is not None)
    time.sleep(2)
    worker = worker_of(terminal.pid)
    os.kill(terminal.pid, signal.SIGKILL)
    assert wait_until(lambda: not is_running(worker))


def test_leaving_ends_the_worker_and_checkpoints(shell, monkeypatch, tmp_path):
    monkeypatch.setenv("GROUPLEARN_DUCKDB", shell)
    database = tmp_path / "a.duckdb"
    child = pexpect.spawn(GROUPLEARN, ["duckdb", "-csv", "-dark-mode", str(database)], encoding="utf-8", timeout=60)
    ask(child, TABLE, "")
    ask(child, TRAIN, "0,100,")
    worker = worker_of(child.pid)
    child.send(".exit\r")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert wait_until(lambda: not is_running(worker))
    assert [path.name for path in tmp_path.iterdir()] == ["a.duckdb"]


def test_no_build_for_this_version(tmp_path, capsys, monkeypatch):
    fake = tmp_path / "duckdb"
    fake.write_text("#!/bin/sh\necho 'v9.8.7 (Nobody) 0123456789'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("GROUPLEARN_DUCKDB", str(fake))
    assert launch.main(["-c", "SELECT 1"]) == 1
    told = capsys.readouterr().err
    for word in ("9.8.7", "no build", "grouplearn.frontends.native.build 9.8.7", "grouplearn [FILE]"):
        assert word in told


def test_another_version_is_refused_by_the_extension_itself(shell):
    other = build("2.0.0")
    done = pexpect.run(f"""{shell} -unsigned -c "LOAD '{other}'" """).decode()
    assert "this build of grouplearn is for DuckDB v2.0.0, and this is v" in done
