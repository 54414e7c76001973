"""What dies on Ray, and what is left of it: the same bits, nothing trained twice but what was in flight, no trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers.ray_watch import eventually, process_named, workers_below
from helpers.runtime_jobs import Watcher, job, models, units
from test_mop_runs import a_job as hopping_job
from test_mop_runs import workload
from test_ray import long_job

from grouplearn.data.files.run_directory import PID_FILE
from grouplearn.failures import TrainingFailed
from grouplearn.models.label import NUMBER
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.ray import job_rows as ray_rows
from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.runtime.ray.settings import Cluster
from grouplearn.runtime.ray.supervised import supervisor as ray_supervisor
from grouplearn.runtime.ray.supervised.processes import of_session, processes_named
from grouplearn.runtime.ray.supervised.supervisor import CHILDREN
from grouplearn.schedule.messages import Event, Instruction, Unit
from grouplearn.schedule.sharded.gap import Gap
from grouplearn.schedule.task_parallel import ModelTaskParallel
from grouplearn.schedule.workload import Hops
from grouplearn.train.job import Job, UnitResult

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

EPOCHS = 12
#: Repetitions of every fault, at another instant each.
REPEATS = int(os.environ.get("GROUPLEARN_FAULT_REPEATS", "1"))


@pytest.fixture(scope="module")
def on_ray() -> Iterator[RayRuntime]:
    shared = RayRuntime()
    yield shared
    shared.shutdown()


def never() -> bool:
    return False


def split_and_whole() -> tuple[Job, list[Unit]]:
    """One group that is split between two workers, and one that is not; three networks for each."""
    a_job = hopping_job("mlp", NUMBER, epochs=EPOCHS)
    pairs = [(group.id, config) for group in a_job.groups for config in range(len(a_job.configs))]
    some_units = [Unit(number, group, (config,), cost=1.0) for number, (group, config) in enumerate(pairs)]
    return a_job, some_units


def gap(a_job: Job, some_units: list[Unit]) -> Gap:
    return Gap(some_units, workload(a_job, 2, Hops()))


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    a_job, some_units = split_and_whole()
    return models(LocalRuntime().run(a_job, gap(a_job, some_units), 2, Watcher(), never))


class Assassin(Watcher):
    """Kills, or stops for good, once, when so many epochs are done."""

    def __init__(self, victim: Callable[[], int], after: int, by: signal.Signals = signal.SIGKILL) -> None:
        super().__init__()
        self.victim, self.after, self.by, self.killed = victim, after, by, 0

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        super().epochs_done(unit, epochs)
        if not self.killed and self.epochs >= self.after:
            self.killed = self.victim()
            os.kill(self.killed, self.by)


def driver() -> int:
    (child,) = CHILDREN.sessions
    return child


VICTIMS: dict[str, Callable[[], int]] = {
    "worker": lambda: max(workers_below()),
    "raylet": lambda: process_named("raylet"),
    "gcs_server": lambda: process_named("gcs_server"),
    "driver": driver,
}


@pytest.mark.examples(2)
@pytest.mark.parametrize("repeat", range(REPEATS))
@pytest.mark.parametrize("victim", VICTIMS)
def test_whoever_dies_the_models_are_those_of_an_undisturbed_run(
    on_ray: RayRuntime, undisturbed: list[Any], victim: str, repeat: int
) -> None:
    a_job, some_units = split_and_whole()
    on_ray.prepare(never)
    session, warm = driver(), CHILDREN.warm(None)
    assert warm is not None
    assassin = Assassin(VICTIMS[victim], 12 + 11 * repeat % 45)
    results = on_ray.run(a_job, gap(a_job, some_units), 2, assassin, never)
    assert assassin.killed
    assert models(results) == undisturbed
    assert_only_what_was_in_flight_ran_twice(results, assassin)
    if victim != "worker":
        assert driver() != session
        assert not of_session(session)
        assert not warm.home.exists()
    assert not rows_of_this_process()


def rows_of_this_process() -> list[Path]:
    """Return the run directories of this process; other tests may run beside this one."""
    pids = Path(ray_rows.place_for(0)).glob(f"run-*/{PID_FILE}")
    return [pid.parent for pid in pids if pid.read_text() == str(os.getpid())]


def assert_only_what_was_in_flight_ran_twice(results: tuple[UnitResult, ...], watcher: Watcher) -> None:
    """Each visit to a shard is in the log once; of each of two workers, at most what it was doing is lost."""
    visits = Counter(
        (result.unit.id, step.epoch, step.blocks) for result in results for step in result.steps if step.kind == "train"
    )
    assert set(visits.values()) == {1}
    assert sorted(watcher.units) == [result.unit.id for result in results]
    lost = [each for result in results for each in result.lost]
    assert len(lost) == len(watcher.lost) <= 2
    assert all(each.started <= each.ended for each in lost)


def test_a_hung_worker_is_found_and_replaced(on_ray: RayRuntime) -> None:
    a_job, some_units = long_job(), units(long_job(), per_config=True)
    expected = models(LocalRuntime().run(a_job, ModelTaskParallel(some_units), 1, Watcher(), never))
    watcher = Assassin(VICTIMS["worker"], 1, signal.SIGSTOP)
    impatient = RayRuntime(Cluster(worker_timeout=1.0))
    assert models(impatient.run(a_job, ModelTaskParallel(some_units), 2, watcher, never)) == expected
    assert watcher.killed
    assert len(watcher.lost) <= 1
    assert eventually(lambda: watcher.killed not in workers_below())


@pytest.mark.thorough
def test_a_hung_driver_is_found_and_replaced(on_ray: RayRuntime) -> None:
    a_job, some_units = long_job(), units(long_job(), per_config=True)
    expected = models(LocalRuntime().run(a_job, ModelTaskParallel(some_units), 1, Watcher(), never))
    watcher = Assassin(driver, 1, signal.SIGSTOP)
    impatient = RayRuntime(Cluster(worker_timeout=3.0))
    assert models(impatient.run(a_job, ModelTaskParallel(some_units), 2, watcher, never)) == expected
    assert watcher.killed
    assert driver() != watcher.killed
    assert not of_session(watcher.killed)


@pytest.mark.thorough
def test_a_control_process_that_dies_while_ray_starts(on_ray: RayRuntime) -> None:
    """Another child starts another one at once, instead of after the half minute that Ray waits."""
    on_ray.shutdown()
    a_job, some_units = long_job(), units(long_job(), per_config=True)
    killed: list[int] = []

    def kill() -> None:
        while not (found := [each for session in CHILDREN.sessions for each in processes_named(session, ["raylet"])]):
            time.sleep(0.01)
        time.sleep(0.6)  # so that it is seen
        os.kill(found[0], signal.SIGKILL)
        killed.append(found[0])

    killer = threading.Thread(target=kill)
    killer.start()
    results = on_ray.run(a_job, ModelTaskParallel(some_units), 2, Watcher(), never)
    killer.join(60)
    assert killed
    assert len(results) == len(some_units)


class Together(ModelTaskParallel):
    """Begins when two workers are there."""

    def __init__(self, some_units: list[Unit]) -> None:
        super().__init__(some_units)
        self.held: list[Event] = []

    def on(self, event: Event) -> tuple[Instruction, ...]:
        if len(self.held) == 2:
            return super().on(event)
        self.held.append(event)
        return tuple(order for each in self.held for order in super(Together, self).on(each)) if self.full else ()

    @property
    def full(self) -> bool:
        return len(self.held) == 2


def test_a_slow_worker_loses_its_work_to_a_faster_one(on_ray: RayRuntime) -> None:
    a_job = job("mlp", ({"learning_rate": 0.01}, {"learning_rate": 0.02}), groups=8, rows=600, epochs=10)
    some_units = units(a_job, per_config=True)
    slow: list[int] = []

    class Sedative(Watcher):
        """Stops a worker once both have done something, until nothing is left but what it does."""

        def __init__(self) -> None:
            super().__init__()
            self.workers: set[int] = set()

        def unit_done(self, result: UnitResult) -> None:
            super().unit_done(result)
            self.workers.add(result.worker)
            if not slow and len(self.workers) == 2:
                slow.append(max(workers_below()))
                os.kill(slow[0], signal.SIGSTOP)
            if slow and len(self.units) == len(some_units) - 1:
                os.kill(slow[0], signal.SIGCONT)

    told = Sedative()
    results = on_ray.run(a_job, Together(some_units), 2, told, never)
    assert models(results) == models(LocalRuntime().run(a_job, ModelTaskParallel(some_units), 1, Watcher(), never))
    by_worker = Counter(result.worker for result in results)
    assert slow
    # By the order in which results came: it may have been stopped between the end of a unit and the answer.
    (last,) = (result for result in results if result.unit.id == told.units[-1])
    assert last.worker == min(by_worker, key=lambda worker: by_worker[worker])
    assert min(by_worker.values()) < max(by_worker.values())


def test_a_cluster_that_dies_at_every_start_ends_the_run(on_ray: RayRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    on_ray.shutdown()
    last_words = "import sys; sys.exit('the driver is out of sorts')"
    monkeypatch.setattr(ray_supervisor, "_command", lambda *_: [sys.executable, "-c", last_words])
    a_job = job(groups=1)
    with pytest.raises(TrainingFailed, match="Ray died 3 times in a row: the driver is out of sorts"):
        on_ray.run(a_job, ModelTaskParallel(units(a_job)), 1, Watcher(), never)
    assert not CHILDREN.sessions


def test_products_and_rows_go_through_the_store_where_workers_see_no_files(
    on_ray: RayRuntime, undisturbed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_ray.shutdown()
    command = ray_supervisor._command

    def blind(*where: Any) -> list[str]:
        arguments = command(*where)
        code = (
            "import sys; from grouplearn.runtime.ray import cluster, job_rows\n"
            "from grouplearn.runtime.ray.supervised import child\n"
            "cluster.ClusterConnection.sees = lambda *_: False\n"
            "job_rows.CHUNK_BYTES = 2000\n"
            "child.main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])"
        )
        return [arguments[0], "-P", "-c", code, *arguments[4:]]

    monkeypatch.setattr(ray_supervisor, "_command", blind)
    a_job, some_units = split_and_whole()
    assassin = Assassin(VICTIMS["worker"], 20)
    results = on_ray.run(a_job, gap(a_job, some_units), 2, assassin, never)
    assert models(results) == undisturbed
    assert_only_what_was_in_flight_ran_twice(results, assassin)
    on_ray.shutdown()


@pytest.mark.thorough
def test_two_runs_at_once_do_not_disturb_each_other(on_ray: RayRuntime) -> None:
    jobs = [job(groups=2, epochs=5), job("mlp", ({"learning_rate": 0.1},), groups=2, epochs=5)]
    expected = [models(LocalRuntime().run(each, ModelTaskParallel(units(each)), 1, Watcher(), never)) for each in jobs]
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(on_ray.run, each, ModelTaskParallel(units(each)), 1, Watcher(), never) for each in jobs]
        assert [models(each.result(120)) for each in runs] == expected
    assert len(CHILDREN.sessions) == 1, "the other one has left"


def test_what_dead_processes_left_behind_is_removed_and_what_the_living_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_supervisor, "_short_directory", lambda: str(tmp_path))
    dead = tmp_path / "gl-deaddead"
    dead.mkdir()
    sleep = "import sys, time; held = open(sys.argv[1], 'w'); print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", sleep]
    left = subprocess.Popen([*command, str(dead / "log")], stdout=subprocess.PIPE, start_new_session=True)
    other = subprocess.Popen([*command, str(tmp_path / "x")], stdout=subprocess.PIPE, start_new_session=True)
    for each in (left, other):
        assert each.stdout is not None
        each.stdout.readline()
    (dead / "lock").write_text(str(left.pid))
    (tmp_path / "gl-olderone").mkdir()
    (tmp_path / "gl-olderone" / "lock").write_text(str(other.pid))  # a number that is somebody else's by now
    (tmp_path / "gl-of-somebody-else").mkdir()  # not a name of ours
    first, lock = ray_supervisor._new_home()
    second, second_lock = ray_supervisor._new_home()
    assert left.wait(10) == -signal.SIGKILL
    assert other.poll() is None
    (tmp_path / "x").unlink()
    assert {*tmp_path.iterdir()} == {tmp_path / "gl-of-somebody-else", first, second}
    lock.close()
    third, another = ray_supervisor._new_home()
    assert {*tmp_path.iterdir()} == {tmp_path / "gl-of-somebody-else", second, third}
    for each in (left, other):
        each.kill()
        each.communicate()
    second_lock.close()
    another.close()


USER = """
import sys
import grouplearn
from grouplearn.runtime.ray.supervised.supervisor import CHILDREN
con = grouplearn.connect(progress=False)
con.execute("CREATE TABLE t AS SELECT i % 2 AS g, i * 1.0 AS x, i * 2.0 AS y FROM range(20000) AS r(i)")
train = "TRAIN OR REPLACE MODEL m USING mlp PREDICT y FEATURES (zscore(x)) FROM t GROUP BY g WITH (executor = 'ray', epochs = {})"
con.execute(train.format(1))
print(CHILDREN.sessions[0], CHILDREN.warm(None).home, flush=True)
if sys.argv[1] == "train":
    con.execute(train.format(1_000_000))
elif sys.argv[1] == "wait":
    sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["killed in training", *(["exits", "killed when idle"] if REPEATS > 1 else [])])
def test_when_the_users_process_is_gone_nothing_of_ray_is_left(tmp_path: Path, end: str) -> None:
    script = tmp_path / "user.py"
    script.write_text(textwrap.dedent(USER))
    doing = {"killed in training": "train", "killed when idle": "wait", "exits": "exit"}[end]
    with subprocess.Popen(
        [sys.executable, str(script), doing], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as user:
        assert user.stdout is not None
        session, home = user.stdout.readline().split()
        if end == "exits":
            assert user.wait(30) == 0
        else:
            assert of_session(int(session))
            user.kill()
    assert eventually(lambda: not of_session(int(session)))
    assert eventually(lambda: not Path(home).exists())
