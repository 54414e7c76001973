"""Models averaged by Ray's workers: the bits of threads, workers that are killed, and the bytes that really move."""

from __future__ import annotations

import pytest
from helpers.ray_watch import Killer
from helpers.runtime_jobs import Watcher, models
from test_averaging_runs import a_job, received, run, units_of, wide_job, workload

from grouplearn.models.label import NUMBER
from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.schedule.averages import Averages
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.rounds.averaging import Averaging
from grouplearn.train.job import Job, UnitResult


def ran(on_ray: RayRuntime, job: Job, averages: Averages, watcher: Watcher | None = None) -> tuple[UnitResult, ...]:
    machine = Averaging(units_of(job), workload(job, 2, averages))
    return on_ray.run(job, machine, 2, watcher or Watcher(), lambda: False)


@pytest.mark.thorough
@pytest.mark.examples(1)
@pytest.mark.parametrize(("patience", "reduce"), [(None, "scatter"), (2, "tree")])
def test_workers_that_are_killed_cost_no_bit(on_ray: RayRuntime, patience: int | None, reduce: str) -> None:
    job, killer = a_job("mlp", NUMBER, patience, epochs=20), Killer(every=15)
    results = ran(on_ray, job, Averages(3, reduce), killer)  # type: ignore[arg-type]
    assert killer.killed
    assert models(results) == models(run(job, 3, 3))


def test_what_a_worker_fetches_is_two_models_but_its_own_share(on_ray: RayRuntime) -> None:
    job, size = wide_job()
    machine = Averaging([Unit(0, 1, (0,), -1, 1.0)], workload(job, 2, Averages(2)))
    results = on_ray.run(job, machine, 2, Watcher(), lambda: False)
    for epoch in (1, 2, 3):
        for worker in (0, 1):
            fetched = received(results, ("reduce",), epoch - 1)[worker] + received(results, ("work",), epoch)[worker]
            assert fetched == pytest.approx(2 * size / 2, rel=0.01)
