"""Coordinate descent on several workers: the bits of the group trained whole, whoever works on it and whoever is lost."""

from __future__ import annotations

import functools
import itertools
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.runtime_jobs import Watcher, changed, models
from helpers.split_jobs import BLOCK, split_job
from helpers.thorough import covering
from test_averaging_runs import Losing

from grouplearn.data.dataset import Group
from grouplearn.data.split import FINAL
from grouplearn.failures import StatementInterrupted
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.worker import Watch, Worker
from grouplearn.schedule.messages import Instruction, Part, RunStep, Step, Unit
from grouplearn.schedule.rounds import descent_progress
from grouplearn.schedule.rounds.coordinate_descent import CoordinateDescent
from grouplearn.schedule.workload import Workload
from grouplearn.train.job import Job, TrainingLimits, UnitResult
from grouplearn.train.results.checkpoints import Checkpointer, Timer
from grouplearn.train.rows.counted import with_training_rows
from grouplearn.train.rows.prepare import prepare
from grouplearn.train.sharded.descent import Takes
from grouplearn.train.sharded.steps import StepAnswer, StepLog, taken_of
from grouplearn.train.unit import train_unit

BY_COORDINATES = {"solver": "coordinate_descent"}
CONFIGS: tuple[dict[str, Any], ...] = ({"l2": 0.1}, {"l1": 2.0, "l2": 1.0}, {"l2": 10.0, "fit_intercept": False})
#: Rounds of an epoch of ``split_job``: four numbers, a category, and its end.
ROUNDS = 6
#: A learner, its task, early stopping and folds.
CASES = {
    "least squares": ("linear_regression", NUMBER, None, 0),
    "least squares, folds": ("linear_regression", NUMBER, None, 2),
    "poisson": ("poisson_regression", NUMBER, None, 0),
    "logistic": ("logistic_regression", TWO_CLASSES, None, 0),
    "logistic, patience": ("logistic_regression", TWO_CLASSES, 1, 0),
    "softmax, patience": ("logistic_regression", SEVERAL_CLASSES, 2, 0),
    "svm": ("linear_svm", SEVERAL_CLASSES, None, 0),
    "greedy": ("logistic_regression", TWO_CLASSES, None, 0),
    "no leaps": ("logistic_regression", TWO_CLASSES, None, 0),
}
#: What else the configurations of a case have.
OPTIONS = {"greedy": {"selection": "greedy"}, "no leaps": {"acceleration": "none"}}


def a_job(case: str = "logistic", epochs: int = 8, **options: Any) -> Job:
    name, label, patience, folds = CASES[case]
    configs = tuple({**BY_COORDINATES, **config, **OPTIONS.get(case, {})} for config in CONFIGS)
    metric = {"linear_svm": "accuracy"}.get(name, "rmse" if label == NUMBER else "log_loss")
    made = split_job(name, label, configs, epochs=epochs, patience=patience, folds=folds, metric=metric, **options)
    if name == "poisson_regression":
        counts = np.clip(np.round(np.abs(made.dataset.y)), 0, 9)
        made = replace(made, dataset=replace(made.dataset, y=counts))
    return made


def units_of(job: Job, groups: Sequence[int] = (1,)) -> list[Unit]:
    packs = ((0,), (1,), (2,)) if "selection" in job.configs[0] else ((0, 1), (2,))
    places = itertools.product(groups, range(-1, job.split.folds), packs)
    return [Unit(number, group, pack, fold, 1.0) for number, (group, fold, pack) in enumerate(places)]


def workload(job: Job, workers: int, parts: int = 2, exact: bool = True, **more: Any) -> Workload:
    rows = tuple(group.n_rows for group in job.groups)
    judged = bool(job.split.folds or job.dataset.split.any())
    sizes: dict[str, Any] = {"evaluate_epochs": judged, "epoch_rounds": ROUNDS, "round_parts": parts}
    work = Workload("rounds", rows, workers, job.training.epochs, BLOCK, **{**sizes, **more})
    return with_training_rows(work, job) if exact else work


