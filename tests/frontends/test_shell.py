from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pexpect
import pytest

from grouplearn.frontends.shell.console import statements
from grouplearn.frontends.shell.prompt import ends_input
from grouplearn.frontends.shell.shell import UsageError, main, parse_arguments

GROUPLEARN = str(Path(sys.executable).parent / "grouplearn")
SETUP = "CREATE TABLE t AS SELECT (i % 3)::INTEGER AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i);"
TRAIN = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE NONE;"


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def shell(*arguments: str, stdin: str = "") -> Done:
    """Run the shell in this process: starting it again for each case would take most of the time."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(stdin))
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        code = main(arguments)
    return Done(code, out.getvalue(), err.getvalue())


def test_as_a_process() -> None:
    command = [GROUPLEARN, "-csv", "-c", "SELECT 1 AS a; SELECT nothing"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "a\n1\n")
    assert done.stderr.startswith("Binder Error")
    piped = subprocess.run(
        f"{GROUPLEARN} -csv -c 'FROM range(100000)' | head -2", shell=True, capture_output=True, text=True, timeout=60
    )
    assert (piped.stdout, piped.stderr) == ("range\n0\n", "")


def run(script: str, **environment: str) -> Done:
    """Run a script of the system's shell, in which ``$shell`` is ours, with an environment of its own."""
    variables = {**os.environ, "shell": GROUPLEARN, **environment}
    done = subprocess.run(script, shell=True, capture_output=True, env=variables, timeout=60)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_without_standard_streams(tmp_path: Path) -> None:
    assert run(f"exec $shell {tmp_path}/x.duckdb <&-") == Done(0, "", "")
    assert run(f"exec $shell {tmp_path}/x.duckdb -c 'CREATE TABLE t AS SELECT 1 AS a; FROM t' >&-") == Done(0, "", "")
    assert run(f"exec $shell {tmp_path}/x.duckdb -csv -c 'FROM t; FROM nothing' 2>&-") == Done(1, "a\n1\n", "")
    assert run(f"exec $shell {tmp_path}/x.duckdb -csv -c 'FROM t'") == Done(0, "a\n1\n", "")


def test_text_is_utf8_where_the_locale_has_only_ascii() -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for script in ("echo \"SELECT 'é' AS ü\" | $shell -csv", "$shell -csv -c \"SELECT 'é' AS ü\""):
        assert run(script, **ascii_only) == Done(0, "ü\né\n", "")
    for environment in ({}, ascii_only):
        done = run("printf \"SELECT 1;\\nSELECT '\\351'\" | $shell -csv", **environment)
        assert (done.returncode, done.stderr) == (1, "The script is not UTF-8 text: byte 0xe9 at position 18\n")


def test_kernels_that_are_not_there_are_an_error_of_ours() -> None:
    done = run(f'$shell -c "{SETUP} {TRAIN}"', GROUPLEARN_KERNELS="x")
    assert done.returncode == 1
    assert re.fullmatch(
        r"the environment variable GROUPLEARN_KERNELS is 'x', which this machine does not run\n\n"
        r"Hint: It runs (.*, )?portable; without the variable, \w+\.\n",
        done.stderr,
    )


def test_c_runs_statements_of_both_kinds_in_order() -> None:
    done = shell("-csv", "-c", SETUP + TRAIN, "-c", "SELECT count(*) AS n FROM m; SELECT 'a;b' AS s")
    assert (done.returncode, done.stderr) == (0, "")
    assert "train_rmse" in done.stdout
    assert done.stdout.endswith("n\n3\ns\na;b\n")


