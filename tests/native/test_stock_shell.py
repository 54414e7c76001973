"""The unmodified duckdb shell with the extension: each way in, each way a statement can end; see conftest.py for the versions."""

import json
import os
import re
import subprocess

import duckdb
import pexpect
import pytest
from native_builds import COUNT, TABLE, TRAIN

from grouplearn import versions
from grouplearn.frontends.native import launch
from grouplearn.frontends.native.build import build
from grouplearn.frontends.native.locate import build_for


def last_line(text: str) -> str:
    return text.rstrip().splitlines()[-1]


def test_c_in_order_and_csv(run):
    done = run("-csv", "-c", TABLE + TRAIN + COUNT + "SELECT 'a;b' AS s")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("g,n_rows,train_rmse")
    assert done.stdout.endswith("n\n3\ns\na;b\n")


def test_statements_of_one_text_keep_their_order(run, ours):
    done = run(
        "-csv",
        "-noheader",
        "-c",
        f"SELECT 1; {TABLE} SELECT 2; {TRAIN} SELECT 3; DROP MODEL m; SELECT 4; {ours('SHOW MODELS;')}",
    )
    lines = [line for line in done.stdout.splitlines() if len(line) == 1 or "dropped" in line]
    assert lines == ["1", "2", "3", "model m is dropped", "4"]


def test_multi_line_from_standard_input(run):
    text = TABLE + "\n" + TRAIN.replace(" PREDICT", "\n -- a comment; with a semicolon\n PREDICT") + "\n" + COUNT
    done = run("-csv", stdin=text)
    assert (done.returncode, done.stderr) == (0, "")
    assert last_line(done.stdout) == "3"


def test_standard_input_may_be_the_rows(run):
    rows = "g,x,y\n" + "".join(f"{i % 3},{i / 2},{i * 1.5 + 1}\n" for i in range(300))
    train = TRAIN.replace("FROM t", "FROM read_csv('/dev/stdin')")
    done = run("-csv", "-noheader", "-c", train, "-c", COUNT, "-c", "SELECT sum(n_rows) FROM m;", stdin=rows)
    assert (done.stderr, done.returncode) == ("", 0)
    assert "read_csv('/dev/stdin') can be read once: its 300 rows were kept" in done.stdout
    assert done.stdout.splitlines()[-2:] == ["3", "300"]


