"""What it costs when something of Ray dies: seconds until its work runs again, and the seconds of work that are redone.

A group split between two workers, three networks of it, and three of a whole group; a worker, the raylet, Ray's control
process and its driver are killed (SIGKILL) at random instants, and a worker is stopped (SIGSTOP). Every run's models are
compared with those of an undisturbed run, bit by bit, and so is what Ray leaves behind: nothing.

    python benchmarks/ray_faults.py [KILLS]
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.models.label import NUMBER
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.runtime.ray.settings import Cluster
from grouplearn.runtime.ray.supervised.processes import of_session
from grouplearn.runtime.ray.supervised.supervisor import CHILDREN
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.sharded.gap import Gap
from grouplearn.schedule.workload import Workload
from grouplearn.train.job import Job, TrainingLimits, TrainingTarget, UnitResult

BLOCK = 16_384
ROWS = (BLOCK, 6 * BLOCK)
EPOCHS = 6
HEARTBEAT = 5.0


def the_job() -> tuple[Job, list[Unit], Workload]:
    """Return the job, its units, and what the schedule must know."""
    rng = np.random.default_rng(0)
    n = sum(ROWS)
    x = rng.normal(size=(n, 20))
    y = x[:, 0] * x[:, 1] + rng.normal(size=n)
    split = (np.arange(n) % 5 == 0).astype(np.int16)
    data = Dataset(x, np.empty((n, 0), np.int32), y, np.ones(n), split, ())
    bounds = np.cumsum((0, *ROWS)).tolist()
    groups = tuple(Group(g, 0, (f"g{g}",), ((bounds[g], bounds[g + 1]),)) for g in range(len(ROWS)))
    configs = tuple({"learning_rate": rate, "hidden_layers": (32,)} for rate in (0.01, 0.003, 0.001))
    items = tuple(Item(f"x{column}", "numeric", column) for column in range(20))
    units = [Unit(3 * g + c, g, (c,), cost=1.0) for g in range(len(ROWS)) for c in range(3)]
    workload = Workload("sequential", ROWS, 2, EPOCHS, BLOCK)
    job = Job(
        "mlp",
        configs,
        items,
        groups,
        data,
        TrainingTarget(NUMBER, "rmse"),
        training=TrainingLimits(epochs=EPOCHS),
    )
    return job, units, workload


class Assassin:
    """Sends a signal to a victim at an instant of the run, once."""

    def __init__(self, victim: Callable[[], int], at: float, number: int) -> None:
        self.victim, self.at, self.number = victim, at, number
        self.began, self.when = time.time(), 0.0

    def cancelled(self) -> bool:
        """Look at the clock; never cancel."""
        if not self.when and time.time() - self.began > self.at:
            try:
                os.kill(self.victim(), self.number)
            except ValueError:  # it is not there yet
                return False
            self.when = time.time() - self.began
        return False

    def unit_done(self, result: Any) -> None: ...

    def epochs_done(self, unit: Any, epochs: int) -> None: ...

    def units_lost(self, units: Any) -> None: ...


def named(name: bytes) -> int:
    """Return the newest process of Ray with a name."""
    found = []
    for session in CHILDREN.sessions:
        for process in of_session(session):
            command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0]
            found += [process] if command.endswith(name) else []
    return max(found)


VICTIMS: dict[str, tuple[Callable[[], int], int]] = {
    "worker": (lambda: named(b"ray::RayWorker.follow"), signal.SIGKILL),
    "raylet": (lambda: named(b"/raylet"), signal.SIGKILL),
    "control process": (lambda: named(b"/gcs_server"), signal.SIGKILL),
    "driver": (lambda: max(CHILDREN.sessions), signal.SIGKILL),
    f"worker hangs, {HEARTBEAT:g} s heartbeat": (lambda: named(b"ray::RayWorker.follow"), signal.SIGSTOP),
}


def bits(results: tuple[UnitResult, ...]) -> list[Any]:
    """Return all models, so that equality is equality of bits."""
    artifacts = [trial.artifact for result in results for trial in result.trials]
    return [
        None if each is None else {name: tensor.tobytes() for name, tensor in each.tensors.items()}
        for each in artifacts
    ]


def again_after(results: tuple[UnitResult, ...], when: float) -> float:
    """Return the seconds from the death until everything that was lost runs again."""
    starts = [0.0]
    for result in results:
        for lost in result.lost:
            runs = [step.started for step in result.steps] or [result.started]
            later = [start for start in runs if start > max(when, lost.started)]
            starts += [min(later) - when] if later else []
    return max(starts)


def main(kills: int) -> None:
    """Print a row per victim."""
    job, units, workload = the_job()
    quiet = Assassin(lambda: 0, float("inf"), 0)
    expected = bits(LocalRuntime().run(job, Gap(units, workload), 2, quiet, quiet.cancelled))
    runtime, chance = RayRuntime(Cluster(worker_timeout=HEARTBEAT)), random.Random(1)
    runtime.run(job, Gap(units, workload), 2, quiet, quiet.cancelled)
    began = time.time()
    runtime.run(job, Gap(units, workload), 2, quiet, quiet.cancelled)
    undisturbed = time.time() - began
    print(f"undisturbed: {undisturbed:.1f} s")
    print(
        f"{'dies':<30} {'again after':>12} {'most':>8} {'redone':>8} {'lost':>5} {'makespan':>9}  same bits, nothing left"
    )
    for name, (victim, number) in VICTIMS.items():
        rows = []
        for _ in range(kills):
            assassin = Assassin(victim, chance.uniform(0.1, 0.8) * undisturbed, number)
            before = CHILDREN.sessions
            results = runtime.run(job, Gap(units, workload), 2, assassin, assassin.cancelled)
            lost = [each for result in results for each in result.lost]
            redone = sum(min(each.ended, assassin.when) - each.started for each in lost)
            gone = all(not of_session(each) for each in before if each not in CHILDREN.sessions)
            right = bits(results) == expected and gone
            makespan = max(result.ended for result in results)
            rows.append((again_after(results, assassin.when), redone, len(lost), makespan, right))
        again, redone, lost_units, makespan, right_all = zip(*rows, strict=True)
        print(
            f"{name:<30} {statistics.median(again):>10.1f} s {max(again):>6.1f} s {statistics.median(redone):>6.2f} s "
            f"{statistics.median(lost_units):>5g} {statistics.median(makespan):>7.1f} s  {sum(right_all)}/{kills}",
            flush=True,
        )
    runtime.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
