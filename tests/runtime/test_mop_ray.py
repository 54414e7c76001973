"""Packs that hop between Ray's workers: the bits of threads under a repeated order, lost workers, and what moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.ray_watch import Killer
from helpers.runtime_jobs import Watcher, models
from test_mop_runs import a_job, run, serial, units_of, workload

from grouplearn.catalog.rows.recorded_runs import visits
from grouplearn.models.label import NUMBER, TWO_CLASSES
from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.schedule.mop.hopper import Mop
from grouplearn.schedule.workload import Hops, Visits
from grouplearn.train.job import Job, UnitResult


def ran(on_ray: RayRuntime, job: Job, hops: Hops, watcher: Watcher | None = None) -> tuple[UnitResult, ...]:
    machine = Mop(units_of(job), workload(job, 2, hops))
    return on_ray.run(job, machine, 2, watcher or Watcher(), lambda: False)


def logged(results: tuple[UnitResult, ...]) -> Visits:
    """Return the visits that made the models, from the steps as they ran: as the catalog keeps and reads them."""
    return visits(
        (result.unit.id, step.epoch + 1, step.blocks.first, step.blocks.last)
        for result in results
        for step in result.steps
        if step.kind == "train" and step.blocks is not None
    )


@pytest.mark.examples(1)
@pytest.mark.parametrize("patience", [1, None])
def test_ray_and_threads_give_the_same_bits_when_a_run_is_repeated(on_ray: RayRuntime, patience: int | None) -> None:
    job = a_job("mlp", TWO_CLASSES, patience, epochs=5)
    first = ran(on_ray, job, Hops(seed=4))
    assert {step.worker for result in first for step in result.steps} == {0, 1}
    again = ran(on_ray, job, Hops(recorded=logged(first)))
    threads = run(job, 3, Hops(recorded=logged(first)))
    assert models(first) == models(again) == models(threads)
    assert [result.facts for result in first] == [result.facts for result in threads]


def test_workers_that_are_killed_cost_time_and_the_log_still_tells_the_order(on_ray: RayRuntime) -> None:
    job, killer = a_job("mlp", NUMBER, epochs=30), Killer(every=15)
    results = ran(on_ray, job, Hops(seed=1), killer)
    assert killer.killed
    order = logged(results)
    assert {epoch for epochs in order.values() for epoch in epochs} == set(range(30))
    assert models(results) == models(tuple(serial(job, result.unit, order) for result in results))


def test_the_bytes_of_hops_are_those_of_the_formula(on_ray: RayRuntime) -> None:
    """Table 2: k m p |S| + m |S|; the units' own log counts what workers fetched from each other."""
    epochs = 40
    job = a_job("mlp", TWO_CLASSES, epochs=epochs)
    # Beside states of this size the curve of an epoch, which travels with them, is nothing.
    job = replace(job, configs=tuple({**config, "hidden_layers": (64,)} for config in job.configs))
    job = replace(job, dataset=replace(job.dataset, split=job.dataset.split * 0))
    results = ran(on_ray, job, Hops(seed=2))
    trains = [step for result in results for step in result.steps if step.kind == "train"]
    sizes = {step.fetched for step in trains} - {0}
    assert len(sizes) <= 2, "a state, and the curve of an epoch at most"
    size, n = max(sizes), len(results)
    assert len(trains) == epochs * 2 * n
    moved = sum(result.fetched for result in results)
    stayed = sum(step.fetched == 0 for step in trains)
    assert moved + stayed * size == pytest.approx(epochs * size * 2 * n + size * n, rel=0.05)
