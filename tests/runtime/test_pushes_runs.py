"""Models that partitions push to: those of the recorded order of pushes, made in one thread; without staleness averaging's."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from helpers.runtime_jobs import Watcher, models
from helpers.split_jobs import BLOCK
from test_averaging_runs import AVERAGED, Losing, a_job, received, run_as, units_of, visits, wide_job, workload

from grouplearn.failures import StatementInterrupted
from grouplearn.learners.contract.averaging import Names, changed, with_push
from grouplearn.learners.contract.ways import BatchesLearner
from grouplearn.models.label import TWO_CLASSES, Label
from grouplearn.models.metrics.metrics import merge
from grouplearn.models.state import State, Tensors
from grouplearn.runtime.local import LocalRuntime
from grouplearn.schedule.averages import Averages
from grouplearn.schedule.messages import Push, Unit
from grouplearn.schedule.rounds.averaging import rounds_of_epoch
from grouplearn.schedule.rounds.parameter_server import ParameterServer
from grouplearn.schedule.sharded.partition import blocks_of, cut_evenly
from grouplearn.train.job import Job, TrainingLimits, UnitResult
from grouplearn.train.pack import begin, end_epoch, judge_blocks, settle, waited_values
from grouplearn.train.results.evaluation import conclude, evaluate
from grouplearn.train.rows.prepare import prepare
from grouplearn.train.unit import pack_of

WAYS = [(way, min(learner.declaration.labels, key=lambda label: label.name)) for way, learner in AVERAGED.items()]
Orders = dict[int, tuple[Push, ...]]


def server(job: Job, workers: int, averages: Averages, pushes: Orders | None = None) -> ParameterServer:
    work = replace(workload(job, workers, averages), pushes=pushes or {})
    return ParameterServer(units_of(job), work)


def run(job: Job, workers: int, averages: Averages, pushes: Orders | None = None) -> tuple[UnitResult, ...]:
    return LocalRuntime().run(job, server(job, workers, averages, pushes), workers, Watcher(), lambda: False)


def orders_of(results: Sequence[UnitResult]) -> Orders:
    return {result.unit.id: result.pushes for result in results}


def in_order(job: Job, unit: Unit, averages: Averages, pushes: Sequence[Push]) -> UnitResult:
    """Train a unit in one thread, whole models at a time: each push from the model that it says, in their order."""
    prepared, learner = prepare(job, job.groups[1], unit.fold), job.trainer
    assert isinstance(learner, BatchesLearner)
    pack = pack_of(job, unit, unit.configs, prepared, lambda _: None, lambda: False)
    problem, totals, names = prepared.problem, prepared.train.totals, Names(learner.summed(), learner.averaged)
    cuts, work = cut_evenly(prepared.n_blocks, averages.partitions), workload(job, 1, averages)
    planned = cut_evenly(blocks_of(work.shared_rows_of(unit), BLOCK), averages.partitions)
    rounds = rounds_of_epoch(planned, unit, work)
    training = begin(pack)
    started = learner.started(problem, pack.configs, training.state.tensors, totals)
    seen: list[Tensors] = [learner.part(State(dict(started), training.state.done), 0, 1)]
    done = {0: training.state.done}
    clocks: defaultdict[int, int] = defaultdict(int)
    losses: defaultdict[int, list[tuple[float, Any, Any]]] = defaultdict(list)
    judged: defaultdict[int, list[Any]] = defaultdict(list)
    for number, push in enumerate(pushes):
        clock, rows = clocks[push.partition], prepared.part(cuts[push.partition])
        epoch, stretch = divmod(clock, rounds)
        before = State(dict(seen[push.seen]), done[max(each for each in done if each <= push.seen)])
        if not stretch and epoch and pack.judges:
            waits = replace(training, state=before, waiting=tuple(range(len(pack.configs))))
            judged[clock].append(judge_blocks(replace(pack, prepared=rows), waits))
        after, weight, train = before, 0.0, rows.train.read()
        for block, visit in visits(train, epoch, stretch, rounds, pack):
            whole = averages.batches == 0
            visit = visit._replace(begins=visit.begins and not whole)
            after = learner.train_batches(problem, pack.configs, after, block, visit)
            weight += float(block.weight.sum()) * ((visit.stop - visit.start) / block.n_rows)
        weight = train.total_weight() if not averages.batches else weight
        change = changed(learner.part(before, 0, 1), learner.part(after, 0, 1), learner.summed())
        seen.append(with_push(seen[-1], change, train.total_weight() / totals.weight, names))
        losses[clock].append((weight, learner.losses(after), after.done))
        clocks[push.partition] += 1
        over = len(losses[clock]) == len(cuts)
        if not over:
            continue
        if not stretch and epoch and pack.judges:
            sums = judged[clock][0]
            for each in judged[clock][1:]:
                sums = sums.merged(each, merge)
            values = waited_values(pack, replace(training, waiting=tuple(range(len(pack.configs)))), sums)
            training = settle(pack, training, [values[index] for index in training.waiting])
        ended = np.any([training.state.done, *(each for _, _, each in losses[clock])], axis=0)
        training = replace(training, state=State({}, ended))
        if stretch + 1 == rounds:
            means = [
                np.average([each for _, each, _ in notes], axis=0, weights=[each for each, _, _ in notes])
                for notes in (losses[epoch * rounds + each] for each in range(rounds))
            ]
            active = (
                tuple(np.flatnonzero(~done[max(done)]).tolist()) if rounds == 1 else tuple(range(len(pack.configs)))
            )
            training = end_epoch(pack, training, active, np.mean(means, axis=0))
        done[number + 1] = training.state.done
    training = replace(training, state=State(dict(seen[-1]), training.state.done))
    trials = conclude(pack, unit.configs, training, evaluate(pack, training), unit.fold < 0, 0.0)
    return UnitResult(unit, trials, prepared.facts)


def all_in_order(job: Job, averages: Averages, results: Sequence[UnitResult]) -> tuple[UnitResult, ...]:
    return tuple(in_order(job, result.unit, averages, result.pushes) for result in results)


@pytest.mark.examples(3)
@pytest.mark.parametrize("folds", [0, 2])
@pytest.mark.parametrize("batches", [0, 5])
@pytest.mark.parametrize(("way", "label"), WAYS)
def test_models_are_those_of_their_pushes_in_order(way: str, label: Label, batches: int, folds: int) -> None:
    job, averages = a_job(way, label, folds=folds, epochs=3), Averages(3, batches=batches, staleness=2)
    results = run(job, 3, averages)
    assert {trial.status for result in results for trial in result.trials} == {"done"}
    assert same(results, all_in_order(job, averages, results))


def same(ours: Sequence[UnitResult], theirs: Sequence[UnitResult]) -> bool:
    """Whether models and metrics are the same to the bit, and curves but for the last bits of means."""
    for one, other in zip(ours, theirs, strict=True):
        for mine, its in zip(one.trials, other.trials, strict=True):
            assert [point.epoch for point in mine.curve] == [point.epoch for point in its.curve]
            for name in ("train_loss", "valid_metric"):
                curves = [[getattr(point, name) for point in trial.curve] for trial in (mine, its)]
                np.testing.assert_allclose(*curves, rtol=1e-12)
    without = [
        [replace(each, trials=tuple(replace(t, curve=()) for t in each.trials)) for each in all_]
        for all_ in (ours, theirs)
    ]
    return bool(models(tuple(without[0])) == models(tuple(without[1])))


@pytest.mark.examples(3)
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("averages", [Averages(5, staleness=3), Averages(4, batches=6, staleness=1)])
@pytest.mark.parametrize("way", ["mlp", "logistic_regression by sgd"])
def test_a_recorded_order_makes_the_same_bits_on_any_workers(way: str, averages: Averages, workers: int) -> None:
    job = a_job(way, TWO_CLASSES, epochs=3)
    first = run(job, 3, averages)
    again = run(job, workers, averages, orders_of(first))
    assert orders_of(again) == orders_of(first)
    assert models(again) == models(first)


@pytest.mark.examples(3)
@pytest.mark.parametrize(("patience", "folds"), [(None, 0), (1, 0), (None, 2)])
@pytest.mark.parametrize("batches", [0, 5])
@pytest.mark.parametrize(("way", "label"), WAYS)
def test_without_staleness_models_are_those_of_averaging(
    way: str, label: Label, batches: int, patience: int | None, folds: int
) -> None:
    job = a_job(way, label, patience, folds, epochs=3)
    assert models(run(job, 2, Averages(3, batches=batches))) == models(run_as(job, 3, Averages(3, batches=batches)))


def test_pushes_in_step_are_the_mean() -> None:
    """Where all push from one model, what comes of it is averaging's mean but for rounding."""
    job, unit = a_job("mlp", TWO_CLASSES, epochs=2), Unit(0, 1, (0, 1), -1, 1.0)
    learner, prepared = cast(BatchesLearner, job.trainer), prepare(job, job.groups[1])
    pack = pack_of(job, unit, unit.configs, prepared, lambda _: None, lambda: False)
    begun, names = begin(pack).state, Names(learner.summed(), learner.averaged)
    cuts = [prepared.part(cut).train.read() for cut in cut_evenly(prepared.n_blocks, 5)]
    made = [learner.train(prepared.problem, pack.configs, begun, rows, 0) for rows in cuts]
    weights = [rows.total_weight() for rows in cuts]
    mean = learner.average([learner.part(each, 0, 1) for each in made], weights)["parameters"]
    before = found = learner.part(begun, 0, 1)
    for each, weight in zip(made, weights, strict=True):
        change = changed(before, learner.part(each, 0, 1), names.summed)
        found = with_push(found, change, weight / sum(weights), names)
    np.testing.assert_allclose(found["parameters"], mean, rtol=0, atol=1e-6)
    assert np.abs(mean - before["parameters"]).max() > 1e-3
    double = {"w": np.array([[1.0, -2.0, 3e5, 0.7]])}
    afters = [double["w"] * factor for factor in (0.5, 0.0, 2.5)]
    in_double = dict(double)
    for after in afters:
        change = changed(double, {"w": after}, ("w",))
        in_double = with_push(in_double, change, 1 / 3, Names(("w",), ("w",)))
    np.testing.assert_allclose(in_double["w"], np.mean(afters, axis=0), rtol=1e-12)


