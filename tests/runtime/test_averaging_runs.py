"""Models that are averaged: those of a serial run of the same partitions, whoever trains them, and the bytes that move."""

from __future__ import annotations

import functools
import itertools
import operator
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from helpers.runtime_jobs import Watcher, changed, models
from helpers.split_jobs import BLOCK, MLP, n_blocks, split_job
from helpers.thorough import THOROUGH, covering

from grouplearn.data.shard import Shard
from grouplearn.failures import StatementInterrupted
from grouplearn.learners import registry
from grouplearn.learners.contract.optional import can_be_averaged
from grouplearn.learners.contract.ways import AveragingLearner, BatchesLearner, Piece, Visit
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.state import State, Tensors
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.worker import Watch, Worker, outline_or_failed
from grouplearn.schedule.averages import Averages, Reduction
from grouplearn.schedule.messages import (
    BlockRange,
    Discard,
    Instruction,
    Load,
    Release,
    RunStep,
    Step,
    Unit,
    WorkerLost,
    WorkerReady,
)
from grouplearn.schedule.rounds.averaging import Averaging, rounds_of_epoch
from grouplearn.schedule.sharded.partition import blocks_of, cut_evenly
from grouplearn.schedule.workload import Workload
from grouplearn.train.job import Job, TrainingLimits, UnitResult
from grouplearn.train.pack import Pack, begin, end_epoch, has_more, judge_blocks, settle, waited_values
from grouplearn.train.results.evaluation import conclude, evaluate
from grouplearn.train.rows.counted import with_training_rows
from grouplearn.train.rows.prepare import prepare
from grouplearn.train.sharded.steps import StepAnswer, taken_of
from grouplearn.train.unit import pack_of

AVERAGED = {
    way.way: way for name in registry.names() for way in registry.ways(registry.learner(name)) if can_be_averaged(way)
}
_SGD: dict[str, Any] = {"solver": "sgd", "batch_size": 4, "learning_rate": 0.5}
SGD = tuple({**_SGD, **more} for more in ({"l2": 0.1}, {"l2": 3.0, "learning_rate": 0.1}, {"l1": 1.0}))
CONFIGS: dict[str, tuple[dict[str, Any], ...]] = {"mlp": MLP}
CASES = [
    (way, label, patience, folds)
    for at, (way, learner) in enumerate(AVERAGED.items())
    for place, label in enumerate(sorted(learner.declaration.labels, key=lambda label: label.name))
    for number, (patience, folds) in enumerate(((None, 0), (1, 0), (None, 2)))
    if THOROUGH or way == "mlp" or (at + place) % 3 != number
]
#: What else may be asked of rounds, with what is the usual.
FORMS = {
    "batches": Averages(3, batches=5),
    "gradients": Averages(3, send="gradient"),
    "gradients of batches": Averages(3, send="gradient", batches=6),
    "momentum": Averages(3, momentum=0.5),
    "gradients with momentum": Averages(3, send="gradient", batches=3, momentum=0.9),
    "momentum of batches": Averages(3, batches=4, momentum=0.3),
}
REDUCTIONS: tuple[Reduction, ...] = ("scatter", "tree", "star")


def a_job(way: str, label: Label, patience: int | None = None, folds: int = 0, epochs: int = 4) -> Job:
    metric = "rmse" if label == NUMBER else "log_loss" if way == "mlp" or "svm" not in way else "auc"
    metric = "accuracy" if label == SEVERAL_CLASSES and "svm" in way else metric
    name, configs = AVERAGED[way].declaration.name, CONFIGS.get(way, SGD)
    job = split_job(name, label, configs, epochs=epochs, patience=patience, folds=folds, metric=metric)
    return replace(job, dataset=replace(job.dataset, y=abs(job.dataset.y))) if "poisson" in way else job


def units_of(job: Job) -> list[Unit]:
    return [Unit(number, 1, (0, 1), fold, 1.0) for number, fold in enumerate(range(-1, job.split.folds))] + [
        Unit(10 + number, 1, tuple(range(2, len(job.configs))), fold, 1.0)
        for number, fold in enumerate(range(-1, job.split.folds))
        if len(job.configs) > 2
    ]


