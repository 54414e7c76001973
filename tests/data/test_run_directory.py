"""Rows larger than memory: files that are private, found again by path, and gone when TRAIN ends."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.thorough import enough

import grouplearn
from grouplearn.data import memory
from grouplearn.data.dataset import ARRAYS, Dataset, DatasetFiles
from grouplearn.data.files.run_directory import PID_FILE, RunDirectory, is_locked, remove_stale, size
from grouplearn.extract import extract
from grouplearn.failures import TrainingFailed
from grouplearn.statements.workflow import training

TRAIN = (
    "TRAIN OR REPLACE MODEL m USING {learner} PREDICT {label} FEATURES (zscore(x), onehot(kind)) FROM points "
    "GROUP BY ROLLUP (g) OVER GRID (l2 IN (0.1, 1)) WITH (executor = 'local')"
)


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are more than fit."""
    monkeypatch.setattr(extract, "memory_limit", lambda given=None: 0)


@pytest.fixture
def con(tmp_path: Path) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(tmp_path / "shop.duckdb", progress=False) as connection:
        connection.execute(
            "CREATE TABLE points AS SELECT i % 5 AS g, i * 37 % 101 / 20 AS x, ['a', 'b', NULL][1 + i % 3] AS kind, "
            "2 * x + i % 7 AS y, y > 8 AS big FROM range(3000) AS t(i)"
        )
        yield connection


#: A name as we give them.
RUN = "run-123e4567-e89b-42d3-a456-426614174000"


def runs(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("*.grouplearn*"))


def weights(connection: grouplearn.Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT * FROM m_weights ORDER BY ALL").fetchall()


@pytest.mark.parametrize(("learner", "label"), [("linear_regression", "y"), ("logistic_regression", "big")])
def test_models_do_not_depend_on_where_rows_are(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learner: str, label: str
) -> None:
    con.execute(TRAIN.format(learner=learner, label=label))
    expected = weights(con)
    seen: list[tuple[Path, list[str], set[int]]] = []

    def spied(begun: training.Work, controls: Any) -> Any:
        (parent,) = runs(tmp_path)
        (directory,) = parent.iterdir()
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (parent, directory)}
        seen.append((directory, sorted(path.name for path in directory.iterdir()), modes))
        assert begun.job.dataset.files.directory == str(directory)
        return run(begun, controls)

    run = training.run
    monkeypatch.setattr(training, "run", spied)
    monkeypatch.setattr(extract, "memory_limit", lambda given=None: 0)
    con.execute(TRAIN.format(learner=learner, label=label))
    assert weights(con) == expected
    ((directory, names, modes),) = seen
    assert re.fullmatch(r"run-[0-9a-f-]{36}", directory.name)
    assert names == sorted([PID_FILE, *(f"{name}.npy" for name in ARRAYS)])
    assert modes == {0o700}
    assert runs(tmp_path) == []


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyboardInterrupt, KeyboardInterrupt),
        (TrainingFailed("lost"), grouplearn.TrainingError),
        (MemoryError, grouplearn.OutOfMemory),
    ],
)
def test_nothing_is_left_however_a_train_ends(
    con: grouplearn.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    told: type[BaseException],
) -> None:
    def fail(*_: Any) -> None:
        assert runs(tmp_path) != []
        raise error

    monkeypatch.setattr(training, "run", fail)
    with pytest.raises(told):
        con.execute(TRAIN.format(learner="linear_regression", label="y"))
    assert runs(tmp_path) == []


@pytest.mark.usefixtures("no_memory")
def test_rows_of_a_database_in_memory_are_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[Path] = []
    array = RunDirectory.array

    def spied(directory: RunDirectory, *given: Any) -> Any:
        seen.append(directory.path)
        return array(directory, *given)

    monkeypatch.setattr(RunDirectory, "array", spied)
    with grouplearn.connect(progress=False) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS x, range * 2 AS y FROM range(100)")
        connection.execute("TRAIN MODEL m USING linear_regression PREDICT y FROM t")
    assert {path.parent for path in seen} == {tmp_path / f"grouplearn-{os.getuid()}"}
    assert list(tmp_path.iterdir()) == []


def test_directories_of_dead_processes_are_removed_and_of_live_ones_kept(tmp_path: Path) -> None:
    parent = tmp_path / "shop.duckdb.grouplearn"
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom grouplearn.data.files.run_directory import RunDirectory\n"
        "directory = RunDirectory(Path(sys.argv[1]))\ndirectory.array('y', (1000,), 'f8')\n"
        "print(directory.path, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    died = subprocess.run([sys.executable, "-c", program, str(parent)], capture_output=True, text=True, check=False)
    dead = Path(died.stdout.strip())
    assert (dead / "y.npy").is_file()
    with RunDirectory(parent) as live:
        assert not dead.exists()
        assert (live.path / PID_FILE).read_text() == str(os.getpid())
        remove_stale(parent)
        assert live.path.is_dir()
    assert not parent.exists()