def test_what_all_push_to_0_is_0() -> None:
    """l1 makes zeros: no rounding is left of a weight that every partition gives up."""
    before = {"w": np.random.default_rng(3).normal(size=(2, 500)), "loss": np.zeros(2)}
    change = changed(before, {"w": np.zeros((2, 500)), "loss": np.ones(2)}, ("w",))
    shares = np.random.default_rng(4).dirichlet(np.ones(9))
    found = dict(before)
    for share in shares:
        found = with_push(found, change, float(share), Names(("w",), ("w",)))
    assert not found["w"].any()
    endless = with_push({"w": np.array([np.inf])}, {"w": np.array([1.0])}, 0.5, Names(("w",), ("w",)))
    assert endless["w"].item() == np.inf, "what has diverged does not look sound again"
    assert found["loss"].tolist() == [1.0, 1.0]


def test_running_means_of_squares_stay_positive_however_old_a_push_is() -> None:
    part, names = {"m": np.array([[1e-9]]), "w": np.array([[1.0]])}, Names(("w",), ("m", "w"))
    found = with_push(part, {"m": np.array([[0.0]]), "w": np.array([[-0.5]])}, 0.5, names)
    assert found["m"].item() == 0.5e-9
    assert found["w"].item() == 0.75


def test_nobody_is_more_clocks_ahead_than_the_staleness() -> None:
    job = a_job("mlp", TWO_CLASSES, epochs=6)
    for staleness in (1, 3):
        for result in run(job, 3, Averages(5, staleness=staleness)):
            clocks = [0] * 5
            for number, push in enumerate(result.pushes):
                seen = [0] * 5
                for each in result.pushes[: push.seen]:
                    seen[each.partition] += 1
                assert push.seen <= number
                assert seen[push.partition] == clocks[push.partition]
                assert min(seen) >= clocks[push.partition] - staleness
                clocks[push.partition] += 1
            assert clocks == [6] * 5