def workload(job: Job, workers: int, averages: Averages) -> Workload:
    rows = tuple(group.n_rows for group in job.groups)
    work = Workload(
        "sequential",
        rows,
        workers,
        job.training.epochs,
        BLOCK,
        evaluate_epochs=job.training.patience is not None,
        averages=averages,
    )
    return with_training_rows(work, job)


def run(job: Job, workers: int, partitions: int = 3, reduction: Reduction = "scatter") -> tuple[UnitResult, ...]:
    return run_as(job, workers, Averages(partitions, reduction))


def run_as(job: Job, workers: int, averages: Averages) -> tuple[UnitResult, ...]:
    machine = Averaging(units_of(job), workload(job, workers, averages))
    return LocalRuntime().run(job, machine, workers, Watcher(), lambda: False)


def mean(learner: AveragingLearner, parts: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
    """Return the mean of the means of neighbours."""
    shares = runs_of(weights, weights)
    means = [learner.average(run, share) for run, share in zip(runs_of(parts, weights), shares, strict=True)]
    return learner.average(means, [sum(share) for share in shares])


def runs_of(parts: Sequence[Any], weights: Sequence[float]) -> list[list[Any]]:
    """Return neighbours in runs of about the square root of their number, of those that have rows."""
    size = int(np.ceil(np.sqrt(len(parts))))
    every = [range(first, min(first + size, len(parts))) for first in range(0, len(parts), size)]
    return [seen for run in every if (seen := [parts[each] for each in run if weights[each] > 0])]


def added(sums: Sequence[Tensors]) -> dict[str, Any]:
    """Return sums, tensor by tensor, from the first on."""
    return {name: functools.reduce(operator.add, [each[name] for each in sums]) for name in sums[0]} if sums else {}


def serial(job: Job, unit: Unit, partitions: int) -> UnitResult:
    """Train a unit in one thread: every partition from the same model, by the learner's own ``train``, and their mean."""
    return serial_rounds(job, unit, Averages(partitions))


def serial_rounds(job: Job, unit: Unit, averages: Averages) -> UnitResult:
    """Train a unit in one thread, partition after partition and round after round, whole models at a time."""
    prepared, learner = prepare(job, job.groups[1], unit.fold), job.trainer
    assert isinstance(learner, BatchesLearner)
    pack: Pack = pack_of(job, unit, unit.configs, prepared, lambda _: None, lambda: False)
    training, cuts = begin(pack), cut_evenly(prepared.n_blocks, averages.partitions)
    work = workload(job, 1, averages)
    planned = cut_evenly(blocks_of(work.shared_rows_of(unit), BLOCK), averages.partitions)
    rounds = rounds_of_epoch(planned, unit, work)
    velocity: dict[str, Any] = {}
    while has_more(pack, training):
        active, loss = np.flatnonzero(~training.state.done).tolist(), None
        state = training.state
        for number in range(rounds):
            shares = [visits(prepared.part(cut).train.read(), training.epochs, number, rounds, pack) for cut in cuts]
            state = serial_round(pack, state, shares, averages, velocity)
            found = learner.losses(state)
            loss = found if loss is None else loss + (found - loss) / (number + 1)
        assert loss is not None
        training = end_epoch(pack, replace(training, state=state), active, loss)
        training = settle(pack, training, waited_values(pack, training, judge_blocks(pack, training)))
    trials = conclude(pack, unit.configs, training, evaluate(pack, training), unit.fold < 0, 0.0)
    return UnitResult(unit, trials, prepared.facts)


def visits(rows: Shard, epoch: int, number: int, of: int, pack: Pack) -> list[tuple[Shard, Visit]]:
    """Return one of ``of`` equal shares of the batches of a partition's rows, those of a block together."""
    size = pack.configs[0]["batch_size"]
    assert isinstance(size, int)
    batches = [
        (block, start, min(start + size, block.n_rows))
        for block in (rows.part(number, number + 1) for number in range(rows.first, rows.first + rows.n_blocks))
        for start in range(0, block.n_rows, size)
    ]
    mine = batches[len(batches) * number // of : len(batches) * (number + 1) // of]
    together: dict[int, tuple[Shard, int, int]] = {}
    for block, start, stop in mine:
        together[block.first] = (block, together.get(block.first, (block, start, 0))[1], stop)
    return [
        (block, Visit(epoch, start, stop, place == 0)) for place, (block, start, stop) in enumerate(together.values())
    ]


def serial_round(
    pack: Pack, state: State, shares: list[list[tuple[Shard, Visit]]], averages: Averages, velocity: dict[str, Any]
) -> State:
    """Return the model after a round; ``velocity`` is what it was moved by in the last, and is changed."""
    learner, problem = cast(BatchesLearner, pack.learner), pack.prepared.problem
    weights = [
        sum(float(block.weight.sum()) * ((visit.stop - visit.start) / block.n_rows) for block, visit in share)
        for share in shares
    ]
    if not averages.batches and averages.send == "model":  # whole partitions
        weights = [sum(float(block.weight.sum()) for block, _ in share) for share in shares]
    before = learner.part(state, 0, 1)
    if averages.send == "gradient":
        sums = [added([learner.gradient(problem, pack.configs, state, *each) for each in share]) for share in shares]
        total = added([added(run) for run in runs_of(sums, weights)])
        after = learner.stepped(
            problem, pack.configs, State(dict(before), state.done), total, pack.prepared.train.totals, Piece(0, 1)
        )
    else:
        made = [state] * len(shares)
        for partition, share in enumerate(shares):
            for each in share:
                made[partition] = learner.train_batches(problem, pack.configs, made[partition], *each)
        tensors = mean(learner, [learner.part(each, 0, 1) for each in made], weights)
        after = State(dict(tensors), np.any([each.done for each in made], axis=0))
    if averages.momentum:
        before = learner.started(problem, pack.configs, before, pack.prepared.train.totals)
        for name in learner.parameters:
            move = after.tensors[name].astype(float) - before[name]
            move = move + averages.momentum * velocity.get(name, 0.0)
            stays = (after.tensors[name] == 0) | after.done.reshape(-1, *[1] * (move.ndim - 1))
            velocity[name] = np.where(stays, 0.0, move)
            moved = (before[name] + velocity[name]).astype(before[name].dtype)
            after.tensors[name] = np.where(stays, after.tensors[name], moved)
    return after


@pytest.mark.examples(4)
@pytest.mark.parametrize(("name", "label", "patience", "folds"), CASES)
def test_models_are_those_of_a_serial_run_of_the_partitions(
    name: str, label: Label, patience: int | None, folds: int
) -> None:
    job = a_job(name, label, patience, folds)
    results = run(job, 3)
    assert models(results) == models(tuple(serial(job, result.unit, 3) for result in results))
    works = [step for result in results for step in result.steps if step.kind == "work"]
    assert {step.worker for step in works} == {0, 1, 2}
    assert {trial.status for result in results for trial in result.trials} == {"done"}


@functools.cache
def expected_of(way: str, form: str, patience: int | None = None, folds: int = 0, epochs: int = 2) -> Any:
    job = a_job(way, min(AVERAGED[way].declaration.labels, key=lambda label: label.name), patience, folds, epochs)
    return models(tuple(serial_rounds(job, unit, FORMS[form]) for unit in units_of(job)))


@pytest.mark.examples(5)
@pytest.mark.parametrize(
    ("form", "way"),
    [
        (form, way)
        for at, way in enumerate(AVERAGED)
        for number, form in enumerate(FORMS)
        if THOROUGH or way == "mlp" or (at + number) % 3 == 0
    ],
)
def test_every_form_of_rounds_is_that_of_a_serial_run(form: str, way: str) -> None:
    job = a_job(way, min(AVERAGED[way].declaration.labels, key=lambda label: label.name), epochs=2)
    results = run_as(job, 2, FORMS[form])
    assert {trial.status for result in results for trial in result.trials} == {"done"}
    assert models(results) == expected_of(way, form)


@pytest.mark.examples(13)
@pytest.mark.parametrize(("workers", "reduction"), [(1, "tree"), (4, "star"), (8, "scatter"), (4, "tree")])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_rounds_depends_on_partitions_and_on_no_worker(
    form: str, workers: int, reduction: Reduction
) -> None:
    job = a_job("mlp", TWO_CLASSES, epochs=2)
    assert models(run_as(job, workers, replace(FORMS[form], reduce=reduction))) == expected_of("mlp", form)


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("form", "judged", "reduction"),
    covering(["gradients of batches", "momentum of batches"], [(1, 0), (None, 2)], REDUCTIONS),
)
def test_rounds_are_judged_after_epochs(form: str, judged: tuple[int | None, int], reduction: Reduction) -> None:
    patience, folds = judged
    job = a_job("mlp", TWO_CLASSES, patience, folds, 3)
    assert models(run_as(job, 2, replace(FORMS[form], reduce=reduction))) == expected_of(
        "mlp", form, patience, folds, 3
    )


def test_every_form_of_rounds_makes_models_of_its_own() -> None:
    for way in ("mlp", "logistic_regression by sgd"):
        assert len({str(expected_of(way, form)) for form in FORMS}) == len(FORMS)


def test_the_steps_of_many_rounds_are_one_record_of_a_worker_and_epoch() -> None:
    job = a_job("mlp", TWO_CLASSES, epochs=3)
    few, many = (run_as(job, 2, Averages(4, batches=batches)) for batches in (0, 1))
    for result in many:
        rows = Counter((step.kind, step.worker, step.epoch) for step in result.steps if step.kind in ("work", "reduce"))
        assert set(rows.values()) == {1}
    for one, other in zip(few, many, strict=True):
        assert len(other.steps) < len(one.steps)
        blocks = {step.epoch: [] for step in other.steps}  # type: ignore[var-annotated]
        for step in other.steps:
            if step.kind == "work" and step.blocks:
                blocks[step.epoch].append((step.blocks.first, step.blocks.last))
        assert all(sorted(each)[0][0] == 0 for epoch, each in blocks.items() if epoch < 3)
        fetched = [sum(step.fetched for step in each.steps if step.kind == "work") for each in (one, other)]
        assert fetched[1] > 5 * fetched[0]


@functools.cache
def expected(partitions: int, patience: int | None = None, epochs: int = 4) -> Any:
    job = a_job("mlp", TWO_CLASSES, patience, epochs=epochs)
    return models(tuple(serial(job, unit, partitions) for unit in units_of(job)))


@pytest.mark.parametrize(("workers", "partitions", "reduction"), covering((1, 2, 4, 8), (2, 5, 8), REDUCTIONS))
def test_models_depend_on_partitions_and_on_nothing_else(workers: int, partitions: int, reduction: Reduction) -> None:
    job = a_job("mlp", TWO_CLASSES)
    assert models(run(job, workers, partitions, reduction)) == expected(partitions)


def test_other_partitions_are_other_models() -> None:
    assert len({str(expected(partitions)) for partitions in (2, 5, 8)}) == 3


def test_more_partitions_than_blocks_are_as_many_as_blocks() -> None:
    job = a_job("mlp", NUMBER)
    blocks = prepare(job, job.groups[1]).n_blocks
    assert blocks < n_blocks(job), "the schedule cannot know how many rows are left out"
    assert models(run(job, 3, 1000)) == models(tuple(serial(job, unit, blocks) for unit in units_of(job)))


def test_one_partition_is_one_workers_model() -> None:
    job = a_job("mlp", TWO_CLASSES)
    results = run(job, 2, 1)
    assert models(results) == models(tuple(serial(job, unit, 1) for unit in units_of(job)))
    assert not any(result.steps for result in results)


def test_a_config_that_diverges_fails_alone() -> None:
    job = a_job("mlp", NUMBER)
    wild = {**MLP[0], "learning_rate": 1e30, "optimizer": "sgd"}
    calm = [{**MLP[0], "learning_rate": rate, "optimizer": "sgd"} for rate in (1e-3, 1e-4)]
    job = replace(job, configs=(calm[0], wild, calm[1]))
    results = run(job, 2)
    trials = {trial.config: trial for result in results for trial in result.trials}
    assert [trials[config].status for config in range(3)] == ["done", "failed", "done"]
    assert "diverged" in str(trials[1].reason)
    alone = run(replace(job, configs=(calm[0], calm[1])), 2)
    assert models(alone)[0][1][0] == models(results)[0][1][0]


def test_blocks_are_visited_once_an_epoch() -> None:
    job = a_job("mlp", TWO_CLASSES, epochs=3)
    blocks = prepare(job, job.groups[1]).n_blocks
    for result in run(job, 2, 4):
        for epoch in range(3):
            runs = [step.blocks for step in result.steps if step.kind == "work" and step.epoch == epoch]
            assert sorted(each for run in runs if run for each in range(run.first, run.last)) == list(range(blocks))


def received(results: Sequence[UnitResult], kinds: tuple[str, ...], epoch: int) -> Counter[int]:
    """Return the bytes that each worker took from others in steps of some kinds of an epoch."""
    found: Counter[int] = Counter()
    for result in results:
        for step in result.steps:
            if step.kind in kinds and step.epoch == epoch:
                found[step.worker] += step.fetched
    return found


def wide_job() -> tuple[Job, int]:
    """Return a job of one network beside which everything else that moves is nothing, and the bytes of its tensors."""
    job = a_job("mlp", TWO_CLASSES, epochs=4)
    job = replace(job, configs=({**MLP[0], "hidden_layers": (4000,)},))
    job = replace(job, dataset=replace(job.dataset, split=job.dataset.split * 0))
    prepared = prepare(job, job.groups[1])
    state = job.trainer.init(prepared.problem, job.configs)
    return job, sum(state.tensors[name].nbytes for name in ("parameters", "first_moment", "second_moment"))


def alone(job: Job, workers: int, reduction: Reduction, run_on: Any = LocalRuntime) -> tuple[UnitResult, ...]:
    machine = Averaging([Unit(0, 1, (0,), -1, 1.0)], workload(job, workers, Averages(workers, reduction)))
    results: tuple[UnitResult, ...] = run_on().run(job, machine, workers, Watcher(), lambda: False)
    return results


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_two_models_bytes_reach_a_worker_in_a_round_however_many_there_are(workers: int) -> None:
    job, size = wide_job()
    results = alone(job, workers, "scatter")
    for epoch in (1, 2, 3):  # the first model of all comes from one worker
        reduced, gathered = received(results, ("reduce",), epoch - 1), received(results, ("work",), epoch)
        for worker in range(workers):
            share = size * (workers - 1) / workers
            assert reduced[worker] == pytest.approx(share, rel=0.01)
            assert gathered[worker] == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_the_centre_of_a_star_gets_and_gives_a_model_of_every_other_worker(workers: int) -> None:
    job, size = wide_job()
    results = alone(job, workers, "star")
    for epoch in (1, 2, 3):
        reduced, gathered = received(results, ("reduce",), epoch - 1), received(results, ("work",), epoch)
        (centre,) = reduced
        moved = reduced[centre] + sum(gathered.values())
        assert gathered[centre] == 0
        assert moved == pytest.approx(2 * size * (workers - 1), rel=0.01)


def test_a_tree_moves_models_to_neighbours_first() -> None:
    job, size = wide_job()
    results = alone(job, 8, "tree")
    combined, reduced = received(results, ("combine",), 1), received(results, ("reduce",), 1)
    assert sorted(round(value / size) for value in combined.values()) == [1, 2, 2]
    assert round(sum(reduced.values()) / size) in (2, 3)
    assert models(results) == models(alone(job, 8, "scatter"))


def test_the_parts_of_a_mean_are_the_mean_to_the_bit() -> None:
    job = a_job("mlp", SEVERAL_CLASSES)
    learner, prepared = job.trainer, prepare(job, job.groups[1])
    assert isinstance(learner, AveragingLearner)
    begun = learner.init(prepared.problem, job.configs)
    states = [
        learner.train(
            prepared.problem, job.configs, begun, prepared.part(BlockRange(number, number + 1)).train.read(), 0
        )
        for number in range(5)
    ]
    weights = [3.0, 1.5, 0.25, 7.0, 1e-3]
    whole = learner.average([learner.part(state, 0, 1) for state in states], weights)
    for of in (2, 3, 7, 1000):
        parts = [
            learner.average([learner.part(state, number, of) for state in states], weights) for number in range(of)
        ]
        joined = learner.of_parts(parts, begun.done)
        assert joined.tensors.keys() == begun.tensors.keys()
        for name, tensor in joined.tensors.items():
            assert tensor.dtype == begun.tensors[name].dtype
            assert tensor.tobytes() == whole[name].tobytes()
    share = np.array(weights) / sum(weights)
    in_double = sum(each * state.tensors["parameters"].astype(float) for each, state in zip(share, states, strict=True))
    np.testing.assert_allclose(whole["parameters"], in_double, rtol=1e-6, atol=1e-8)
    assert whole["step"].tolist() == [max(state.tensors["step"][0] for state in states)] * 3


def test_the_mean_of_equal_models_is_that_model() -> None:
    job = a_job("mlp", TWO_CLASSES)
    learner, prepared = job.trainer, prepare(job, job.groups[1])
    assert isinstance(learner, AveragingLearner)
    begun = learner.init(prepared.problem, job.configs)
    state = learner.train(prepared.problem, job.configs, begun, prepared.part(BlockRange(0, 1)).train.read(), 0)
    found = learner.average([learner.part(state, 0, 1)] * 7, [1.0, 2.0, 3.0, 0.1, 0.2, 0.3, 1e9])
    assert all(found[name].tobytes() == state.tensors[name].tobytes() for name in learner.averaged)


def test_a_worker_with_several_partitions_takes_a_model_once() -> None:
    job, size = wide_job()
    machine = Averaging([Unit(0, 1, (0,), -1, 1.0)], workload(job, 2, Averages(8)))
    results = LocalRuntime().run(job, machine, 2, Watcher(), lambda: False)
    gathered = received(results, ("work",), 2)
    assert gathered[0] == pytest.approx(size / 2, rel=0.01)
    assert gathered[1] == pytest.approx(size / 2, rel=0.01)


def test_when_the_time_is_up_the_round_under_way_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_job("mlp", TWO_CLASSES, epochs=50)
    asked = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLimits, "expired", lambda _: next(asked) > 40)
        results = run(job, 2)
    trials = [trial for result in results for trial in result.trials]
    assert {trial.status for trial in trials} == {"stopped"}
    assert all(0 < trial.epochs < 50 and trial.artifact is not None for trial in trials)
    for result in results:
        (epochs,) = {trial.epochs for trial in result.trials}
        shorter = serial(changed(job, epochs=epochs), result.unit, 3)
        for mine, theirs in zip(result.trials, shorter.trials, strict=True):
            assert mine.artifact is not None
            assert theirs.artifact is not None
            for name, tensor in theirs.artifact.tensors.items():
                assert mine.artifact.tensors[name].tobytes() == tensor.tobytes()


