"""A full disk and too little memory give a clear error and a run that can go on; two TRAINs do not disturb each other.

``GROUPLEARN_FAULT_REPEATS=2`` fills the disk at every write instead of every fourth, and tries more limits of memory.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from helpers.dying_runs import answer

import grouplearn
from grouplearn.data.files.run_directory import runs_of
from grouplearn.errors import OutOfMemory, TrainingError
from grouplearn.train.results import ledger
from grouplearn.train.results.ledger import Ledger

THOROUGH = "GROUPLEARN_FAULT_REPEATS" in os.environ
GROUPS = 4
TABLE = (
    f"CREATE TABLE t AS SELECT i % {GROUPS} AS g, hash(i) % 1000 / 1000 AS a, hash(i + 7) % 1000 / 1000 AS b, "
    "hash(i) % 1700 + hash(i + 3) % 900 > 1000 AS y FROM range(2000) r(i)"
)
TRAIN = (
    "TRAIN MODEL {} USING gbdt PREDICT y FEATURES (zscore(a), b) FROM t GROUP BY g OVER GRID (num_leaves IN (4, 8)) "
)
DURABLE = "WITH (durable = true, num_iterations = 4, workers = {})"
MODELS = "SELECT group_id, config, sha256 FROM grouplearn.artifacts JOIN grouplearn.models USING (model) "


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "d.duckdb")


def filled(file: Path) -> Path:
    with duckdb.connect(str(file)) as con:
        con.execute(TABLE)
    return file


def models(path: Path, name: str = "m") -> list[Any]:
    return answer(path, f"{MODELS} WHERE model_name = '{name}' ORDER BY ALL")


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, after: int) -> Iterator[list[int]]:
    """Have the disk full when it was written to ``after`` times; count the times."""
    written: list[int] = []
    fsync = os.fsync

    def refused(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refused)
        yield written


def test_the_disk_is_full_at_every_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "FLUSH_SECONDS", 0.0)
    statement = TRAIN.format("m") + DURABLE.format(1)
    with full_disk(monkeypatch, 1_000_000) as every:
        answer(path, statement)
    expected = models(path)
    answer(path, "DROP MODEL m")
    for after in range(0, len(every), 1 if THOROUGH else 7):
        with full_disk(monkeypatch, after), pytest.raises(TrainingError) as caught:
            answer(path, statement)
        assert "No space left on device" in str(caught.value)
        assert "free disk space" in str(caught.value)
        resumable = answer(path, "SHOW RUNS")
        assert ("RESUME MODEL" in str(caught.value)) == bool(resumable)
        answer(path, "RESUME MODEL m" if resumable else statement)
        assert models(path) == expected
        answer(path, "DROP MODEL m")
        assert not runs_of(str(path)).exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB, where one may be made."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path, kilobytes: int) -> Path:
    """Leave so much room on a disk; return the file that takes the rest."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while (status := os.statvfs(disk)).f_bavail * status.f_frsize > kilobytes * 1024:
            file.write(bytes(4096))
    return ballast


def refusal(path: Path, statement: str) -> str | None:
    """Return what a statement that failed says."""
    try:
        answer(path, statement)
    except (TrainingError, duckdb.Error) as error:
        return str(error)
    return None


def test_a_disk_that_is_full(small_disk: Path) -> None:
    path = filled(small_disk / "d.duckdb")
    statement = TRAIN.format("m") + DURABLE.format(2)
    answer(path, statement)
    expected = models(path)
    answer(path, "DROP MODEL m; CHECKPOINT")
    failures = 0
    for free in (0, 30, 90, 150, 250, 400, 800) if THOROUGH else (0, 90, 250, 800):
        ballast = fill(small_disk, free)
        said = refusal(path, statement)
        assert said is None or "space" in said.lower(), said
        failures += said is not None
        ballast.unlink()
        if not answer(path, "SHOW MODELS"):
            answer(path, "RESUME MODEL m" if answer(path, "SHOW RUNS") else statement)
        assert models(path) == expected
        answer(path, "DROP MODEL m; CHECKPOINT")
        assert not runs_of(str(path)).exists()
    assert failures >= 2


def test_a_unit_out_of_memory_is_a_failed_trial_that_is_trained_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = TRAIN.format("m") + DURABLE.format(1)
    answer(path, statement)
    expected = models(path)
    answer(path, "DROP MODEL m")
    with monkeypatch.context() as patch:
        for name in ("boost", "boost_together"):
            patch.setattr(f"grouplearn.learners.trees.gbdt.Gbdt.{name}", raising(MemoryError))
        answer(path, statement)
    assert answer(path, "SELECT DISTINCT status, error[:13] FROM m") == [("failed", "out of memory")]
    answer(path, "RETRY FAILED MODEL m")
    assert models(path) == expected


def raising(error: type[BaseException]) -> Any:
    def raises(*_: Any, **__: Any) -> None:
        raise error

    return raises


def test_a_run_out_of_memory_says_how_to_go_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "FLUSH_SECONDS", 0.0)
    statement = TRAIN.format("m") + DURABLE.format(1)
    answer(path, statement)
    expected = models(path)
    answer(path, "DROP MODEL m")
    add = Ledger.add

    def runs_out(self: Ledger, result: Any) -> None:
        if self.done == 3:
            raise MemoryError
        add(self, result)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "add", runs_out)
        with pytest.raises(OutOfMemory) as caught:
            answer(path, statement)
    assert str(caught.value) == (
        "the process ran out of memory; 3 of the run's units are kept\n\n"
        "Hint: RESUME MODEL m WITH (workers = 1) goes on with less."
    )
    answer(path, "RESUME MODEL m WITH (workers = 1)")
    assert models(path) == expected