def test_the_first_error_stops_a_script_with_status_1(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("SELECT 1 AS first;\nSELECT nothing;\nSELECT 2 AS second;\n")
    for done in (shell("-f", str(script)), shell(stdin=script.read_text()), shell("-c", script.read_text())):
        assert done.returncode == 1
        assert "first" in done.stdout
        assert "second" not in done.stdout
        assert 'Binder Error: Referenced column "nothing" was not found' in done.stderr


def test_groups_that_fail_are_rows_unless_the_statement_says_error(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(f"{SETUP} UPDATE t SET y = NULL WHERE g = 1; {TRAIN} SELECT 'trained' AS then;")
    done = shell("-csv", "-f", str(script))
    assert (done.returncode, done.stderr) == (0, "")
    assert "the label is NULL in each of the 100 rows" in done.stdout
    assert done.stdout.endswith("trained\n")
    strict = TRAIN.replace(";", " ON GROUP FAILURE ERROR;")
    script.write_text(script.read_text().replace(TRAIN, strict))
    for done in (shell("-csv", "-f", str(script)), shell("-csv", stdin=script.read_text())):
        assert done.returncode == 1
        assert done.stderr.startswith(
            "1 of 3 groups failed, and nothing was stored\ng = 1: the label is NULL in each of the "
        )
        assert "trained" not in done.stdout


def test_an_error_of_predict_is_told_in_its_own_words() -> None:
    done = shell("-c", f"{SETUP}; SELECT predict('nosuch', t) FROM t")
    assert (done.returncode, done.stderr.strip()) == (1, 'model "nosuch" does not exist\nThere is no model yet.')


def test_our_error_shows_its_caret_and_no_traceback() -> None:
    done = shell("-c", SETUP, "-c", "TRAIN MODEL m USING linear_regresion PREDICT y FROM t")
    assert done.returncode == 1
    assert "LINE 1: TRAIN MODEL m USING linear_regresion PREDICT y FROM t" in done.stderr
    assert re.search(r"\n {28}\^{16}\n", done.stderr + "\n")
    assert 'Did you mean "linear_regression"?' in done.stderr
    assert "Traceback" not in done.stderr


def test_standard_input_is_a_script_with_dot_commands(tmp_path: Path) -> None:
    other = tmp_path / "other.sql"
    other.write_text(".mode line\nSELECT 5 AS five")
    done = shell(
        stdin=f"SELECT\n 1 AS a;\n.mode csv\nSELECT 2 AS b; SELECT 3 AS c;\n.read {other}\n.exit 7\nSELECT 6;\n"
    )
    assert done.returncode == 7
    assert done.stderr == ""
    assert done.stdout.endswith("b\n2\nc\n3\nfive = 5\n")


def test_csv_keeps_null_and_empty_apart_and_can_be_read_back() -> None:
    done = shell("-csv", "-c", "SELECT 1 AS a, 'x,\"y\nz' AS b, NULL AS c, '' AS d, [1, 2] AS \"e,\", 1.50 AS f")
    assert done.stdout == 'a,b,c,d,"e,",f\n1,"x,""y\nz",,"","[1, 2]",1.50\n'
    assert list(csv.reader(io.StringIO(done.stdout)))[1] == ["1", 'x,"y\nz', "", "", "[1, 2]", "1.50"]


def test_json_has_json_types() -> None:
    query = """SELECT 1 AS a, NULL AS b, [1.5, 'nan'::DOUBLE] AS c, 'é"\n' AS d, 'inf'::DOUBLE AS e, true AS f,
               {'x': 'NaN', 'y': [NULL]} AS g, 12345678901234567890123::HUGEINT AS h, DATE '2020-01-02' AS i
               FROM range(2)"""
    row = {
        "a": 1, "b": None, "c": [1.5, None], "d": 'é"\n', "e": None, "f": True, "g": {"x": "NaN", "y": [None]},
        "h": 12345678901234567890123, "i": "2020-01-02",
    }  # fmt: skip
    assert json.loads(shell("-json", "-c", query).stdout) == [row, row]
    lines = shell("-jsonlines", "-c", query).stdout.splitlines()
    assert [json.loads(line) for line in lines] == [row, row]
    assert json.loads(shell("-json", "-c", "SELECT 1 WHERE false").stdout) == []


def test_markdown_box_and_line() -> None:
    query = "SELECT * FROM (VALUES (1, 'a|b'), (22, NULL)) AS v(n, text)"
    assert shell("-markdown", "-c", query).stdout == ("|  n | text |\n|---:|------|\n|  1 | a\\|b |\n| 22 |      |\n")
    assert shell("-box", "-c", query).stdout == (
        "┌────┬──────┐\n│ n  │ text │\n├────┼──────┤\n│  1 │ a|b  │\n│ 22 │ NULL │\n└────┴──────┘\n"
    )
    assert shell("-line", "-c", query).stdout == "   n = 1\ntext = a|b\n\n   n = 22\ntext = NULL\n"


def test_duckbox_is_duckdbs_and_commands_print_nothing(tmp_path: Path) -> None:
    done = shell("-c", "CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1); SET threads = 1; FROM a; DROP TABLE a")
    assert done.stdout.rstrip() == "┌───────┐\n│   x   │\n│ int32 │\n├───────┤\n│     1 │\n└───────┘"
    assert "Projection" in shell("-c", "EXPLAIN SELECT 1").stdout
    assert "\\n" not in shell("-c", "EXPLAIN SELECT 1").stdout


def test_a_database_file_read_only_and_version(tmp_path: Path) -> None:
    path = str(tmp_path / "a b.duckdb")
    assert shell(path, "-c", SETUP).returncode == 0
    done = shell(path, "-readonly", "-csv", "-c", "SELECT count(*) AS n FROM t", "-c", "DELETE FROM t")
    assert (done.returncode, done.stdout) == (1, "n\n300\n")
    assert "read-only" in done.stderr
    assert shell(str(tmp_path / "no" / "folder.duckdb"), "-c", "SELECT 1").returncode == 1
    assert re.fullmatch(rf"grouplearn \d\S* \(DuckDB {re.escape(duckdb.__version__)}\)\n", shell("-version").stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-cvs"], 'unknown option -cvs. Did you mean "-csv"?'),
        (["-c"], "-c needs SQL"),
        (["a", "SELECT 1", "-f"], "-f needs a file"),
    ],
)
def test_a_wrong_command_line(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_arguments(arguments)
    assert str(error.value) == message


def test_sql_after_the_file_runs_as_in_duckdbs_shell(tmp_path: Path) -> None:
    path = str(tmp_path / "a.duckdb")
    assert shell(path, SETUP, "-csv", "SELECT count(*) AS n FROM t").stdout == "n\n300\n"


def test_errors_of_duckdb_point_at_the_place_as_in_its_own_shell() -> None:
    assert shell("-c", "SELECT 1 AS a; SELECT 2,\n  nothere FROM range(3)").stderr == (
        'Binder Error: Referenced column "nothere" not found in FROM clause!\n'
        'Candidate bindings: "range"\n\nLINE 2:   nothere FROM range(3)\n          ^^^^^^^\n'
    )
    table = shell("-c", "FROM nothere").stderr
    assert table.startswith("Catalog Error: Table with name nothere does not exist!")
    assert table.endswith("LINE 1: FROM nothere\n             ^^^^^^^\n")


def test_a_wrong_command_line_is_status_2_with_usage() -> None:
    done = shell("--nothing")
    assert done.returncode == 2
    assert "Usage: grouplearn" in done.stderr
    assert done.stdout == ""
    assert shell("-help").stdout.startswith("Usage: grouplearn")


def test_unknown_dot_commands_and_modes_suggest() -> None:
    done = shell(stdin=".tabels\n")
    assert (done.returncode, done.stderr) == (
        1,
        'Unknown command ".tabels". Did you mean ".tables"? Enter ".help" for help.\n',
    )
    assert 'Did you mean "markdown"?' in shell(stdin=".mode markdwn\n").stderr
    assert shell(stdin=".timer maybe\n").stderr == "Usage: .timer on|off\n"
    assert ".tables ?PATTERN?" in shell(stdin=".help\n").stdout


def test_sentences_that_do_not_fit_into_a_box_stand_below_it() -> None:
    rows = (
        "SELECT (i % 2)::INTEGER AS g, i % 4 < 2 AS h, i::DOUBLE AS x, if(g = 0, NULL, x) AS y FROM range(40) AS r(i)"
    )
    train = (
        f"TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x, h) FROM ({rows}) GROUP BY g, h VALIDATE NONE;"
    )
    done = shell("-c", train)
    assert (done.returncode, done.stderr) == (0, "")
    box, below = done.stdout.split("┘\n")
    assert "error" not in box
    assert below == (
        "\nerror, g 0, h false and 1 more: the label is NULL in each of the 10 rows\n"
        "note, g 1, h false and 1 more: train_r2 is 1, as x equals the label: a leak? Leave it out if it is known only after y;\n"
        "only 10 rows: HAVING count(*) >= 30 leaves such groups out\n\n"
    )


def test_a_page_about_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = shell("-csv", stdin=f"{SETUP}\n{TRAIN}\n.report m\n.report main.m other.html\n")
    assert re.search(r"\nm.html: \d+ kB\nother.html: \d+ kB\n\Z", done.stdout)
    assert (tmp_path / "m.html").read_text() == (tmp_path / "other.html").read_text()
    assert shell(stdin=".report nothing\n").stderr.startswith('unknown model "nothing"')


def test_a_script_that_cannot_be_read(tmp_path: Path) -> None:
    assert shell("-f", "nowhere.sql").stderr == 'Cannot read "nowhere.sql": No such file or directory\n'
    script = tmp_path / "latin.sql"
    script.write_bytes("SELECT 'é';".encode("latin-1"))
    message = "The script is not UTF-8 text: byte 0xe9 at position 8\n"
    done = shell("-f", str(script))
    assert (done.returncode, done.stderr) == (1, message)
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    process = subprocess.run([GROUPLEARN], input=script.read_bytes(), capture_output=True, env=strict, timeout=60)
    assert (process.returncode, process.stderr.decode()) == (1, message)


def test_switches_and_help() -> None:
    done = shell(stdin=".echo ON\nSELECT 1 AS a;\n.echo off\n.mode CSV\nSELECT 2 AS b;\n")
    assert "SELECT 1 AS a;" in done.stdout
    assert done.stdout.endswith("\nb\n2\n")
    assert shell(stdin=".help nothing\n").stderr == 'No command has "nothing" in its name. Enter ".help" for all.\n'
    assert shell(stdin='.tables "x\n').stderr == '.tables "x: a quote is not closed\n'


def test_tables_schema_open_and_models(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    lines = [
        SETUP,
        TRAIN,
        ".tables",
        ".schema t",
        ".mode csv",
        ".models",
        f".open {path}",
        ".tables",
        "CREATE TABLE u (i INTEGER);",
        ".tables u%",
    ]
    done = shell(stdin="\n".join(lines))
    assert (done.returncode, done.stderr) == (0, "")
    after_train = done.stdout[done.stdout.index("m_curves") - 20 :]
    assert "CREATE TABLE t(g INTEGER" in after_train
    assert "linear_regression" in after_train
    assert done.stdout.endswith("\nu\n")
    assert path.exists()


def test_statements_are_cut_where_they_end() -> None:
    assert list(statements("SELECT ';'; -- a;b\nSELECT $$;$$ ;\n TRAIN MODEL m USING x; SELECT 1")) == [
        "SELECT ';';", "-- a;b\nSELECT $$;$$ ;", "TRAIN MODEL m USING x;", "SELECT 1"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("", True),
        (".tables", True),
        ("SELECT 1;", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("TRAIN MODEL m", False),
    ],
)
def test_enter_runs_only_what_is_complete(text: str, ends: bool) -> None:
    assert ends_input(text) == ends


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Any]:
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    child = pexpect.spawn(GROUPLEARN, env=environment, encoding="utf-8", timeout=15, dimensions=(40, 120))
    child.expect("usage hints")
    yield child
    child.close(force=True)


def test_a_person_at_the_terminal(terminal: Any, tmp_path: Path) -> None:
    def enter(line: str, expected: Any) -> None:
        terminal.expect("grouplearn>")
        terminal.send(line + "\r")
        terminal.expect(expected)

    terminal.expect("grouplearn>")
    terminal.send("SELECT 40 + 2\r")
    terminal.expect(r"\.\.\.>")
    terminal.send("AS answer;\r")
    terminal.expect("│ +42 │")
    enter("SELECT nothing;", "Referenced column")
    enter(SETUP, "\n")
    enter(TRAIN, "train_rmse")
    enter(".mode csv", "\n")
    enter("SELECT count(*) AS n FROM m;", r"n\r\n3\r\n")
    enter(".tables", "m_weights")
    enter("SELECT count(*) FROM range(100000000000) a, range(1000) b;", "\n")
    time.sleep(0.5)
    terminal.sendintr()
    terminal.expect("Interrupted")
    enter("SELECT 5 + 6 AS still;", r"still\r\n11\r\n")
    terminal.expect("grouplearn>")
    terminal.send("half a statement")
    terminal.sendintr()
    enter(".exit", pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 0
    assert "+AS answer;" in (tmp_path / ".grouplearn_history").read_text()


def test_control_d_leaves(terminal: Any) -> None:
    terminal.expect("grouplearn>")
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 0
