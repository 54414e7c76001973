"""A group that is split between workers gives the bits of the group trained whole."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.runtime_jobs import Watcher, changed, dataset
from helpers.scripted import Scripted, runs
from helpers.split_jobs import BLOCK, CASES, ROWS, assert_same, n_blocks, plan, split_job, whole
from helpers.thorough import THOROUGH

from grouplearn.data.dataset import Group, Item
from grouplearn.failures import TrainingFailed
from grouplearn.learners.linear.least_squares.solver import LeastSquaresSolver
from grouplearn.models.label import NUMBER, TWO_CLASSES
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.worker import outline_or_failed
from grouplearn.schedule.messages import BlockRange, Unit
from grouplearn.train.job import Job, UnitResult
from grouplearn.train.rows.prepare import GroupOutline, encode_blocks, prepare
from grouplearn.train.rows.sources import RowsAtHand

#: Workers that a group is split between.
PARTS = (1, 2, 3, 4, 8)


@functools.cache
def whole_case(case: str) -> list[Any]:
    """Return the results of a case trained whole, which several tests compare with."""
    return whole(CASES[case], plan(CASES[case]))


def split(a_job: Job, units: list[Unit], n_parts: int, shape: Any = "chain", workers: int = 1) -> list[UnitResult]:
    operator = Scripted(a_job, units, runs(n_blocks(a_job), n_parts), shape)
    return list(LocalRuntime().run(a_job, operator, max(workers, operator.workers_needed), Watcher(), lambda: False))


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("case", "n_parts"),
    [
        (case, n_parts)
        for number, case in enumerate(CASES)
        for n_parts in (
            PARTS if THOROUGH else PARTS[number % 5 : number % 5 + 1] if "network" in case else PARTS[number % 2 :: 2]
        )
    ],
)
def test_split_is_whole_bit_by_bit(case: str, n_parts: int) -> None:
    a_job = CASES[case]
    units = plan(a_job)
    known = whole_case(case)
    assert {trial.status for result in known for trial in result.trials} == {"done"}
    results = split(a_job, units, n_parts)
    assert_same(results, known)
    for result in results:
        assert result.steps[-1].kind == "finish"
        assert (result.fetched > 0) == (n_parts > 1)
        assert {step.worker for step in result.steps} == set(range(n_parts))
        assert result.started == result.steps[0].started <= result.ended == result.steps[-1].ended
    assert sum(result.loaded for result in results) > 0


@pytest.mark.parametrize("case", ["linear, folds", "binary, patience", "multinomial"])
def test_partial_sums_may_be_made_at_the_same_time(case: str) -> None:
    a_job = CASES[case]
    assert_same(split(a_job, plan(a_job), 4, "star"), whole_case(case))


@pytest.mark.parametrize("case", ["linear", "binary, balanced"])
def test_sparse_blocks_give_the_same_bits_too(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grouplearn.data.encoders.DENSE_COLUMNS", 2)
    monkeypatch.setattr("grouplearn.data.encoders.is_dense", lambda items, width: False)
    a_job = CASES[case]
    assert not isinstance(prepare(a_job, a_job.groups[1]).train.x, np.ndarray)
    assert_same(split(a_job, plan(a_job), 3), whole(a_job, plan(a_job)))


def test_blocks_of_full_size_give_the_same_bits() -> None:
    rng = np.random.default_rng(1)
    rows = 60_000
    x = rng.normal(size=(rows, 9))
    x[rng.random(rows) < 0.01, 0] = np.nan
    y = x[:, 1] + x[:, 2] * x[:, 3] + rng.normal(size=rows) > 0
    data = dataset(x, y, split=rng.random(rows) < 0.1, classes=("a", "b"))
    a_job = replace(CASES["binary"], dataset=data, groups=(Group(0, 0, (), ()), Group(1, 0, ("all",), ((0, rows),))))
    a_job = changed(
        a_job, items=tuple(Item(f"x{j}", "numeric", j, "zscore") for j in range(9)), epochs=3, block_rows=16_384
    )
    operator = Scripted(a_job, [Unit(0, 1, (0, 1, 2))], runs(4, 3))
    results = list(LocalRuntime().run(a_job, operator, operator.workers_needed, Watcher(), lambda: False))
    assert_same(results, whole(a_job, [Unit(0, 1, (0, 1, 2))]))


def test_early_stopping_is_part_of_the_cases() -> None:
    for case in ("binary, patience", "mlp, binary, patience"):
        trials = whole_case(case)[0].trials
        assert min(len(trial.curve) for trial in trials) < CASES[case].training.epochs, case
        assert any(trial.epochs < len(trial.curve) for trial in trials), case


@pytest.mark.parametrize("case", ["linear", "binary, balanced", "mlp, multinomial, folds"])
def test_blocks_are_encoded_alone_as_in_the_whole_group(case: str) -> None:
    a_job = CASES[case]
    for fold in range(-1, a_job.split.folds):
        prepared = prepare(a_job, a_job.groups[1], fold)
        outline = outline_or_failed(a_job, Unit(0, 1, (0,), fold))
        assert isinstance(outline, GroupOutline)
        assert (outline.facts, outline.problem) == (prepared.facts, prepared.problem)
        assert outline.n_blocks == prepared.n_blocks > 8
        assert outline.totals == prepared.train.totals
        take = RowsAtHand(a_job).take
        for first in range(0, prepared.n_blocks, 3):
            blocks = outline.clipped(BlockRange(first, first + 3))
            alone, there = encode_blocks(a_job, outline, blocks, blocks, take), prepared.part(blocks)
            assert alone.judged.labels()[1].tobytes() == there.judged.labels()[1].tobytes()
            for ours, theirs in [(alone.train, there.train), (alone.valid, there.valid)]:
                if theirs is None:
                    assert ours is None
                    continue
                assert ours is not None
                assert (ours.cuts, ours.first) == (theirs.cuts, theirs.first)
                assert ours.x.tobytes() == theirs.x.tobytes()
                assert (ours.y.tobytes(), ours.weight.tobytes()) == (theirs.y.tobytes(), theirs.weight.tobytes())


def test_blocks_are_cut_before_rows_with_missing_features_are_left_out() -> None:
    a_job = CASES["linear"]
    prepared = prepare(a_job, a_job.groups[1])
    sizes = [block.n_rows for block in prepared.train.blocks()]
    assert prepared.facts.n_train == sum(sizes)
    assert 0 in sizes, "the infinite values empty a block"
    assert prepared.valid is not None
    assert prepared.valid.n_blocks == prepared.train.n_blocks == len(sizes)
    rows = np.r_[40:300, 320:ROWS]
    usable = (a_job.dataset.weight[rows] > 0) & (a_job.dataset.split[rows] == 0)
    assert len(sizes) == -(-int(usable.sum()) // BLOCK)
    complete = np.isfinite(a_job.dataset.numeric[rows][usable]).all(axis=1)
    assert sizes == [int(part.sum()) for part in np.split(complete, range(BLOCK, complete.size, BLOCK))]


def test_a_group_that_cannot_be_trained_fails_with_its_reason_and_the_next_unit_runs() -> None:
    a_job = CASES["binary"]
    label = a_job.dataset.y.copy()
    label[40:] = 1.0
    a_job = replace(a_job, dataset=replace(a_job.dataset, y=label))
    results = split(a_job, plan(a_job), 2)
    assert "the label is b in all of the group's" in str(results[0].trials[0].reason)
    (facts,) = results[0].facts.values()
    assert facts.n_train + facts.n_valid + facts.n_skipped == a_job.groups[results[0].unit.group].n_rows
    assert_same(results, whole(a_job, plan(a_job)))


def test_a_config_that_diverges_fails_alone() -> None:
    configs = (
        {"optimizer": "sgd", "learning_rate": 1e30, "hidden_layers": (4,)},
        {"optimizer": "sgd", "learning_rate": 0.01, "hidden_layers": (4,)},
    )
    a_job = split_job("mlp", NUMBER, configs, epochs=3)
    units = [Unit(0, 1, (0, 1))]
    results = split(a_job, units, 3)
    assert [trial.status for trial in results[0].trials] == ["failed", "done"]
    assert_same(results, whole(a_job, units))


def test_what_breaks_in_a_step_becomes_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(LeastSquaresSolver, "step", fail)
    a_job = CASES["linear"]
    results = split(a_job, [Unit(0, 1, (0, 1, 2))], 2)
    assert {trial.reason for trial in results[0].trials} == {
        "out of memory; hint: fewer feature columns (hash, ordinal), or fewer workers at a time"
    }
    assert results[0].facts


@pytest.mark.parametrize("shape", ["chain", "star"])
def test_a_unit_fails_once_however_many_of_its_steps_break(shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(LeastSquaresSolver, "accumulate", fail)
    a_job, watcher = CASES["linear"], Watcher()
    operator = Scripted(a_job, plan(a_job), runs(n_blocks(a_job), 3), shape)
    results = LocalRuntime().run(a_job, operator, operator.workers_needed, watcher, lambda: False)
    assert watcher.units == [0, 1]
    assert {trial.reason for result in results for trial in result.trials} == {"numerical failure: by zero"}


@pytest.mark.parametrize("learner", ["gbdt", "mlp"])
def test_steps_of_several_workers_at_once_are_refused_between_threads(learner: str) -> None:
    a_job = split_job(learner, TWO_CLASSES, ({},))
    with pytest.raises(TrainingFailed, match="cannot be split between threads") as error:
        split(a_job, [Unit(0, 1, (0,))], 2, "gang")
    assert error.value.hint == "WITH (executor = 'ray')"
    assert_same(split(a_job, [Unit(0, 1, (0,))], 1, "gang"), whole(a_job, [Unit(0, 1, (0,))]))


def test_progress_is_told_per_epoch_and_unit() -> None:
    a_job, watcher = CASES["mlp, regression"], Watcher()
    operator = Scripted(a_job, plan(a_job), runs(n_blocks(a_job), 2))
    results = LocalRuntime().run(a_job, operator, operator.workers_needed, watcher, lambda: False)
    assert watcher.units == [0, 1]
    assert watcher.epochs == sum(trial.epochs for result in results for trial in result.trials)
