"""Coordinate descent by Ray's workers: the bits of the group trained whole, whoever is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from helpers.ray_watch import workers_below
from helpers.runtime_jobs import Watcher, models
from test_coordinate_runs import CONFIGS, a_job, units_of, whole, workload

from grouplearn.runtime.choose import runtime
from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.rounds.coordinate_descent import CoordinateDescent
from grouplearn.train.job import Job, UnitResult


@pytest.fixture(scope="module")
def on_ray() -> Iterator[RayRuntime]:
    shared = runtime("ray")
    assert isinstance(shared, RayRuntime)
    yield shared
    shared.shutdown()


def ran(on_ray: RayRuntime, job: Job, watcher: Watcher | None = None) -> tuple[UnitResult, ...]:
    machine = CoordinateDescent(units_of(job), workload(job, 2))
    return on_ray.run(job, machine, 2, watcher or Watcher(), lambda: False)


class Killer(Watcher):
    """Kills one of Ray's workers in the middle of a run, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.killed: list[int] = []

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        super().epochs_done(unit, epochs)
        if len(self.killed) < 2 and self.epochs > 6 * (len(self.killed) + 1):
            self.killed.append(max(workers_below()))
            os.kill(self.killed[-1], signal.SIGKILL)


@pytest.mark.examples(1)
@pytest.mark.parametrize("case", ["logistic", "softmax, patience"])
def test_workers_that_are_killed_cost_no_bit(on_ray: RayRuntime, case: str) -> None:
    job, killer = a_job(case, epochs=15), Killer()
    results = ran(on_ray, job, killer)
    assert killer.killed
    assert models(results) == whole(job)
    assert {trial.config for result in results for trial in result.trials} == set(range(len(CONFIGS)))