def test_an_interrupt_ends_a_round() -> None:
    job, watcher = a_job("mlp", TWO_CLASSES, epochs=100_000), Watcher()
    machine = Averaging(units_of(job), workload(job, 2, Averages(3)))
    began = time.monotonic()
    with pytest.raises(StatementInterrupted):
        LocalRuntime().run(job, machine, 2, watcher, lambda: watcher.epochs > 20)
    assert time.monotonic() - began < 60
    assert not [
        each
        for each in threading.enumerate()
        if each.name.startswith("grouplearn-") and each.name != "grouplearn-interrupt"
    ]


def test_a_pack_that_breaks_in_a_round_is_failed_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_job("mlp", TWO_CLASSES)

    def broken(self: Any, *_: Any) -> State:
        raise ValueError("the rows are upside down")

    monkeypatch.setattr(type(job.trainer), "train", broken)
    trials = [trial for result in run(job, 2) for trial in result.trials]
    assert {(trial.status, trial.reason) for trial in trials} == {("failed", "the rows are upside down")}


class Losing:
    """Workers in this process, one of whom is lost whenever a step of some kind ends or is under way, twice at most."""

    def __init__(self, job: Job, operator: Averaging, kind: str, kept: bool, before: bool) -> None:
        self.job, self.operator, self.kind, self.kept, self.before = job, operator, kind, kept, before
        self.benches: dict[int, Worker] = {}
        self.outlined = functools.cache(lambda group, fold: outline_or_failed(job, Unit(0, group, (), fold)))
        self.made: dict[int, tuple[int, Any]] = {}
        self.running: list[tuple[int, Step, list[Any]]] = []  # with what a step has taken
        self.results: dict[int, UnitResult] = {}
        self.lost = 0

    def run(self, workers: int) -> tuple[UnitResult, ...]:
        for _ in range(workers):
            self.join()
        while self.running:
            worker, step, takes = self.running.pop(0)
            if self.before and self.may_lose(step):
                self.lose(worker)
                continue
            answer = self.answer(worker, step, takes)
            self.follow(self.operator.on(answer.event))
            if not self.before and self.may_lose(step) and worker in self.benches:
                self.lose(worker)
        return tuple(self.results[number] for number in sorted(self.results))

    def join(self) -> None:
        worker = self.lost + len(self.benches)
        self.benches[worker] = Worker(self.job)
        self.follow(self.operator.on(WorkerReady(worker)))

    def may_lose(self, step: Step) -> bool:
        return step.kind == self.kind and self.lost < 2 and (step.epoch > 0 or self.kind in ("init", "finish"))

    def lose(self, worker: int) -> None:
        self.lost += 1
        del self.benches[worker]
        self.running = [each for each in self.running if each[0] != worker]
        if not self.kept:
            self.made = {step: each for step, each in self.made.items() if each[0] != worker}
        self.follow(self.operator.on(WorkerLost(worker, self.kept, replaced=True)))
        self.join()

    def answer(self, worker: int, step: Step, takes: list[Any]) -> StepAnswer:
        watch = Watch(worker, 0.0, lambda _: None, lambda: False)
        answer = self.benches[worker].step(step, self.outlined(step.unit.group, step.unit.fold), takes, 0, watch)
        assert not answer.failed, answer.result
        if answer.product is not None:
            self.made[step.id] = (worker, answer.product)
        if answer.result is not None:
            self.results[step.unit.id] = answer.result
        return answer

    def follow(self, orders: Sequence[Instruction]) -> None:
        for order in orders:
            match order:
                case Load(worker, group, blocks):
                    self.benches[worker].load(group, blocks)
                case Release(worker, group):
                    self.benches[worker].release(group)
                case RunStep(worker, step):
                    takes = [taken_of(self.made[each][1], step.piece) for each in step.inputs]
                    self.running.append((worker, step, takes))
                case Discard(steps):
                    for each in steps:
                        del self.made[each]


