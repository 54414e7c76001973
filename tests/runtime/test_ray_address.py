"""A Ray cluster that somebody else runs: found by its address, with its token, and left as it was."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.ray_watch import eventually
from helpers.runtime_jobs import Watcher, job, models, units

import grouplearn
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.runtime.ray.settings import Cluster
from grouplearn.runtime.ray.supervised.processes import end_session, of_session
from grouplearn.runtime.ray.supervised.supervisor import CHILDREN
from grouplearn.schedule.task_parallel import ModelTaskParallel

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ends its cluster by /proc")

TABLE = "CREATE TABLE t AS SELECT i % 3 AS g, i * 1.0 AS x, i * 2.0 AS y FROM range(300) AS r(i)"
TRAIN = "TRAIN MODEL {} USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g WITH (executor = 'ray', workers = 2)"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A cluster with a token, as ``ray start --head`` makes it: its address and its session."""
    port = free_port()
    directory = tmp_path_factory.mktemp("r")
    settings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_TMPDIR": f"/tmp/rt-{os.getpid()}",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--head", "--block"]
        where = ["--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
        more = ["--disable-usage-stats", f"--temp-dir=/tmp/rt-{os.getpid()}"]
        with (
            (directory / "log").open("w") as log,
            subprocess.Popen([*ray, *where, *more], stdout=log, stderr=log, start_new_session=True) as process,
        ):
            try:
                assert eventually(lambda: "Ray runtime started" in (directory / "log").read_text(), 60)
                yield f"127.0.0.1:{port}", process.pid
            finally:
                CHILDREN.end_all()
                end_session(process.pid)
                subprocess.run(["rm", "-rf", f"/tmp/rt-{os.getpid()}"], check=True)


def test_the_same_models_on_a_cluster_that_was_there_before_and_is_there_afterwards(head: tuple[str, int]) -> None:
    address, session = head
    a_job = job("mlp", ({"learning_rate": 0.01}, {"learning_rate": 0.1}), groups=3, rows=60, epochs=3)
    some_units = units(a_job, per_config=True)
    there = RayRuntime(Cluster(address))
    results = there.run(a_job, ModelTaskParallel(some_units), 2, Watcher(), lambda: False)
    assert models(results) == models(
        LocalRuntime().run(a_job, ModelTaskParallel(some_units), 1, Watcher(), lambda: False)
    )
    before = set(of_session(session))
    there.shutdown()
    assert eventually(lambda: not workers_of(session))
    assert {process for process in before if b"gcs_server" in command(process)} <= set(of_session(session))


def workers_of(session: int) -> list[int]:
    return [process for process in of_session(session) if b"ray::RayWorker" in command(process)]


def command(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


@pytest.mark.thorough
def test_more_workers_than_cores_train_on_those_there_are(
    head: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker asks for a core of somebody else's cluster; the first ones do what the others do not come for."""
    address, _ = head
    a_job = job(groups=3)
    there = RayRuntime(Cluster(address))
    results = there.run(a_job, ModelTaskParallel(units(a_job)), 3, Watcher(), lambda: False)
    assert {result.worker for result in results} <= {0, 1, 2}
    there.shutdown()


@pytest.mark.thorough
def test_a_session_says_where(head: tuple[str, int]) -> None:
    address, session = head
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        con.execute(f"SET grouplearn_address = '{address}'")
        con.execute(TRAIN.format("m"))
        assert con.execute("SELECT count(*) FROM m WHERE status = 'done'").fetchall() == [(3,)]
        assert CHILDREN.warm(address) is not None
        con.execute("RESET grouplearn_address")
    CHILDREN.end_all()
    assert of_session(session)


def refused(con: Any, address: str, model: str = "m") -> str:
    con.execute(f"SET grouplearn_address = '{address}'")
    began = time.monotonic()
    with pytest.raises(grouplearn.TrainingError) as error:
        con.execute(TRAIN.format(model).replace("FROM t", "FROM (SELECT *, error('a row was read') AS e FROM t)"))
    assert time.monotonic() - began < 40
    return str(error.value)


def test_where_nobody_answers_no_row_is_read() -> None:
    port = free_port()
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        message = refused(con, f"127.0.0.1:{port}")
    assert message.startswith(f"no Ray cluster answers at 127.0.0.1:{port}: ")
    assert message.endswith(
        "Hint: ray start --head starts one, and RAY_AUTH_TOKEN is its token; or RESET grouplearn_address"
    )


def test_without_the_token_the_cluster_is_closed(head: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    address, _ = head
    CHILDREN.end_all()
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        message = refused(con, address)
    assert message.startswith(f"no Ray cluster answers at {address}: ")


@pytest.mark.parametrize("address", ["somewhere", "a:b", "host:0", "host:70000", ":6379", "ray://host:1", 5])
def test_addresses_are_checked_when_they_are_set(address: Any) -> None:
    written = repr(address)
    with grouplearn.connect(progress=False) as con, pytest.raises(grouplearn.Error) as error:
        con.execute(f"SET grouplearn_address = {written}")
    assert str(error.value).startswith(f"address must be 'auto' or 'host:port' such as '10.0.0.5:6379', got {written}")


@pytest.mark.parametrize("seconds", ["0.5", "-1", "'soon'", "true"])
def test_timeouts_are_checked_when_they_are_set(seconds: str) -> None:
    shown = seconds.strip("'") if seconds == "true" else seconds
    with grouplearn.connect(progress=False) as con, pytest.raises(grouplearn.Error) as error:
        con.execute(f"SET grouplearn_worker_timeout = {seconds}")
    assert str(error.value).startswith(f"worker_timeout must be a number of seconds, at least 1, got {shown}")
