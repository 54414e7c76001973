"""Coordinate descent by Ray's workers: the bits of the group trained whole, whoever is killed."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.ray_watch import Killer, slowed
from helpers.runtime_jobs import Watcher, models
from test_coordinate_runs import CONFIGS, a_job, units_of, whole, workload

from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.schedule.rounds.coordinate_descent import CoordinateDescent
from grouplearn.train.job import Job, UnitResult


def ran(on_ray: RayRuntime, job: Job, watcher: Watcher | None = None, **more: Any) -> tuple[UnitResult, ...]:
    machine = CoordinateDescent(units_of(job), workload(job, 2, **more))
    return on_ray.run(job, machine, 2, watcher or Watcher(), lambda: False)


@pytest.mark.examples(1)
@pytest.mark.parametrize("case", ["logistic", "softmax, patience"])
def test_workers_that_are_killed_cost_no_bit(on_ray: RayRuntime, case: str) -> None:
    job, killer = a_job(case, epochs=15), Killer(every=6)
    results = ran(on_ray, job, killer)
    assert killer.killed
    assert models(results) == whole(job)
    assert {trial.config for result in results for trial in result.trials} == set(range(len(CONFIGS)))


def test_what_a_straggler_has_not_begun_is_done_by_the_other_with_the_same_bits(on_ray: RayRuntime) -> None:
    """A worker that is stopped four fifths of the time does less than half of the work, and ``steps`` say so."""
    job = a_job("logistic", epochs=6)
    ran(on_ray, job)  # both have begun
    with slowed() as stopped:
        results = ran(on_ray, job, work_items=4)
    assert stopped
    assert models(results) == whole(job)
    blocks: dict[int, set[tuple[int, int]]] = {0: set(), 1: set()}
    for result in results:
        for step in result.steps:
            if step.kind == "work" and step.blocks:
                blocks[step.worker] |= {(step.epoch, block) for block in range(step.blocks.first, step.blocks.last)}
    slow, fast = sorted(blocks, key=lambda worker: len(blocks[worker]))
    assert len(blocks[slow]) < 0.8 * len(blocks[fast])