def test_no_memory_for_a_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever thread does not start, the statement says that memory is short, or does without it; and goes afterwards."""
    with duckdb.connect(str(path)) as con:  # fewer rows are stored without a thread
        con.execute("INSERT INTO t SELECT t.* FROM t, range(5000 // (SELECT count(*) FROM t))")
    statement = TRAIN.format("m") + DURABLE.format(1)
    answer(path, statement)
    expected = models(path)
    for number in range(2):
        answer(path, "DROP MODEL m")
        no_memory_for_a_thread(path, statement, monkeypatch, number)
        assert models(path) == expected


def no_memory_for_a_thread(path: Path, statement: str, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    begun: list[str] = []
    said = "the process ran out of memory; nothing was stored"
    start = threading.Thread.start

    def starts(self: threading.Thread) -> None:
        begun.append(self.name)
        if len(begun) == number + 1:
            raise RuntimeError("can't start new thread")
        start(self)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", starts)
        try:
            answer(path, statement)
        except OutOfMemory as error:
            said = error.message
    assert len(begun) > number
    assert said == "the process ran out of memory; nothing was stored" or "of the run's units are kept" in said
    if not answer(path, "SHOW MODELS"):
        answer(path, "RESUME MODEL m" if answer(path, "SHOW RUNS") else statement)


#: A user's process that may take so many bytes; what went wrong is printed.
LIMITED = """
import resource, sys
import grouplearn, lightgbm
con = grouplearn.connect(sys.argv[1], progress=False)
con.execute("SET threads = 1")
con.execute("EXPLAIN " + sys.argv[2]).fetchall() # libraries are loaded: the C library ends a process that has no room for theirs
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[3]) << 20),) * 2)
try:
    con.execute(sys.argv[2]).fetchall()
    print("ended", con.execute("SELECT count(*) FILTER (status = 'failed') FROM m").fetchall())
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.thorough
def test_a_process_with_little_memory(path: Path) -> None:
    """Whatever the limit, the process ends by itself and says so, and the run goes on with more."""
    statement = (
        "TRAIN MODEL m USING mlp PREDICT y FEATURES (a, b) FROM t GROUP BY g OVER GRID (learning_rate IN (0.1, 0.01)) "
        "WITH (durable = true, workers = 1, epochs = 2, hidden_layers = [600, 600])"
    )
    answer(path, statement)
    expected = models(path)
    answer(path, "DROP MODEL m")
    for megabytes in (8, 64, 400) if THOROUGH else (64,):
        command = [sys.executable, "-c", LIMITED, str(path), statement, str(megabytes)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert ended.stdout.strip(), ended.stderr
        if not ended.stdout.startswith("ended"):
            assert "emory" in ended.stdout, ended.stdout
        if not answer(path, "SHOW MODELS"):
            answer(path, "RESUME MODEL m" if answer(path, "SHOW RUNS") else statement)
        answer(path, "RETRY FAILED MODEL m")
        assert models(path) == expected
        answer(path, "DROP MODEL m")


def in_threads(*calls: Any) -> list[BaseException | None]:
    """Make calls at the same time, and return what they raised."""
    raised: list[BaseException | None] = [None] * len(calls)

    def run(number: int) -> None:
        try:
            calls[number]()
        except BaseException as error:
            raised[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def test_two_trains_on_one_database(path: Path) -> None:
    """By two connections at the same time: each as if it were alone."""
    statements = [TRAIN.format(name) + DURABLE.format(2) for name in ("one", "two")]
    answer(path, statements[0])
    expected = models(path, "one")
    answer(path, "DROP MODEL one")
    with grouplearn.connect(path, progress=False) as con, con.cursor() as other:
        raised = in_threads(lambda: con.execute(statements[0]), lambda: other.execute(statements[1]))
    assert [str(error) for error in raised if error is not None] == []
    assert models(path, "one") == models(path, "two") == expected
    assert not runs_of(str(path)).exists()


def test_two_trains_of_one_model(path: Path) -> None:
    """One is stored as a whole, the other says that it was not."""
    statement = TRAIN.format("m") + DURABLE.format(1)
    barrier = threading.Barrier(2)
    with grouplearn.connect(path, progress=False) as con, con.cursor() as other:

        def train(connection: Any) -> None:
            barrier.wait()
            connection.execute(statement)

        raised = in_threads(lambda: train(con), lambda: train(other))
    failed = [error for error in raised if error is not None]
    assert len(failed) <= 1
    assert all(isinstance(error, grouplearn.Error) for error in failed), failed
    assert answer(path, "SELECT count(*) FROM grouplearn.models") == [(1,)]
    assert answer(path, "SELECT count(DISTINCT model), count(*) FROM grouplearn.trials") == [(1, 2 * GROUPS)]


def test_two_processes_on_two_databases(tmp_path: Path) -> None:
    statement = TRAIN.format("m") + DURABLE.format(2)
    code = "import grouplearn, sys; grouplearn.connect(sys.argv[1], progress=False).execute(sys.argv[2])"
    paths = [filled(tmp_path / f"{name}.duckdb") for name in ("one", "two")]
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path), statement]) for path in paths]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert models(paths[0]) == models(paths[1])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one.duckdb", "two.duckdb"]