@pytest.mark.examples(2)
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("kind", ["init", "work", "push", "evaluate", "finish"])
@pytest.mark.parametrize("averages", [Averages(5, staleness=2), Averages(3, batches=6, staleness=1)])
def test_workers_lost_in_every_kind_of_step(averages: Averages, kind: str, before: bool, kept: bool) -> None:
    """What was applied is of the model, or everything begins again; an order that is repeated is repeated all the same."""
    job = a_job("mlp", TWO_CLASSES, epochs=3)
    losing = Losing(job, server(job, 3, averages), kind, kept, before)
    results = losing.run(3)
    assert losing.lost >= 1
    told = tuple(replace(result, pushes=losing.results[result.unit.id].pushes) for result in results)
    assert same(told, all_in_order(job, averages, told))
    again = Losing(job, server(job, 2, averages, orders_of(told)), kind, kept, before)
    assert models(again.run(2)) == models(results)
    assert again.lost >= 1


def test_the_pushes_of_an_epoch_are_one_record_of_a_worker() -> None:
    job = a_job("mlp", TWO_CLASSES, epochs=3)
    for result in run(job, 2, Averages(4, batches=1, staleness=1)):
        rows = [(step.kind, step.worker, step.epoch) for step in result.steps if step.kind in ("work", "push")]
        assert len(rows) == len(set(rows))
        assert len(result.pushes) > 4 * 3 * 4


