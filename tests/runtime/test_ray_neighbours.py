"""What other users and other machines see of Ray while it trains for us: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from helpers.listening import beyond_loopback, listening
from helpers.ray_watch import ray_processes

import grouplearn
from grouplearn.runtime.ray.supervised.supervisor import CHILDREN, Child, _short_directory

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

#: Another user than whoever runs the tests.
NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user for a moment")


def in_shared_memory() -> set[Path]:
    """Return what this user keeps in the machine's shared memory."""
    memory = Path("/dev/shm")
    return {path for path in memory.iterdir() if path.lstat().st_uid == os.getuid()} if memory.is_dir() else set()


@pytest.fixture(scope="module")
def earlier() -> set[Path]:
    """What other programs of this user left in shared memory."""
    return in_shared_memory()


@pytest.fixture(scope="module")
def con(earlier: set[Path]) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 2 AS g, i * 1.0 AS x, sin(i) AS z, i * 2.0 + sin(i) AS y FROM range(4000) AS r(i)"
        )
        connection.execute("SET grouplearn_executor = 'ray'")
        yield connection
    CHILDREN.end_all()


@pytest.fixture(scope="module")
def child(con: grouplearn.Connection) -> Child:
    """What drives Ray, warm after a TRAIN."""
    con.execute(
        "TRAIN MODEL warm USING linear_regression PREDICT y FEATURES (x, z) FROM t GROUP BY g WITH (workers = 2)"
    )
    found = CHILDREN.warm(None)
    assert found is not None
    return found


def as_nobody(command: str, **names: object) -> subprocess.CompletedProcess[str]:
    """Run a command of the shell as another user."""
    environment = {"PATH": "/usr/bin:/bin", **{name: str(value) for name, value in names.items()}}
    return subprocess.run(
        ["/bin/sh", "-c", command],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.examples(2)
@needs_root
@pytest.mark.parametrize(
    "command",
    [
        'ls "$HOME_OF_RAY"',
        'ls "$HOME_OF_RAY/r"',
        'cat "$HOME_OF_RAY/log"',
        'touch "$HOME_OF_RAY/r/mine"',
        'mkdir "$HOME_OF_RAY/r/session_mine"',
        'mv "$HOME_OF_RAY" "$HOME_OF_RAY.mine"',
        'rmdir "$HOME_OF_RAY/r"',
        'ln -s /tmp "$HOME_OF_RAY/r/link"',
    ],
)
def test_another_user_cannot_list_rename_or_write(child: Child, command: str) -> None:
    assert (child.home / "r").stat().st_mode & 0o777 == 0o777, (
        "Ray opens its directory, which is why it lies in another"
    )
    done = as_nobody(command, HOME_OF_RAY=child.home)
    assert done.returncode != 0
    assert "denied" in done.stderr or "not permitted" in done.stderr


@needs_root
def test_another_user_does_not_learn_the_token(child: Child) -> None:
    tokens = set()
    for process, command in ray_processes().items():
        with suppress(OSError):
            variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            tokens |= {each.partition(b"=")[2] for each in variables if each.startswith(b"RAY_AUTH_TOKEN=")}
            assert as_nobody('cat "/proc/$PROCESS/environ"', PROCESS=process).stdout == ""
        assert not any(token in command for token in tokens), "everybody sees a command line"
    assert len(tokens) == 1


def test_only_this_user_enters_what_ray_and_its_workers_keep(child: Child, earlier: set[Path]) -> None:
    assert child.home.stat().st_mode & 0o777 == 0o700
    assert [path for path in in_shared_memory() - earlier if path.lstat().st_mode & 0o077] == []


def test_ray_is_not_put_where_others_could_take_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as place:
        monkeypatch.setattr("tempfile.tempdir", place)
        assert _short_directory() == os.path.realpath(place)
        Path(place).chmod(0o777)
        assert _short_directory() == os.path.realpath("/tmp")


@contextmanager
def watched() -> Iterator[set[tuple[str, int]]]:
    """Collect what Ray's processes, the workers and this one listen on while the block runs."""
    seen: set[tuple[str, int]] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.update(listening([os.getpid(), *ray_processes()]))
            time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_nothing_listens_but_on_loopback_while_workers_train_together(con: grouplearn.Connection) -> None:
    together = (
        "USING gbdt PREDICT y FEATURES (x, z) FROM t WITH (workers = 2, operator = 'data_parallel', num_iterations = 30)",
        "USING mlp PREDICT y FEATURES (x, z) FROM t WITH (workers = 2, operator = 'data_parallel', epochs = 2)",
        "USING logistic_regression PREDICT y > 4000 FEATURES (x, z) FROM t WITH (workers = 2, operator = 'gap')",
    )
    CHILDREN.end_all()  # so that the start of Ray is seen, too
    for train in together:
        with watched() as seen:
            rows = con.execute(f"TRAIN OR REPLACE MODEL m {train}").fetchall()
        assert rows
        assert seen, "Ray listens somewhere"
        assert beyond_loopback(seen) == set(), train