def test_f_and_read(run, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text(f"{TABLE}\n{TRAIN}\n{COUNT}")
    for done in (run("-csv", "-f", str(script)), run("-csv", stdin=f".read {script}\n")):
        assert (done.returncode, done.stderr) == (0, "")
        assert last_line(done.stdout) == "3"


def test_groups_that_fail_are_rows_unless_the_statement_says_error(run, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text(f"{TABLE} UPDATE t SET y = NULL WHERE g = 1; {TRAIN} SELECT 'trained';")
    done = run("-csv", "-f", str(script))
    assert (done.returncode, done.stderr) == (0, "")
    assert last_line(done.stdout) == "trained"
    strict = TRAIN.replace("VALIDATE NONE;", "VALIDATE NONE ON GROUP FAILURE ERROR;")
    script.write_text(script.read_text().replace(TRAIN, strict))
    for done in (run("-csv", "-f", str(script)), run("-csv", "-c", script.read_text())):
        assert done.returncode == 1
        assert (
            "1 of 3 groups failed, and nothing was stored\ng = 1: the label is NULL in each of the 100 rows"
            in done.stderr
        )
        assert "trained" not in done.stdout


def test_json(run):
    done = run("-json", "-c", TABLE, "-c", TRAIN)
    rows = json.loads(done.stdout)
    assert [row["g"] for row in rows] == [0, 1, 2]
    assert {row["status"] for row in rows} == {"done"}


def test_every_kind_of_statement(run, ours):
    done = run(
        "-csv",
        stdin="\n".join(
            [
                TABLE,
                f"EXPLAIN {TRAIN}",
                f"EXPLAIN ANALYZE {TRAIN}",
                ours("SHOW MODELS;"),
                ours("SHOW LEARNERS;"),
                ours("SHOW RUNS;"),
                "DESCRIBE MODEL m;",
                "DESCRIBE LEARNER ridge;".replace("ridge", "linear_regression"),
                "EVALUATE MODEL m ON t;",
                ours("SET grouplearn_workers = 1;"),
                ours("RESET grouplearn_workers;"),
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


@pytest.mark.thorough
def test_rollback_undoes_and_commit_keeps(run, ours, tmp_path):
    database = str(tmp_path / "a.duckdb")
    done = run(
        "-csv", database, stdin=f"{TABLE} BEGIN; {TRAIN} FROM m_predict(t) LIMIT 1; ROLLBACK; {ours('SHOW MODELS;')}"
    )
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


def test_search_path_variables_and_attached_databases(run, ours, tmp_path):
    done = run(
        "-csv",
        stdin=f"ATTACH '{tmp_path}/other.duckdb' AS other; USE other; CREATE SCHEMA s; USE other.s; {TABLE}"
        "SET VARIABLE least = 100;"
        + TRAIN.replace("FROM t", "FROM t WHERE x >= getvariable('least')")
        + "USE memory; SELECT n_rows FROM other.s.m WHERE g = 0;"
        + ours("SHOW MODELS;"),
    )
    assert "n_rows\n33\n" in done.stdout
    assert ",other,s," in done.stdout


def test_prediction_without_the_extension(shell, database):
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


def test_read_only(run, ours, database):
    lines = (ours("SHOW MODELS;"), TRAIN.replace("MODEL m", "MODEL n"), "SELECT count(predict_value('m', t)) FROM t;")
    done = run("-readonly", "-csv", database, stdin="\n".join(lines))
    assert "linear_regression" in done.stdout
    assert 'database "a" is read-only' in done.stderr
    assert last_line(done.stdout) == "300"


def test_our_errors_have_carets(run):
    wrong = {
        "TRAIN MODEL m USING linear_regresion PREDICT y FROM t;": ("Binder", 20, 16),
        "TRAIN MODEL m USIN x;": ("Parser", 14, 4),
        "TRAIN MODEL m USING linear_regression PREDICT nothing FROM t;": ("Binder", 46, 7),
    }
    lines = [line for statement in wrong for line in (statement, "SELECT 'next' AS s;")]
    done = run("-csv", "-noheader", stdin="\n".join([TABLE, *lines, ""]))
    for statement, (_, place, width) in wrong.items():
        assert f"LINE 1: {statement}\n" + " " * (8 + place) + "^" * width + "\n" in done.stderr + "\n"
    assert re.findall(r"^(\w+) Error: ", done.stderr, re.MULTILINE) == [kind for kind, *_ in wrong.values()]
    assert done.stdout.split() == ["next"] * 3


@pytest.mark.thorough
def test_names_that_a_terminal_would_obey_are_escaped_in_our_errors_and_plans(run):
    name = "k\x1b]0;x\x07\x1b[2J\r\x9b\u202e$"
    quoted = f'"{name}"'
    made = f"CREATE TABLE t AS SELECT 'v\x1b[2J' AS {quoted}, 1.0 AS y FROM range(30);"
    train = f"TRAIN MODEL n USING linear_regression PREDICT y + 0 AS y FEATURES (y + 1 AS x) FROM t GROUP BY {quoted}"
    statements = (
        train.replace("linear_regression", quoted),
        f"DROP MODEL {quoted}",
        f"SELECT predict('{name}', t) FROM t",
    )
    done = run("-csv", "-noheader", stdin="".join(f"{statement};\n" for statement in (made[:-1], *statements)))
    told = re.split(r"(?:^|\n)\w+(?: \w+)? Error: ", done.stderr)[1:]
    assert len(told) == len(statements)
    assert all("k\\x1b]0;x\\x07\\x1b[2J\\r\\x9b\\u202e$" in each for each in told), told
    assert not re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout + done.stderr)
    error = run("-c", made, "-c", f"{train} WITH ({quoted} = 1)").stderr.splitlines()
    caret = next(number for number, line in enumerate(error) if set(line) == set(" ^"))
    shown = error[caret - 1][error[caret].index("^") : error[caret].rindex("^") + 1]
    assert shown == '"k\\x1b]0;x\\x07\\x1b[2J\\r\\x9b\\u202e$"'
    plan = run("-list", "-noheader", "-c", made, "-c", f"EXPLAIN {train}")
    assert plan.returncode == 0
    assert not re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", plan.stdout)


def test_errors_of_others_are_theirs(run):
    done = run("-c", f"{TABLE} SELECT nothere FROM t; {TRAIN}")
    assert 'Binder Error: Referenced column "nothere" not found' in done.stderr
    assert "TRAIN" not in done.stderr
    assert "Parser Error: syntax error" in run("-c", f"SELEC 1; {TRAIN}").stderr


def test_functions_of_statements_are_not_for_others(run):
    """They take one row without NULL: the place of a NULL has whatever is in memory."""
    calls = (
        "grouplearn_statement(1, 1, 0, 0, 4, if(i > 5, 'SHOW MODELS and more than fits', NULL))",
        "grouplearn_statement(1, 1, 0, 0, 11, 'SHOW MODELS')",
        "grouplearn_statement_with(1, 0, 0, 0, 11, 'SHOW MODELS', {'1': i})",
        "grouplearn_answer(if(i > 5, 1, NULL)::UBIGINT)",
    )
    done = run("-csv", stdin="\n".join(f"SELECT {call} FROM range(3) AS r(i);" for call in calls))
    assert done.stderr.count("this function is for statements of grouplearn's") == len(calls)
    assert done.stdout == ""


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


def test_no_build_for_this_version(tmp_path, capsys, monkeypatch):
    fake = tmp_path / "duckdb"
    fake.write_text("#!/bin/sh\necho 'v9.8.7 (Nobody) 0123456789'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("GROUPLEARN_DUCKDB", str(fake))
    assert launch.main(["-c", "SELECT 1"]) == 1
    told = capsys.readouterr().err
    for word in ("9.8.7", "no build", "grouplearn.frontends.native.build 9.8.7", "grouplearn [FILE]"):
        assert word in told


def test_a_real_shell_without_a_build(shell, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GROUPLEARN_DUCKDB", shell)
    monkeypatch.setattr(launch, "build_for", lambda version: build_for(version, tmp_path))
    assert launch.main([]) == 1
    assert f"{shell} is DuckDB {launch.version_of(shell)}, and there is no build" in capsys.readouterr().err


def test_installed_where_duckdb_looks(run, shell, ours, tmp_path, monkeypatch):
    monkeypatch.delenv("GROUPLEARN_PYTHON")
    home = {"HOME": str(tmp_path)}
    done = run("--install", **home)
    assert (done.returncode, done.stderr) == (0, "")
    command = [shell, "-unsigned", "-csv", "-c", "LOAD grouplearn", "-c", ours("SHOW LEARNERS;")]
    seen = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **home})
    assert (seen.returncode, seen.stderr) == (0, "")
    assert "linear_regression" in seen.stdout
    assert run("--install", **home).returncode == 0  # what is ours is replaced


@pytest.mark.parametrize("name", ["grouplearn.duckdb_extension", "grouplearn.python"])
def test_nothing_of_others_is_overwritten(run, shell, tmp_path, name):
    theirs = build_for(launch.version_of(shell), tmp_path / ".duckdb/extensions").with_name(name)
    theirs.parent.mkdir(parents=True)
    theirs.write_text("something else")
    done = run("--install", HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{theirs} does not belong to grouplearn, so nothing was written" in done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [theirs]


def test_another_version_is_refused_by_the_extension_itself(shell):
    version = next(each for each in (duckdb.__version__, "1.5.6") if each != launch.version_of(shell))
    other = build(version)
    done = pexpect.run(f"""{shell} -unsigned -c "LOAD '{other}'" """).decode()
    # What we use of the C API became stable with 1.5.6: before it DuckDB itself refuses what needs that.
    assert re.search(
        f"this build of grouplearn is for DuckDB v{re.escape(version)}, and this is v|can only load extensions built for",
        done,
    )


def test_numbers_have_all_their_digits(run, ours):
    seen = "SELECT valid_rmse AS rmse FROM m WHERE is_best ORDER BY g;"
    train = TRAIN.replace("PREDICT y", "PREDICT y * hash(x) % 7").replace("VALIDATE NONE", "VALIDATE SAMPLE 20%")
    done = run("-jsonlines", stdin=f"{TABLE} {train} SELECT 'then'; {seen} SELECT 'then'; {ours('SHOW MODELS;')}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    answer, stored, (shown,) = [rows[:3], rows[4:7], rows[8:]]
    assert [row["valid_rmse"] for row in answer] == [row["rmse"] for row in stored]
    assert shown["best"] == min(row["rmse"] for row in stored) != round(shown["best"], 8)


@pytest.mark.thorough
def test_a_damaged_model_is_told_and_dropped(run, ours, database):
    for column, value, told in (
        ("models.task", "'x'", "in table a.grouplearn.models, task is 'x'"),
        ("groups.fills", "[]", "in table a.grouplearn.groups, a group does not have"),
    ):
        table, name = column.split(".")
        keep = f"CREATE OR REPLACE TABLE kept AS SELECT {name} AS v FROM grouplearn.{table} LIMIT 1;"
        change = f"UPDATE grouplearn.{table} SET {name} = {value};"
        asked = f"{ours('EVALUATE MODEL m ON t;')}\nSELECT predict('m', t) FROM t;"
        done = run(database, "-csv", stdin=f"{keep} {change}\n{asked}")
        assert done.stderr.count(told) == 2
        assert "Traceback" not in done.stderr
        assert run(database, "-c", f"UPDATE grouplearn.{table} SET {name} = (SELECT v FROM kept);").returncode == 0
    run(database, "-c", "UPDATE grouplearn.models SET task = 'x';")
    done = run(database, "-csv", "-c", f"{ours('SHOW MODELS;')} DROP MODEL m; {ours('SHOW MODELS;')}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "model m is dropped" in done.stdout


def test_the_version_of_what_runs(run, shell):
    done = run("-csv", "-noheader", "-c", "SELECT DISTINCT grouplearn_version() FROM range(3)")
    assert (done.stderr, done.stdout) == ("", f'"{versions.described()}, DuckDB v{launch.version_of(shell)}"\n')