@pytest.mark.parametrize(
    ("options", "prefix", "why", "other"),
    [
        ("", "run", "the rows do not fit in memory", "raise the memory limit"),
        (", durable = true", "durable", "a durable run keeps its rows on disk", "train WITH (durable = false)"),
    ],
)
def test_a_full_disk_is_told_in_full(
    con: grouplearn.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_memory: None,
    options: str,
    prefix: str,
    why: str,
    other: str,
) -> None:
    class Usage(NamedTuple):
        free: int

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    train = TRAIN.format(learner="linear_regression", label="y").replace("'local'", f"'local'{options}")
    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(12_345))
    with pytest.raises(grouplearn.TrainingError) as caught:
        con.execute(train)
    message = re.sub(r"-[0-9a-f-]{36}", "-ID", str(caught.value)).replace(str(tmp_path), "DIRECTORY")
    assert message == (
        f"{why}, and they could not be written: No space left on device\n"
        f"File: DIRECTORY/shop.duckdb.grouplearn/{prefix}-ID/numeric.npy needs 24.0 kB, and 12.3 kB are free\n\n"
        f"Hint: free disk space, or {other}"
    )
    assert runs(tmp_path) == []
    monkeypatch.undo()
    con.execute(train)


def test_a_directory_that_somebody_took_away_is_told(tmp_path: Path) -> None:
    with RunDirectory.beside(tmp_path / "shop.duckdb") as directory:
        directory.path.rename(tmp_path / "stolen")
        with pytest.raises(TrainingFailed, match="its directory is not there any more"):
            directory.array("x", (3,), np.float64)


def test_a_place_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with RunDirectory(tmp_path / "file") as directory, pytest.raises(TrainingFailed) as caught:
        directory.array("y", (3,), np.float64)
    assert str(caught.value) == (
        "the rows do not fit in memory, and no directory for them could be made: "
        f"[Errno 20] Not a directory: '{tmp_path / 'file'}'\n\n"
        "Hint: make that place writable, or raise the memory limit"
    )


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Dataset]:
    with RunDirectory(tmp_path / "runs") as directory:
        shapes = {"numeric": (20, 3), "codes": (20, 1), "y": (20,), "weight": (20,), "split": (20,)}
        types = {"codes": np.int32, "split": np.int16}
        for number, name in enumerate(ARRAYS):
            array = directory.array(name, shapes[name], types.get(name, np.float64))
            array[...] = np.arange(array.size).reshape(array.shape) + number
        directory.forget_pages()
        yield DatasetFiles(str(directory.path), 0, 20, (("a", "b"),), ("no", "yes")).open()


def test_another_process_opens_a_part_by_path(stored: Dataset) -> None:
    part = stored.rows(4, 16).rows(2, 7)
    program = (
        "import pickle, sys\ndataset = pickle.loads(sys.stdin.buffer.read()).open()\n"
        "print(dataset.n_rows, dataset.numeric.tolist(), dataset.codes.tolist(), dataset.y.tolist(), "
        "dataset.weight.tolist(), dataset.split.tolist(), dataset.dictionaries, dataset.classes, sep='\\n')\n"
        "print(dataset.numeric.flags.writeable, any('numeric.npy' in line for line in open('/proc/self/maps')))\n"
    )
    sent = pickle.dumps(part.files)
    assert len(sent) < 1000
    done = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, check=True)
    expected = [getattr(stored, name)[6:11].tolist() for name in ARRAYS]
    assert done.stdout.decode().splitlines() == [
        *(str(each) for each in (5, *expected, stored.dictionaries, stored.classes)),
        "False True",
    ]


def test_a_part_of_the_rows_is_a_view(stored: Dataset) -> None:
    part = stored.rows(4, 16)
    assert all(np.shares_memory(getattr(part, name), getattr(stored, name)) for name in ARRAYS)
    assert part.n_rows == 12
    assert part.n_bytes == 12 * (3 * 8 + 4 + 8 + 8 + 2)
    assert stored.rows(18, 30).n_rows == stored.rows(18, 30).files.open().n_rows == 2


def test_pages_are_read_again_after_they_were_forgotten(stored: Dataset) -> None:
    before = [getattr(stored, name).tolist() for name in ARRAYS]
    assert "numeric.npy" in resident()
    stored.rows(3, 5).forget_pages()
    assert "numeric.npy" not in resident()
    assert [getattr(stored, name).tolist() for name in ARRAYS] == before


