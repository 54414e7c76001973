"""The unmodified duckdb shell with the extension, as a person uses it: each line is typed into a terminal.

See conftest.py for the versions of the shell.
"""

import os
import re
import signal
import time
from pathlib import Path

import pexpect
import pytest
from helpers.promptness import STOPS_WITHIN_SECONDS
from native_builds import COUNT, TABLE, TRAIN, built, wait_until

from grouplearn.frontends.native import launch

#: What TRAIN answers of the first group: its key, the optimised metric, its rows.
DONE = r"0,[^,]*,100,"
#: Minutes of work in this process.
LONG = (
    "CREATE TABLE big AS SELECT i % 40 AS g, random() AS x, random() AS z, random() > 0.5 AS b FROM range(200000) r(i);\n"
    "TRAIN MODEL long USING mlp PREDICT b FEATURES (x, z) FROM big GROUP BY g WITH (epochs = 5000, executor = 'local');"
)


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


def test_typed_over_several_lines(place):
    ask(place, TABLE, "")
    for line in TRAIN.replace(" FROM", "\nFROM").split("\n"):
        place.send(line + "\r")
    place.expect(DONE)
    ask(place, "SELECT 'all' || 'right';", "allright")


def test_ctrl_c_stops_training_and_leaves_the_shell_usable(terminal, shell):
    for line in LONG.split("\n"):
        terminal.send(line + "\r")
    terminal.expect(r"epochs \d")  # its progress is shown
    terminal.sendintr()
    if not launch.version_of(shell).startswith("1.4."):  # which says so itself, in its own way
        terminal.expect("nterrupted")
    asked = time.monotonic()
    ask(terminal, "SELECT 'still' || 'here';", "stillhere")
    assert time.monotonic() - asked < STOPS_WITHIN_SECONDS
    ask(terminal, "SELECT count(*) || 'models' FROM duckdb_views() WHERE view_name = 'long';", "0models")
    ask(terminal, TABLE, "")
    ask(terminal, TRAIN, DONE)


def test_ctrl_c_while_the_process_starts_does_not_end_it(terminal):
    ask(terminal, TABLE, "")
    terminal.send(TRAIN + "\r")
    assert wait_until(lambda: worker_of(terminal.pid) is not None)
    worker = worker_of(terminal.pid)
    terminal.sendintr()
    terminal.expect("nterrupted")
    ask(terminal, "SELECT 'still' || 'here';", "stillhere")
    ask(terminal, TRAIN.replace("TRAIN", "TRAIN OR REPLACE"), DONE)
    assert worker_of(terminal.pid) == worker


def test_ctrl_c_while_rows_are_read_says_so(place):
    ask(place, f"{TABLE} {TRAIN}", DONE)
    slow = "(SELECT t.* FROM t, range(100000) AS a(i), range(100000) AS b(j))"
    place.send(f"{TRAIN.replace('MODEL m', 'MODEL n').replace('FROM t', f'FROM {slow}')}\r")
    time.sleep(1)
    place.sendintr()
    place.expect("nterrupted")
    ask(place, "SELECT 'still' || 'here';", "stillhere")


def test_ctrl_c_inside_one_task_that_never_ends(place):
    ask(place, f"{TABLE} {TRAIN}", DONE)
    ask(place, "SET threads = 1; SELECT 'one' || 'thread';", "onethread")
    endless = "(SELECT t.* FROM t, range(3000000) AS a(i), range(3000000) AS b(j) WHERE i + j < 0)"
    place.send(f"{TRAIN.replace('MODEL m', 'MODEL n').replace('FROM t', f'FROM {endless}')}\r")
    time.sleep(3)
    place.sendintr()
    place.expect("nterrupted")
    ask(place, "SELECT 'still' || 'here';", "stillhere")