LOST = [
    *((kind, "scatter", None) for kind in ("init", "work", "reduce", "evaluate", "finish")),
    *((kind, "tree", None) for kind in ("work", "combine", "reduce")),
    *((kind, "star", 2) for kind in ("work", "reduce", "judge", "update", "evaluate", "finish")),
]
LOST_OF_MANY = [
    *((kind, "scatter", None) for kind in ("init", "work", "reduce", "evaluate", "finish")),
    *((kind, "tree", 2) for kind in ("work", "combine", "reduce", "judge", "update")),
]


@pytest.mark.examples(5)
@pytest.mark.parametrize(("lost", "kept", "before"), covering(LOST, (True, False), (True, False)))
def test_workers_lost_in_every_kind_of_step_cost_time_and_no_bit(
    lost: tuple[str, Reduction, int | None], kept: bool, before: bool
) -> None:
    kind, reduction, patience = lost
    job = a_job("mlp", TWO_CLASSES, patience)
    machine = Averaging(units_of(job), workload(job, 3, Averages(5, reduction)))
    losing = Losing(job, machine, kind, kept, before)
    results = losing.run(3)
    assert losing.lost >= 1
    assert models(results) == expected(5, patience)


@pytest.mark.examples(5)
@pytest.mark.parametrize(
    ("form", "lost", "kept"), covering(["gradients of batches", "momentum of batches"], LOST_OF_MANY, (True, False))
)
def test_workers_lost_in_every_kind_of_step_of_many_rounds_cost_no_bit(
    form: str, lost: tuple[str, Reduction, int | None], kept: bool
) -> None:
    kind, reduction, patience = lost
    job = a_job("mlp", TWO_CLASSES, patience, epochs=2)
    machine = Averaging(units_of(job), workload(job, 3, replace(FORMS[form], reduce=reduction)))
    losing = Losing(job, machine, kind, kept, before=False)
    results = losing.run(3)
    assert losing.lost >= 1
    assert models(results) == expected_of("mlp", form, patience)
