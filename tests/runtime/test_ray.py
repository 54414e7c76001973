"""The Ray runtime on a real cluster of this machine, started once: same bits, lost workers, cancellation, loopback."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.promptness import STOPS_WITHIN_SECONDS
from helpers.ray_watch import process_named, ray_processes, workers_below
from helpers.runtime_jobs import Watcher, changed, job, models, units

from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.failures import NotInstalled, StatementInterrupted
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.ray import actors as ray_actors
from grouplearn.runtime.ray import run as ray_run
from grouplearn.runtime.ray.actors import Actors
from grouplearn.runtime.ray.gang import GRACE_SECONDS, Gangs
from grouplearn.runtime.ray.job_rows import shared_files
from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.runtime.ray.supervised.processes import of_session
from grouplearn.runtime.ray.supervised.supervisor import CHILDREN
from grouplearn.runtime.ray.worker import Address, WorkerHandle
from grouplearn.runtime.runtimes import runtime
from grouplearn.runtime.worker import failed_step
from grouplearn.schedule.messages import Step, Unit
from grouplearn.schedule.task_parallel import ModelTaskParallel
from grouplearn.train.job import Job, UnitResult
from grouplearn.train.unit import failed_unit


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
    found = {address for process in ray_processes() for address in listening(process)}
    assert found, "the cluster listens somewhere"
    assert found <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_a_stranger_without_the_token_is_refused(on_ray: RayRuntime) -> None:
    run(on_ray, job(groups=1), 1)
    assert "RAY_AUTH_TOKEN" not in os.environ
    (settings,) = {
        setting
        for setting in Path(f"/proc/{process_named('raylet')}/environ").read_bytes().split(b"\0")
        if setting.startswith(b"RAY_AUTH_MODE=")
    }
    assert settings == b"RAY_AUTH_MODE=token"


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
def stored(tmp_path: Path) -> Iterator[Job]:
    """A job whose rows are in files."""
    a_job = job(groups=3, rows=3000, epochs=3)
    with RunDirectory(tmp_path / "runs") as directory:
        files = shared_files(a_job.dataset, directory)
        yield replace(a_job, dataset=files.open())
    assert not (tmp_path / "runs").exists()


def test_workers_map_files_instead_of_copying_rows(on_ray: RayRuntime, stored: Job) -> None:
    """In whatever files the rows are: their own, or those made to share what is in memory."""
    in_memory = job(groups=3, rows=3000, epochs=3)
    expected = models(run(LocalRuntime(), in_memory, 1))
    mapped: set[str] = set()

    class Looker(Watcher):
        def epochs_done(self, unit: Any, epochs: int) -> None:
            super().epochs_done(unit, epochs)
            for worker in workers_below():
                mapped.update(re.findall(r"\S+/numeric\.npy", Path(f"/proc/{worker}/maps").read_text()))

    assert models(run(on_ray, stored, 2, Looker())) == expected
    assert mapped == {f"{stored.dataset.files.directory}/numeric.npy"} if stored.dataset.files else False
    mapped.clear()
    assert models(run(on_ray, in_memory, 2, Looker())) == expected
    (shared,) = mapped
    assert not Path(shared).exists()


def test_cancelling_stops_within_two_seconds_and_the_next_run_works(on_ray: RayRuntime) -> None:
    a_job = changed(long_job(), epochs=100_000)
    started = time.monotonic()

    def cancelled() -> bool:
        return time.monotonic() > started + 1.5

    with pytest.raises(StatementInterrupted, match="nothing was stored"):
        run(on_ray, a_job, 2, cancelled=cancelled)
    assert time.monotonic() - started < 1.5 + STOPS_WITHIN_SECONDS
    deadline = time.monotonic() + 5
    while workers_below() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not workers_below()
    assert all(trial.status == "done" for result in run(on_ray, job(), 1) for trial in result.trials)


def test_shutdown_leaves_nothing_behind(on_ray: RayRuntime) -> None:
    run(on_ray, job(groups=1), 1)
    (session,) = CHILDREN.sessions
    child = CHILDREN.warm(None)
    assert child is not None
    assert child.home.exists()
    assert of_session(session)
    on_ray.shutdown()
    assert not child.home.exists()
    assert not of_session(session)


def test_without_ray_the_install_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(NotInstalled) as error:
        run(RayRuntime(), job(), 1)
    assert error.value.hint == 'pip install "grouplearn[ray]"'


def test_a_busy_worker_is_asked_how_far_it_is_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    # Asked again as soon as it has answered, driver and worker would be busy with that alone.
    now, asked = 100.0, itertools.count(1)
    monkeypatch.setattr(ray_actors.time, "monotonic", lambda: now)
    actor = SimpleNamespace(progress=SimpleNamespace(remote=lambda: f"question {next(asked)}"))
    actors = Actors(SimpleNamespace(ray=None))
    actors.workers[0] = WorkerHandle(actor)
    actors.called(0, "follow", "unit")
    now += 1.0
    for _ in range(5):
        for _ in range(10):
            actors.ask_for_progress()
            actors._calls = {"unit": actors._calls["unit"]}  # it has answered
        now += ray_actors.POLL_SECONDS
    assert next(asked) == 5 + 1


@pytest.mark.parametrize("dead", [False, True])
def test_a_member_that_fails_by_itself_tells_its_reason(monkeypatch: pytest.MonkeyPatch, dead: bool) -> None:
    """The other one waits for it inside a library and is ended; where somebody died, all begin again instead."""
    unit, lost = Unit(4, 0, (0,)), []
    steps = [Step(rank, unit, "boost", rank=rank, size=2) for rank in range(2)]
    run = object.__new__(ray_run.RayRun)
    run._begin = SimpleNamespace(cluster=SimpleNamespace(worker_timeout=60.0))
    run._gangs, run._happened = Gangs(), []
    run._actors = Actors(SimpleNamespace(ray=None, private=True))
    processes = [os.getpid(), 2**22 + 1 if dead else os.getpid()]
    for number, process in enumerate(processes):
        run._actors.workers[number] = WorkerHandle(None, address=Address("here", process))
    for number, step in enumerate(steps):
        gang = run._gangs.add(number, step)
    gang.note(0, failed_step(steps[0], failed_unit(unit, "no useful features")))
    gang.failed_since = time.monotonic() - GRACE_SECONDS - 1
    monkeypatch.setattr(ray_run.RayRun, "_lose", lambda _, number: lost.append(number))
    run._look_after_workers()
    assert lost == [1]
    assert [(each.answer.step, each.answer.failed) for each in run._happened] == ([] if dead else [(steps[0], True)])