def test_ctrl_c_when_the_process_does_not_listen(place):
    """Not while it is waited for, and not while it is sent more than fits into a socket."""
    ask(place, f"{TABLE} {TRAIN}", DONE)
    worker = worker_of(place.pid)
    os.kill(worker, signal.SIGSTOP)
    for statement in (
        TRAIN.replace("MODEL m", "MODEL n"),
        "SELECT predict_value('m', {g: g, x: x, long: repeat('long', 2000)}) FROM t;",
    ):
        place.send(statement + "\r")
        time.sleep(0.5)
        place.sendintr()
        ask(place, "SELECT 'still' || 'here';", "stillhere")
    os.kill(worker, signal.SIGCONT)
    ask(place, "SELECT count(predict_value('m', t)) || 'values' FROM t;", "300values")
    assert worker_of(place.pid) == worker


def test_a_killed_worker_is_an_error_and_the_next_statement_has_a_new_one(terminal):
    ask(terminal, TABLE, "")
    ask(terminal, TRAIN, DONE)
    first = worker_of(terminal.pid)
    for line in LONG.split("\n"):
        terminal.send(line + "\r")
    terminal.expect(r"epochs \d")  # it trains
    os.kill(first, signal.SIGKILL)
    terminal.expect("the grouplearn process ended")
    ask(terminal, "SELECT count(*) || 'rows' FROM m;", "3rows")
    ask(terminal, TRAIN.replace("TRAIN", "TRAIN OR REPLACE"), DONE)
    assert worker_of(terminal.pid) not in (None, first)


def test_a_killed_shell_leaves_no_worker(terminal):
    for line in LONG.split("\n"):
        terminal.send(line + "\r")
    assert wait_until(lambda: worker_of(terminal.pid) is not None)
    terminal.expect(r"epochs \d")  # it trains
    worker = worker_of(terminal.pid)
    os.kill(terminal.pid, signal.SIGKILL)
    assert wait_until(lambda: not is_running(worker))


def test_leaving_ends_the_worker_and_checkpoints(typed, tmp_path):
    child = typed(str(tmp_path / "a.duckdb"))
    ask(child, TABLE, "")
    ask(child, TRAIN, DONE)
    worker = worker_of(child.pid)
    child.send(".exit\r")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert wait_until(lambda: not is_running(worker))
    assert [path.name for path in tmp_path.iterdir()] == ["a.duckdb"]


def test_every_kind_of_statement(place, ours, tmp_path):
    ask(place, TABLE, "")
    ask(place, f"EXPLAIN {TRAIN}", "Logical plan")
    ask(place, f"EXPLAIN ANALYZE {TRAIN}", "Measured")
    ask(place, ours("SHOW MODELS;"), "m,y,3,linear_regression")
    ask(place, ours("SHOW LEARNERS;"), "elastic_net|linear_regression")
    ask(place, "DESCRIBE MODEL m;", "rmse")
    ask(place, "EVALUATE MODEL m ON t;", r"2,g,[^,]*,100,")
    ask(place, "RETRY FAILED MODEL m;", "nothing was trained")
    ask(place, f"EXPORT MODEL m TO '{tmp_path}/m';", "m is exported")
    ask(place, "ALTER MODEL m RENAME TO n;", "model m is now n")
    ask(place, f"IMPORT MODEL m FROM '{tmp_path}/m';", "m is imported")
    ask(place, ours("SET grouplearn_workers = 1;") + ours("SHOW RUNS;"), "workers is 1")
    ask(place, ours("RESET grouplearn_workers;"), "workers is reset")
    ask(place, "RESUME MODEL n;", "no unfinished run")
    ask(place, "DROP MODEL n; DROP MODEL IF EXISTS n;", "nothing was dropped")


def test_several_statements_on_one_line(place):
    ask(place, f"{TABLE} {TRAIN} SELECT count(*) || 'models' FROM m; DROP MODEL m; SELECT 6 * 7;", "3models")
    place.expect("model m is dropped")
    place.expect("42")


def test_a_transaction(place):
    ask(place, f"{TABLE} BEGIN; CREATE TEMP TABLE mine AS FROM t LIMIT 30;", "")
    ask(place, TRAIN.replace("FROM t", "FROM mine"), r"0,[^,]*,10,")
    ask(place, "SELECT count(*) || 'rows' FROM m_predict(mine);", "30rows")
    ask(place, "SELECT count(predict_value('m', mine)) || 'values' FROM mine;", "30values")
    ask(place, "ROLLBACK; SELECT count(*) || 'views' FROM duckdb_views() WHERE view_name = 'm';", "0views")
    ask(place, f"BEGIN; {TRAIN} COMMIT;", DONE)
    ask(place, "SELECT count(*) || 'kept' FROM m;", "3kept")


