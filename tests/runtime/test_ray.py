"""The Ray runtime on a real cluster of this machine, started once: same bits, lost workers, cancellation, loopback."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime_jobs import Watcher, job, models, units

from grouplearn.data.dataset import ARRAYS, DatasetFiles
from grouplearn.data.run_directory import RunDirectory
from grouplearn.errors import Cancelled, MissingDependency
from grouplearn.runtime import ray_cluster
from grouplearn.runtime.choose import runtime
from grouplearn.runtime.job import Job, UnitResult
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.ray import RayRuntime
from grouplearn.runtime.rows import dataset_bytes
from grouplearn.schedule.task_parallel import ModelTaskParallel


@pytest.fixture(scope="module")
def on_ray() -> Iterator[RayRuntime]:
    os.environ["RAY_ADDRESS"] = "203.0.113.1:6379"  # nobody is there, and nobody is to be asked
    shared = runtime("ray")
    assert isinstance(shared, RayRuntime)
    yield shared
    shared.shutdown()
    del os.environ["RAY_ADDRESS"]


def never() -> bool:
    return False


def run(
    where: Any, a_job: Job, workers: int, watcher: Watcher | None = None, cancelled: Callable[[], bool] = never
) -> tuple[UnitResult, ...]:
    machine = ModelTaskParallel(units(a_job, per_config=True))
    results: tuple[UnitResult, ...] = where.run(a_job, machine, workers, watcher or Watcher(), cancelled)
    return results


def long_job() -> Job:
    """A job whose units take about half a second each, and one unit of which fails."""
    a_job = job("mlp", ({"learning_rate": 0.01}, {"learning_rate": 0.02}), groups=3, rows=1500, epochs=25)
    label = a_job.dataset.y.copy()
    label[:1500] = 0.0
    return replace(a_job, dataset=replace(a_job.dataset, y=label))


def test_models_are_bitwise_the_local_ones(on_ray: RayRuntime) -> None:
    for learner, configs in (
        ("logistic_regression", ({"l2": 0.1}, {"l1": 1.0})),
        ("gbdt", ({"num_iterations": 8}, {"num_iterations": 8, "learning_rate": 0.5})),
    ):
        a_job, watcher = job(learner, configs, rows=90, epochs=5), Watcher()
        expected = models(run(LocalRuntime(), a_job, 1))
        for workers in (1, 2):
            assert models(run(on_ray, a_job, workers, watcher)) == expected
        assert sorted(watcher.units) == sorted([*range(8)] * 2)
        assert watcher.epochs > 0


def ray_processes() -> dict[int, bytes]:
    """Return the command lines of Ray's processes below this one."""
    below: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
            below.setdefault(parent, []).append(int(status.parent.name))
    found, todo = {}, [os.getpid()]
    while todo:
        for process in below.get(todo.pop(), []):
            todo.append(process)
            with suppress(FileNotFoundError, ProcessLookupError):
                found[process] = Path(f"/proc/{process}/cmdline").read_bytes()
    return {process: command for process, command in found.items() if b"ray" in command}


