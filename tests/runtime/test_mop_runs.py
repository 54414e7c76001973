"""Packs that hop: any learner that trains row by row, the same bits when a run is repeated, and the bytes that move."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from helpers.runtime_jobs import Watcher, models
from helpers.split_jobs import BLOCK, n_blocks, split_job

from grouplearn.learners import registry
from grouplearn.models.label import NUMBER, TWO_CLASSES, Label
from grouplearn.runtime.local import LocalRuntime
from grouplearn.schedule.messages import BlockRange, Unit
from grouplearn.schedule.mop.hopper import Mop
from grouplearn.schedule.sharded.gap import Gap
from grouplearn.schedule.workload import Hops, Visits, Workload
from grouplearn.train.fit import visit
from grouplearn.train.job import Job, UnitResult
from grouplearn.train.pack import Pack, begin, has_more, judge_blocks, settle, waited_values
from grouplearn.train.results.evaluation import conclude, evaluate
from grouplearn.train.rows.prepare import prepare
from grouplearn.train.unit import pack_of

SEQUENTIAL = [name for name in registry.names() if registry.learner(name).access.visits]
CONFIGS: dict[str, tuple[dict[str, Any], ...]] = {
    "mlp": tuple(
        {"learning_rate": rate, "hidden_layers": (5,), "batch_size": 8, "dropout": 0.2} for rate in (0.3, 0.02, 0.001)
    )
}
CASES = [
    (name, label, patience, folds)
    for name in SEQUENTIAL
    for label in sorted(registry.learner(name).declaration.labels, key=lambda label: label.name)
    for patience, folds in ((None, 0), (1, 0), (None, 2))
]


def a_job(name: str, label: Label, patience: int | None = None, folds: int = 0, epochs: int = 4) -> Job:
    metric = "rmse" if label == NUMBER else "log_loss"
    configs = CONFIGS.get(name, ({},))
    return split_job(name, label, configs, epochs=epochs, patience=patience, folds=folds, metric=metric)


def units_of(job: Job) -> list[Unit]:
    packs = [(number,) for number in range(len(job.configs))]
    each = [(fold, pack) for fold in range(-1, job.split.folds) for pack in packs]
    return [Unit(number, 1, pack, fold, cost=1.0) for number, (fold, pack) in enumerate(each)]


def workload(job: Job, workers: int, hops: Hops) -> Workload:
    rows = tuple(group.n_rows for group in job.groups)
    return Workload(
        "sequential",
        rows,
        workers,
        job.training.epochs,
        BLOCK,
        evaluate_epochs=job.training.patience is not None,
        hops=hops,
    )


def run(job: Job, workers: int, hops: Hops | None = None) -> tuple[UnitResult, ...]:
    machine = Mop(units_of(job), workload(job, workers, hops or Hops(seed=workers)))
    return LocalRuntime().run(job, machine, workers, Watcher(), lambda: False)


def recorded(results: tuple[UnitResult, ...]) -> Visits:
    """Return the visits of every unit by epoch; without losses each is there once."""
    visits: defaultdict[int, defaultdict[int, list[BlockRange]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        for step in result.steps:
            if step.kind == "train" and step.blocks is not None:
                visits[result.unit.id][step.epoch].append(step.blocks)
    return {unit: {epoch: tuple(runs) for epoch, runs in epochs.items()} for unit, epochs in visits.items()}


def serial(job: Job, unit: Unit, visits: Visits) -> UnitResult:
    """Train a unit on its whole group in one thread, its blocks in the order of ``visits``: SGD without a schedule."""
    prepared = prepare(job, job.groups[1], unit.fold)
    pack: Pack = pack_of(job, unit, unit.configs, prepared, lambda _: None, lambda: False)
    training = begin(pack)
    while has_more(pack, training):
        for run in visits[unit.id][training.epochs]:
            part = prepared.part(BlockRange(min(run.first, prepared.n_blocks), min(run.last, prepared.n_blocks)))
            epochs = training.epochs
            training = visit(replace(pack, prepared=part), training)
            if training.epochs > epochs:
                break
        training = settle(pack, training, waited_values(pack, training, judge_blocks(pack, training)))
    trials = conclude(pack, unit.configs, training, evaluate(pack, training), unit.fold < 0, 0.0)
    return UnitResult(unit, trials, prepared.facts)


@pytest.mark.examples(3)
@pytest.mark.parametrize(("name", "label", "patience", "folds"), CASES)
def test_every_pack_is_serial_sgd_in_the_order_of_its_visits(
    name: str, label: Label, patience: int | None, folds: int
) -> None:
    job = a_job(name, label, patience, folds)
    results = run(job, 3)
    visits = recorded(results)
    assert models(results) == models(tuple(serial(job, result.unit, visits) for result in results))
    hops = [step for result in results for step in result.steps if step.kind == "train"]
    assert {step.worker for step in hops} == {0, 1, 2}
    for epochs in visits.values():
        assert all(sorted(run.first for run in runs)[0] == 0 and len(runs) == 3 for runs in epochs.values())


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("name", SEQUENTIAL)
def test_a_run_is_repeated_bit_by_bit_on_any_number_of_workers(name: str, workers: int) -> None:
    job = a_job(name, TWO_CLASSES)
    first = run(job, 3)
    again = run(job, workers, Hops(recorded=recorded(first)))
    assert models(again) == models(first)
    assert [result.facts for result in again] == [result.facts for result in first]


@pytest.mark.parametrize("scheduler", ["vector", "exact"])
def test_a_plan_is_the_same_at_every_run(scheduler: Any) -> None:
    job = a_job("mlp", TWO_CLASSES)
    assert models(run(job, 2, Hops(scheduler))) == models(run(job, 2, Hops(scheduler)))


def test_replicas_of_a_shard_give_legal_runs_too() -> None:
    job = a_job("mlp", NUMBER)
    results = run(job, 3, Hops(replicas=2))
    visits = recorded(results)
    assert models(results) == models(tuple(serial(job, result.unit, visits) for result in results))


def test_blocks_are_visited_once_an_epoch() -> None:
    job = a_job("mlp", TWO_CLASSES, epochs=3)
    for epochs in recorded(run(job, 4)).values():
        assert sorted(epochs) == [0, 1, 2]
        for runs in epochs.values():
            assert sorted(block for run in runs for block in range(run.first, run.last)) == list(range(n_blocks(job)))


@pytest.mark.parametrize("make", [Mop, Gap])
def test_early_stopping_of_split_groups(make: type[Mop] | type[Gap]) -> None:
    job = a_job("mlp", TWO_CLASSES, patience=1, epochs=9)
    work = replace(workload(job, 3, Hops()), group_isolation=False)
    results = LocalRuntime().run(job, make(units_of(job), work), 3, Watcher(), lambda: False)
    trials = [trial for result in results for trial in result.trials]
    assert {trial.status for trial in trials} == {"done"}
    assert min(trial.epochs for trial in trials) < 9
