"""Partitions that push on Ray's workers: the order of a run makes its bits again, here and there, whoever is killed."""

from __future__ import annotations

import pytest
from helpers.ray_watch import Killer
from helpers.runtime_jobs import Watcher, models
from test_averaging_runs import a_job
from test_pushes_runs import Orders, all_in_order, orders_of, run, same, server

from grouplearn.models.label import NUMBER, TWO_CLASSES
from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.schedule.averages import Averages
from grouplearn.train.job import Job, UnitResult

STALE = Averages(3, staleness=2)


def ran(
    on_ray: RayRuntime, job: Job, averages: Averages, pushes: Orders | None = None, watcher: Watcher | None = None
) -> tuple[UnitResult, ...]:
    return on_ray.run(job, server(job, 2, averages, pushes), 2, watcher or Watcher(), lambda: False)


@pytest.mark.examples(1)
@pytest.mark.parametrize("averages", [STALE, Averages(3, batches=6, staleness=1)])
def test_an_order_is_repeated_here_and_there(on_ray: RayRuntime, averages: Averages) -> None:
    job = a_job("mlp", TWO_CLASSES, epochs=6)
    results = ran(on_ray, job, averages)
    assert same(results, all_in_order(job, averages, results))
    for again in (run(job, 3, averages, orders_of(results)), ran(on_ray, job, averages, orders_of(results))):
        assert models(again) == models(results)


@pytest.mark.thorough
def test_workers_that_are_killed_leave_an_order_that_makes_the_model(on_ray: RayRuntime) -> None:
    job, killer = a_job("mlp", NUMBER, epochs=40), Killer(every=15)
    results = ran(on_ray, job, STALE, watcher=killer)
    assert killer.killed
    assert same(results, all_in_order(job, STALE, results))
    killer = Killer(every=15)
    assert models(ran(on_ray, job, STALE, orders_of(results), killer)) == models(results)
    assert killer.killed


def test_without_staleness_models_are_those_of_averaging(on_ray: RayRuntime) -> None:
    job = a_job("mlp", TWO_CLASSES, epochs=4)
    assert models(ran(on_ray, job, Averages(3))) == models(run(job, 2, Averages(3)))