def listening(process: int) -> set[str]:
    """Return the addresses (hexadecimal, as in /proc) on which a process listens."""
    try:
        links = [os.readlink(each) for each in Path(f"/proc/{process}/fd").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return set()
    sockets = {link[8:-1] for link in links if link.startswith("socket:[")}
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                addresses.add(fields[1].rsplit(":", 1)[0])
    return addresses


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
def test_every_listener_is_on_loopback(on_ray: RayRuntime) -> None:
    run(on_ray, job(groups=1), 1)
    found = {address for process in {os.getpid(), *ray_processes()} for address in listening(process)}
    assert found, "the cluster listens somewhere"
    assert found <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_a_stranger_without_the_token_is_refused(on_ray: RayRuntime) -> None:
    run(on_ray, job(groups=1), 1)
    assert "RAY_AUTH_TOKEN" not in os.environ
    (settings,) = {
        setting
        for setting in Path(f"/proc/{ray_cluster.CLUSTER.processes()['raylet'].pid}/environ").read_bytes().split(b"\0")
        if setting.startswith(b"RAY_AUTH_MODE=")
    }
    assert settings == b"RAY_AUTH_MODE=token"


def workers_below() -> list[int]:
    """Return the processes of our actors."""
    return [process for process, command in ray_processes().items() if b"ray::RayWorker" in command]


def test_a_killed_worker_changes_nothing_but_time(on_ray: RayRuntime, capfd: pytest.CaptureFixture[str]) -> None:
    a_job = long_job()
    expected = models(run(LocalRuntime(), a_job, 1))

    class Killer(Watcher):
        killed = 0

        def epochs_done(self, unit: Any, epochs: int) -> None:
            super().epochs_done(unit, epochs)
            if not self.killed and len(self.units) >= 2:
                self.killed = max(workers_below())
                os.kill(self.killed, signal.SIGKILL)

    killer = Killer()
    results = run(on_ray, a_job, 2, killer)
    assert killer.killed
    assert capfd.readouterr() == ("", ""), "Ray talks to the user"
    assert models(results) == expected
    assert sorted(killer.units) == list(range(6))
    assert [result.trials[0].status for result in results] == ["failed"] * 2 + ["done"] * 4
    assert results[0].trials[0].reason == "the label is false in all of the group's 1000 training rows"


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[tuple[Job, list[int]]]:
    """A job whose rows are in files, and the sizes of what the driver puts into the object store."""
    a_job, sizes = job(groups=3, rows=3000, epochs=3), []
    with RunDirectory(tmp_path / "runs") as directory:
        for name in ARRAYS:
            array = getattr(a_job.dataset, name)
            directory.array(name, array.shape, array.dtype)[...] = array
        files = DatasetFiles(str(directory.path), 0, a_job.dataset.n_rows, (), a_job.dataset.classes)
        real = ray_cluster.import_ray().put

        def counted(value: Any) -> Any:
            sizes.append(len(pickle.dumps(value)))
            return real(value)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ray_cluster.import_ray(), "put", counted)
            yield replace(a_job, dataset=files.open()), sizes
    assert not (tmp_path / "runs").exists()


def test_workers_map_files_instead_of_copying_rows(on_ray: RayRuntime, stored: tuple[Job, list[int]]) -> None:
    a_job, sizes = stored
    in_memory = job(groups=3, rows=3000, epochs=3)
    expected = models(run(LocalRuntime(), in_memory, 1))

    class Killer(Watcher):
        def unit_done(self, result: UnitResult) -> None:
            super().unit_done(result)
            if len(self.units) == 2:
                os.kill(max(workers_below()), signal.SIGKILL)

    assert models(run(on_ray, a_job, 2, Killer())) == expected
    mapped, sizes[:] = sum(sizes), []
    assert models(run(on_ray, in_memory, 2)) == expected
    assert mapped < 10_000 < dataset_bytes(a_job.dataset) < sum(sizes)


def test_cancelling_stops_within_two_seconds_and_the_next_run_works(on_ray: RayRuntime) -> None:
    a_job = replace(long_job(), epochs=100_000)
    started = time.monotonic()

    def cancelled() -> bool:
        return time.monotonic() > started + 1.5

    with pytest.raises(Cancelled, match="nothing was stored"):
        run(on_ray, a_job, 2, cancelled=cancelled)
    assert time.monotonic() - started < 1.5 + 2
    deadline = time.monotonic() + 5
    while workers_below() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not workers_below()
    assert all(trial.status == "done" for result in run(on_ray, job(), 1) for trial in result.trials)


def test_a_dead_control_plane_is_replaced(on_ray: RayRuntime) -> None:
    """Ray would end this process a minute after its control plane died."""
    a_job = job(groups=1)
    expected = models(run(on_ray, a_job, 1))
    generation = ray_cluster.CLUSTER._generation
    os.kill(ray_cluster.CLUSTER.processes()["gcs_server"].pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while ray_cluster.CLUSTER._generation == generation and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not ray_processes()
    assert models(run(on_ray, a_job, 1)) == expected


def test_shutdown_leaves_nothing_behind(on_ray: RayRuntime) -> None:
    run(on_ray, job(groups=1), 1)
    directory = Path(str(ray_cluster.CLUSTER._directory))
    assert directory.exists()
    on_ray.shutdown()
    assert not directory.exists()
    deadline = time.monotonic() + 5
    while ray_processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not ray_processes()


def test_without_ray_the_install_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingDependency) as error:
        run(RayRuntime(), job(), 1)
    assert error.value.hint == "pip install 'grouplearn[ray]'"


def test_the_store_has_room_for_the_job_within_limits() -> None:
    assert ray_cluster._store_bytes(0) == ray_cluster.LEAST_STORE_BYTES
    assert ray_cluster._store_bytes(400 << 20) == 800 << 20
    assert ray_cluster._store_bytes(1 << 60) < np.iinfo(np.int64).max // 8