def test_search_path_and_attached_databases(terminal, ours, tmp_path):
    ask(terminal, f"ATTACH '{tmp_path}/other.duckdb' AS other; CREATE SCHEMA other.s; USE other.s;", "")
    ask(terminal, f"{TABLE} {TRAIN}", DONE)
    ask(terminal, "USE memory; " + ours("SHOW MODELS;"), ",other,s,")


def test_errors_point_at_the_word(place):
    ask(place, TABLE, "")
    ask(place, "TRAIN MODEL m USING linear_regresion PREDICT y FROM t;", "unknown learner")
    place.expect(r"\^{16}")
    ask(place, "SELECT 'next' || 'one';", "nextone")


def box(child: pexpect.spawn, sql: str) -> list[list[str]]:
    """Run a statement in a shell whose mode is a box; return the cells of the box, without colours."""
    child.send(sql + "\r")
    ask(child, "SELECT 'next' || 'one' AS last;", "nextone")
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", child.before).splitlines()
    return [[cell.strip() for cell in line.strip("│ ").split("│")] for line in lines if line.startswith("│")]


@pytest.mark.parametrize("width", [100, 140])
def test_the_optimised_metric_is_seen_beside_the_keys(place, width):
    """A terminal has no room for all columns: it shows the first ones and the last ones."""
    place.setwinsize(40, width)
    ask(place, TABLE, "")
    ask(place, ".mode duckbox\rSELECT 'box' || 'es';", "boxes")
    grid = "OVER GRID (l1 IN (0, 0.1), l2 IN (0.1, 1), fit_intercept IN (true, false))"
    names, *rows = box(
        place, TRAIN.replace("GROUP BY g", f"GROUP BY g, x > 70 AS high {grid}").replace("NONE", "SAMPLE 20%")
    )
    assert names[:3] == ["g", "high", "valid_rmse"]
    assert "error" not in names
    assert len(rows[1][2]) <= 9  # the first row has types
    assert box(place, "EVALUATE MODEL m ON t;")[0][:4] == ["g", "high", "model_level", "rmse"]
    failing = TRAIN.replace("TRAIN", "TRAIN OR REPLACE").replace("PREDICT y", "PREDICT if(g = 1, NULL, y) AS y")
    assert "error" in box(place, failing)[0]
    ask(place, ".mode csv\rSELECT 'text' || 's';", "texts")


def test_dot_commands(place, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text(f"{TABLE}\n{TRAIN}\n{COUNT}")
    ask(place, f".read {script}", DONE)
    ask(place, ".mode json", "")
    ask(place, "SELECT g, n_rows FROM m WHERE g = 1;", r'\{"g":1,\s*"n_rows":100\}')
    ask(place, TRAIN.replace("TRAIN", "TRAIN OR REPLACE"), r'"n_rows":100')
    ask(place, ".mode csv", "")


def test_read_only(typed, ours, database):
    child = typed("-readonly", database)
    ask(child, ours("SHOW MODELS;"), ",a,main,")
    ask(child, TRAIN.replace("MODEL m", "MODEL n"), "is read-only")
    ask(child, "SELECT count(predict_value('m', t)) || 'values' FROM t;", "300values")


def test_after_open_the_extension_is_loaded_by_hand(typed, shell, tmp_path):
    """Another database is another instance, into which nothing has been loaded; attaching one keeps it."""
    child = typed(str(tmp_path / "a.duckdb"))
    ask(child, f"ATTACH '{tmp_path}/b.duckdb' AS b; USE b; {TABLE} {TRAIN}", DONE)
    ask(child, f".open {tmp_path}/b.duckdb", "")
    ask(child, "SELECT count(*) || 'rows' FROM m;", "3rows")
    ask(child, TRAIN.replace("TRAIN", "TRAIN OR REPLACE"), "Parser Error")
    ask(child, f"LOAD '{built(launch.version_of(shell))}';", "")
    ask(child, TRAIN.replace("TRAIN", "TRAIN OR REPLACE"), DONE)