def run(job: Job, workers: int, parts: int = 2, **more: Any) -> tuple[UnitResult, ...]:
    machine = CoordinateDescent(units_of(job), workload(job, workers, parts, **more))
    return LocalRuntime().run(job, machine, workers, Watcher(), lambda: False)


def whole(job: Job, groups: Sequence[int] = (1,)) -> Any:
    return models(tuple(train_unit(job, unit, None, lambda _: None, lambda: False) for unit in units_of(job, groups)))


@functools.cache
def expected(case: str, epochs: int = 8) -> Any:
    return whole(a_job(case, epochs))


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("case", "workers"), [(case, workers) for at, case in enumerate(CASES) for workers in ((1, 4), (2, 8))[at % 2]]
)
def test_models_are_those_of_the_whole_group(case: str, workers: int) -> None:
    epochs = 8 if "patience" in case else 4
    results = run(a_job(case, epochs), workers)
    assert models(results) == expected(case, epochs)
    assert {trial.status for result in results for trial in result.trials} == {"done"}
    works = {step.worker for result in results for step in result.steps if step.kind == "work"}
    assert works == (set(range(workers)) if workers > 1 else set())


def test_descent_alone_goes_on_over_any_number_of_epochs() -> None:
    """Weights of earlier epochs are kept for leaps only."""
    assert models(run(a_job("no leaps", 12), 3)) == expected("no leaps", 12)


@pytest.mark.examples(2)
@pytest.mark.parametrize("parts", [1, 3, 50])
@pytest.mark.parametrize("exact", [True, False])
def test_models_depend_neither_on_parts_nor_on_what_a_schedule_knows(parts: int, exact: bool) -> None:
    job = a_job(epochs=4)
    assert models(run(job, 3, parts, exact=exact)) == expected("logistic", 4)
    assert models(run(job, 3, parts, exact=exact, epoch_rounds=1)) == expected("logistic", 4)


@pytest.mark.examples(2)
@pytest.mark.parametrize(("case", "most"), [("logistic", 1), ("softmax, patience", 2), ("greedy", 4)])
def test_steps_of_a_long_epoch_name_no_more_parts_than_those_since_a_state(
    monkeypatch: pytest.MonkeyPatch, case: str, most: int
) -> None:
    """And who takes part takes no state for it."""
    monkeypatch.setattr(descent_progress, "MOST_ROUNDS", most)
    asked: set[tuple[int, Part | None]] = set()
    of = Takes.of

    def noted(self: Takes, number: int, piece: Part | None = None) -> Any:
        asked.add((number, piece))
        return of(self, number, piece)

    monkeypatch.setattr(Takes, "of", noted)
    assert models(run(a_job(case, 5), 3, takeover_rounds=1e9)) == expected(case, 5)
    items, parts = 3, 2
    assert max(number for number, _ in asked) <= most * parts + items
    assert (0, Part(2, 3)) not in asked


def test_progress_is_told_once() -> None:
    """Though two workers make every state."""
    job, watcher = a_job(), Watcher()
    machine = CoordinateDescent(units_of(job), workload(job, 3))
    results = LocalRuntime().run(job, machine, 3, watcher, lambda: False)
    assert watcher.epochs == sum(len(trial.curve) for result in results for trial in result.trials)


def test_more_workers_than_cells() -> None:
    job = a_job()
    cells = prepare(job, job.groups[1]).n_blocks  # one block each
    results = run(job, 3 * cells, takeover_rounds=1e9)
    assert models(results) == expected("logistic")
    assert max(len({step.worker for step in result.steps if step.kind == "work"}) for result in results) <= cells


