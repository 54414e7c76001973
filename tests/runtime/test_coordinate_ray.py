"""Coordinate descent by Ray's workers: the bits of the group trained whole, whoever is killed."""

from __future__ import annotations

import pytest
from helpers.ray_watch import Killer
from helpers.runtime_jobs import Watcher, models
from test_coordinate_runs import CONFIGS, a_job, units_of, whole, workload

from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.schedule.rounds.coordinate_descent import CoordinateDescent
from grouplearn.train.job import Job, UnitResult


def ran(on_ray: RayRuntime, job: Job, watcher: Watcher | None = None) -> tuple[UnitResult, ...]:
    machine = CoordinateDescent(units_of(job), workload(job, 2))
    return on_ray.run(job, machine, 2, watcher or Watcher(), lambda: False)


@pytest.mark.examples(1)
@pytest.mark.parametrize("case", ["logistic", "softmax, patience"])
def test_workers_that_are_killed_cost_no_bit(on_ray: RayRuntime, case: str) -> None:
    job, killer = a_job(case, epochs=15), Killer(every=6)
    results = ran(on_ray, job, killer)
    assert killer.killed
    assert models(results) == whole(job)
    assert {trial.config for result in results for trial in result.trials} == set(range(len(CONFIGS)))