def resident() -> set[str]:
    """Return the names of the mapped files of which some part is in memory."""
    name, found = "", set()
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-", line):
            name = line.split("/")[-1]
        elif line.startswith("Rss:") and int(line.split()[1]):
            found.add(name)
    return found


def test_rows_of_a_run_that_is_over_are_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DatasetFiles(str(tmp_path / "gone"), 0, 1, ()).open()


def test_a_locked_pid_file_says_that_its_process_lives(tmp_path: Path) -> None:
    run = tmp_path / RUN
    run.mkdir()
    with (run / PID_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_stale(tmp_path)
        assert run.is_dir()
    remove_stale(tmp_path)
    assert not run.exists()


@pytest.mark.parametrize("step", ["mkdir", "open", "flock", "rename"])
def test_another_run_may_look_for_what_is_left_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Between any two steps of making a directory it is nobody's or already locked; neither is removed."""
    owner: Any = fcntl if step == "flock" else os
    real, looked = getattr(owner, step), []

    def followed(*given: Any, **named: Any) -> Any:
        result = real(*given, **named)
        if not looked:
            looked.append(given)
            monkeypatch.undo()
            remove_stale(tmp_path)
        return result

    directory = RunDirectory(tmp_path)
    monkeypatch.setattr(owner, step, followed)
    assert directory.array("y", (3,), np.float64).shape == (3,)
    assert looked
    directory.remove()


@pytest.mark.parametrize("names", [(), (".pid",)])
def test_what_a_process_left_while_it_made_its_directory_goes_when_it_is_old(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    run = tmp_path / RUN
    run.mkdir()
    for name in names:
        (run / name).touch()
    remove_stale(tmp_path)
    assert run.is_dir()
    os.utime(run, (0, 0))
    remove_stale(tmp_path)
    assert not run.exists()


def test_runs_that_begin_and_end_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom grouplearn.data.files.run_directory import RunDirectory\n"
        f"for _ in range({enough(500, 150)}):\n"
        "    with RunDirectory(Path(sys.argv[1])) as directory:\n"
        "        directory.array('y', (3,), 'f8')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "shop.duckdb.grouplearn")]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[1] for process in started] == ["", "", ""]
    assert list(tmp_path.iterdir()) == []


def while_waiting(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Have ``action`` happen when somebody waits for a lock."""
    monkeypatch.setattr("grouplearn.data.files.held_directories.time.sleep", lambda _: action())


def test_those_who_ask_whether_a_run_lives_are_not_taken_for_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunDirectory(tmp_path / "runs") as directory:
        directory.durable = True
        path = directory.path
        directory.keep()
        assert is_locked(path)
    with (path / PID_FILE).open("r+") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert not is_locked(path)
        while_waiting(monkeypatch, asking.close)
        with RunDirectory.reopened(path):
            assert asking.closed
            with pytest.raises(BlockingIOError):
                RunDirectory.reopened(path)
            assert is_locked(path)


def test_a_run_that_ends_while_it_is_reopened_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = RunDirectory(tmp_path / "runs")
    ends.durable = True
    path = ends.path
    while_waiting(monkeypatch, ends.remove)
    with pytest.raises(FileNotFoundError):
        RunDirectory.reopened(path)


def test_memory_limit_is_given_or_a_share_of_the_smallest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_again() -> int:
        memory._limits.cache_clear()  # limits are read once a second
        return memory.memory_limit()

    assert memory.memory_limit(123) == 123
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_physical", lambda: 10_000)
    assert read_again() == 6_000
    (tmp_path / "memory.max").write_text("max\n")
    assert read_again() == 6_000
    (tmp_path / "memory.max").write_text("1000\n")
    assert read_again() == 600
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("500\n")
    assert read_again() == 300
    memory._limits.cache_clear()


def test_rows_stay_in_memory_up_to_a_quarter_of_the_limit() -> None:
    assert memory.rows_stay_in_memory(25, 100)
    assert not memory.rows_stay_in_memory(26, 100)


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (9_400_000_000, "9.4 GB")]
)
def test_sizes_are_written_as_people_write_them(n_bytes: int, text: str) -> None:
    assert size(n_bytes) == text


def test_a_parent_that_another_run_takes_away_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, taken = tmp_path / "runs", []
    mkdir = os.mkdir

    def mkdir_after_the_other(name: Any, *arguments: Any, **options: Any) -> None:
        if str(name).startswith("run-") and not taken:  # the last run that was there ends just now
            taken.append(parent.rmdir())
        mkdir(name, *arguments, **options)

    monkeypatch.setattr(os, "mkdir", mkdir_after_the_other)
    with RunDirectory(parent) as directory:
        assert directory.path.is_dir()
    assert taken