def test_groups_of_different_sizes_beside_each_other() -> None:
    """Large ones are split, small ones stay whole, and go by rounds where others would wait for them."""
    job = a_job(
        groups=(Group(0, 0, ("a",), ((0, 40),)), Group(1, 0, ("b",), ((40, 560),)), Group(2, 0, ("c",), ((560, 700),)))
    )
    every = whole(job, (0, 1, 2))
    units = [replace(unit, cost=float(cost)) for cost in (1, 9) for unit in units_of(job, (0, 1, 2))]
    for costly, numbers in ((units[: len(units) // 2], (1, 5)), (units[len(units) // 2 :], (2, 3))):
        for workers in numbers:
            machine = CoordinateDescent(costly, workload(job, workers))
            results = LocalRuntime().run(job, machine, workers, Watcher(), lambda: False)
            assert models(results) == every


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of each step, in place of one of all that a worker did of a kind in an epoch."""

    def note(self: StepLog, answer: StepAnswer) -> None:
        self._records[answer.step.unit.id].append(answer.record)

    monkeypatch.setattr(StepLog, "_note_round", note)


def test_steps_are_noted_by_worker_kind_and_epoch() -> None:
    """However many rounds an epoch has."""
    for result in run(a_job(epochs=3), 4, takeover_rounds=1e9):
        noted = [(step.kind, step.worker, step.epoch) for step in result.steps if step.kind in ("work", "reduce")]
        assert len(noted) == len(set(noted))
        assert {each for each in noted if each[0] == "work"} == {
            ("work", worker, epoch) for worker in range(4) for epoch in range(3)
        }


@pytest.mark.usefixtures("every_step")
def test_blocks_are_worked_on_once_a_round_and_a_round_has_two_barriers() -> None:
    job = a_job(epochs=3)
    blocks = prepare(job, job.groups[1]).n_blocks
    for result in run(job, 4):
        for epoch in range(3):
            works = [step for step in result.steps if step.kind == "work" and step.epoch == epoch]
            rounds = len(works) // 4
            assert rounds == ROUNDS + 2 * (epoch == 0)  # and the survey, and what the start is worth
            held = sorted(each for step in works if step.blocks for each in range(step.blocks.first, step.blocks.last))
            assert held == sorted([*range(blocks)] * rounds)
            kinds = [
                step.kind for step in result.steps if step.epoch == epoch and step.kind not in ("init", "evaluate")
            ]
            assert kinds.count("reduce") == 2 * rounds
            assert kinds.count("judge") == 4
            assert kinds.count("update") == 2


def straggles(monkeypatch: pytest.MonkeyPatch, worker: int, seconds: float) -> None:
    """Let a worker take so much longer for each block of its work."""
    step_of = Worker.step

    def slow(self: Worker, step: Step, decided: Any, takes: Any, fetched: int, watch: Watch) -> StepAnswer:
        if step.kind == "work" and watch.worker == worker and step.blocks:
            time.sleep(seconds * len(step.blocks))
        return step_of(self, step, decided, takes, fetched, watch)

    monkeypatch.setattr(Worker, "step", slow)


@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize("takeover", [0.0, 3.0])
def test_what_a_straggler_has_not_begun_is_taken_over_with_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, takeover: float
) -> None:
    straggles(monkeypatch, 0, 0.004)
    job = a_job(epochs=4)
    results = run(job, 3, work_items=4, takeover_rounds=takeover)
    assert models(results) == expected("logistic", 4)
    blocks = prepare(job, job.groups[1]).n_blocks
    for result in results:
        works = [step for step in result.steps if step.kind == "work"]
        of_straggler = sum(len(step.blocks) for step in works if step.worker == 0 and step.blocks)
        assert of_straggler < 0.9 * sum(len(step.blocks) for step in works if step.blocks) / 3
        held = sorted(each for step in works if step.blocks for each in range(step.blocks.first, step.blocks.last))
        assert held == sorted([*range(blocks)] * (len(works) // 12))


def test_who_took_blocks_over_is_noted_with_these_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    straggles(monkeypatch, 0, 0.01)
    done: dict[tuple[int, int, int], set[int]] = {}
    note = StepLog._note_round

    def noted(self: StepLog, answer: StepAnswer) -> None:
        record = answer.record
        if record.kind == "work" and record.blocks:
            key = answer.step.unit.id, record.worker, record.epoch
            done.setdefault(key, set()).update(range(record.blocks.first, record.blocks.last))
        note(self, answer)

    monkeypatch.setattr(StepLog, "_note_round", noted)
    for result in run(a_job(epochs=3), 3, work_items=4):
        found: dict[tuple[int, int, int], set[int]] = {}
        for step in result.steps:
            if step.kind == "work" and step.blocks:
                key = result.unit.id, step.worker, step.epoch
                found.setdefault(key, set()).update(range(step.blocks.first, step.blocks.last))
        assert found == {key: blocks for key, blocks in done.items() if key[0] == result.unit.id}


@pytest.mark.usefixtures("every_step")
def test_a_state_moves_to_nobody_who_took_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what an update makes, workers take the news and not the state, and of parts those of the last round alone."""
    asked: list[tuple[int, Part | None]] = []
    of = Takes.of

    def noted(self: Takes, number: int, piece: Part | None = None) -> Any:
        asked.append((number, piece))
        return of(self, number, piece)

    monkeypatch.setattr(Takes, "of", noted)
    job = a_job(epochs=3)
    machine = CoordinateDescent(units_of(job)[:1], workload(job, 4, 1))
    (result,) = LocalRuntime().run(job, machine, 4, Watcher(), lambda: False)
    assert asked.count((0, Part(0, 3))) > 0
    assert (0, Part(2, 3)) not in asked
    rounds = sum(step.kind == "reduce" for step in result.steps)
    parts = [number for number, piece in asked if number and piece is None]
    judges_and_evaluations = 4 * (3 * 2 + 1)
    ends = 2 * 3  # an update tells of the last round's part
    assert len(parts) == 4 * rounds + judges_and_evaluations + ends


def test_a_config_that_diverges_in_the_survey_fails_with_its_reason() -> None:
    job = a_job("least squares")
    numeric = job.dataset.numeric.copy()
    numeric[100, 3] = 1e200
    job = replace(job, dataset=replace(job.dataset, numeric=numeric))
    trials = [trial for result in run(job, 3) for trial in result.trials]
    assert {trial.status for trial in trials} == {"failed"}
    assert {trial.reason for trial in trials} == {reason for _, _, reason, *_ in whole(job)}


def test_when_the_time_is_up_the_epoch_under_way_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_job(epochs=50)
    asked = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLimits, "expired", lambda _: next(asked) > 10)
        results = run(job, 2)
    for result in results:
        (epochs,) = {trial.epochs for trial in result.trials}
        assert 0 < epochs < 50
        assert {trial.status for trial in result.trials} == {"stopped"}
        shorter = whole(changed(job, epochs=epochs))
        found = [each for each in shorter if each[0] in {trial.config for trial in result.trials}]
        assert [each[-1] for each in models((result,))] == [each[-1] for each in found]


def test_an_interrupt_ends_a_round() -> None:
    job, watcher = a_job(epochs=100_000), Watcher()
    job = replace(job, configs=tuple({**config, "tolerance": 1e-300} for config in job.configs))
    machine = CoordinateDescent(units_of(job), workload(job, 2))
    began = time.monotonic()
    with pytest.raises(StatementInterrupted):
        LocalRuntime().run(job, machine, 2, watcher, lambda: watcher.epochs > 8)
    assert time.monotonic() - began < 60
    assert not [
        each
        for each in threading.enumerate()
        if each.name.startswith("grouplearn-") and each.name != "grouplearn-interrupt"
    ]


class LosingRounds(Losing):
    """Workers of whom some are lost, and who take of what was there when a step began what is new to them."""

    def follow(self, orders: Sequence[Instruction]) -> None:
        for order in orders:
            if isinstance(order, RunStep) and order.step.round is not None:
                there = [self.made[each][1] for each in order.step.takes]
                self.running.append((order.worker, order.step, there))
            else:
                super().follow((order,))

    def answer(self, worker: int, step: Step, takes: list[Any]) -> StepAnswer:
        if step.round is None:
            return super().answer(worker, step, takes)
        watch = Watch(worker, 0.0, lambda _: None, lambda: False)
        one = Takes(lambda number, piece: (taken_of(takes[number], piece), 0))
        answer = self.benches[worker].step(step, self.outlined(step.unit.group, step.unit.fold), one, 0, watch)
        assert not answer.failed, answer.result
        if answer.product is not None:
            self.made[step.id] = (worker, answer.product)
        if answer.result is not None:
            self.results[step.unit.id] = answer.result
        return answer


KINDS = ("init", "work", "reduce", "judge", "update", "evaluate", "finish")


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("kind", "kept", "before", "case"),
    covering(KINDS, (True, False), (True, False), ("logistic", "softmax, patience", "greedy")),
)
def test_workers_lost_in_every_kind_of_step_cost_time_and_no_bit(
    case: str, kind: str, kept: bool, before: bool
) -> None:
    job = a_job(case, epochs=4)
    losing = LosingRounds(job, CoordinateDescent(units_of(job), workload(job, 3)), kind, kept, before)
    results = losing.run(3)
    assert losing.lost == 2
    assert models(results) == expected(case, 4)


@pytest.mark.examples(3)
@pytest.mark.parametrize("kind", ["work", "reduce", "update"])
@pytest.mark.parametrize("kept", [True, False])
def test_workers_lost_in_a_long_epoch_cost_its_last_rounds(
    monkeypatch: pytest.MonkeyPatch, kind: str, kept: bool
) -> None:
    monkeypatch.setattr(descent_progress, "MOST_ROUNDS", 2)
    job = a_job(epochs=4)
    losing = LosingRounds(job, CoordinateDescent(units_of(job), workload(job, 3)), kind, kept, before=True)
    assert models(losing.run(3)) == expected("logistic", 4)
    assert losing.lost == 2


@pytest.mark.parametrize("when", range(0, 60, 14))
def test_a_worker_lost_at_any_time_costs_an_epoch_at_most(when: int) -> None:
    """What it made is gone; a state is there, for two workers make each."""
    job = a_job()
    losing = LosingRounds(job, CoordinateDescent(units_of(job)[:1], workload(job, 3)), "", False, before=False)
    losing.run(0)
    for _ in range(3):
        losing.join()
    begun, inits = 0, 0
    while losing.running:
        worker, step, takes = losing.running.pop(0)
        begun += 1
        inits += step.kind == "init"
        if begun == 40 + when:
            losing.lose(worker)
            continue
        losing.follow(losing.operator.on(losing.answer(worker, step, takes).event))
    assert inits == 1
    (result,) = (losing.results[number] for number in losing.results)
    assert models((result,)) == [each for each in expected("logistic") if each[0] in (0, 1)]


def test_a_run_goes_on_from_the_last_round_that_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = changed(a_job(epochs=8), states=str(tmp_path))
    monkeypatch.setattr(Timer, "due", lambda _: True)
    answered = itertools.count()

    class Dying(LosingRounds):
        def answer(self, worker: int, step: Step, takes: list[Any]) -> StepAnswer:
            if next(answered) == 200:
                raise KeyboardInterrupt
            return super().answer(worker, step, takes)

    with pytest.raises(KeyboardInterrupt):
        Dying(job, CoordinateDescent(units_of(job), workload(job, 3)), "", False, before=False).run(3)
    kept = [Checkpointer(str(tmp_path), unit.id, 1, FINAL, unit.configs, Timer()).read() for unit in units_of(job)]
    assert any(each and each.epochs and each.state.tensors["round"][0] for each in kept)
    for workers in (1, 4):
        shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-{workers}")
        results = run(changed(job, states=f"{tmp_path}-{workers}"), workers)
        assert models(results) == expected("logistic")
        if workers > 1:
            assert {max(step.epoch for step in result.steps) for result in results} <= {3, 4, 5, 6}


def test_only_learners_in_rounds_go_by_them() -> None:
    with pytest.raises(ValueError, match="only learners that go by rounds descend by coordinates, not algebraic ones"):
        CoordinateDescent([], Workload("algebraic", (20,), 2, 1, BLOCK))