def test_a_push_fetches_parts_of_others_and_a_pull_what_is_new() -> None:
    job, size = wide_job()
    machine = ParameterServer([Unit(0, 1, (0,), -1, 1.0)], workload(job, 4, Averages(4, staleness=2)))
    results = LocalRuntime().run(job, machine, 4, Watcher(), lambda: False)
    moved = sum(sum(received(results, ("work", "push"), epoch).values()) for epoch in range(job.training.epochs))
    clocks = 4 * job.training.epochs
    assert 0.2 * size < moved / clocks < 2.5 * size


def test_one_config_that_diverges_disturbs_no_other() -> None:
    job = a_job("logistic_regression by sgd", TWO_CLASSES, epochs=4)
    wild = {**job.configs[0], "learning_rate": 1e300}
    job = replace(job, configs=(job.configs[0], wild, *job.configs[2:]))
    averages = Averages(3, staleness=2)
    results = run(job, 3, averages)
    for result in results:
        alone = in_order(job, replace(result.unit, configs=result.unit.configs[:1]), averages, result.pushes)
        first, *rest = result.trials
        assert first.status == "done"
        assert first.artifact is not None
        assert alone.trials[0].artifact is not None
        for name, tensor in alone.trials[0].artifact.tensors.items():
            assert first.artifact.tensors[name].tobytes() == tensor.tobytes()
        if 1 in result.unit.configs:
            assert rest[0].status == "failed"
            assert "diverged" in str(rest[0].reason)


def test_when_the_time_is_up_no_further_epoch_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    job, asked = a_job("mlp", TWO_CLASSES, epochs=200), itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLimits, "expired", lambda _: next(asked) > 100)
        results = run(job, 2, Averages(3, staleness=2))
    trials = [trial for result in results for trial in result.trials]
    assert {trial.status for trial in trials} == {"stopped"}
    assert all(0 < trial.epochs < 200 and trial.artifact is not None for trial in trials)


def test_an_interrupt_ends_a_run() -> None:
    job, watcher = a_job("mlp", TWO_CLASSES, epochs=100_000), Watcher()
    began, machine = time.monotonic(), server(job, 2, Averages(3, staleness=2))
    with pytest.raises(StatementInterrupted):
        LocalRuntime().run(job, machine, 2, watcher, lambda: watcher.epochs > 20)
    assert time.monotonic() - began < 60
    assert not [
        each
        for each in threading.enumerate()
        if each.name.startswith("grouplearn-") and each.name != "grouplearn-interrupt"
    ]


def test_a_pack_that_breaks_is_failed_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_job("mlp", TWO_CLASSES)

    def broken(self: Any, *_: Any) -> State:
        raise ValueError("the rows are upside down")

    monkeypatch.setattr(type(job.trainer), "train", broken)
    trials = [trial for result in run(job, 2, Averages(3, staleness=1)) for trial in result.trials]
    assert {(trial.status, trial.reason) for trial in trials} == {("failed", "the rows are upside down")}
