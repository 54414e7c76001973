"""A trial that goes on from what it has reached ends where one long run ends; a deadline leaves what there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.runtime_jobs import Watcher, changed, job, models, units

from grouplearn.learners import registry
from grouplearn.models.state import State
from grouplearn.runtime.local import LocalRuntime
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.task_parallel import GroupTaskParallel
from grouplearn.train.job import Job, TrainingLimits, UnitResult
from grouplearn.train.pack import Fit, Training
from grouplearn.train.results.trial_states import combine_trials, extract_trial
from grouplearn.train.results.trials import TrialProgress

CONFIGS: dict[str, tuple[dict[str, Any], ...]] = {
    "mlp": ({"learning_rate": 0.01}, {"learning_rate": 0.1}, {"learning_rate": 0.03}),
    "logistic_regression": ({"l2": 0.1}, {"l2": 10.0, "l1": 1.0}, {"l2": 1.0}),
}


def run(a_job: Job, some: list[Unit]) -> tuple[UnitResult, ...]:
    return LocalRuntime().run(a_job, GroupTaskParallel(some), 1, Watcher(), lambda: False)


def in_rounds(a_job: Job, goals: tuple[int, ...]) -> tuple[UnitResult, ...]:
    """Train every unit in rounds that end at ``goals``, through bytes."""
    starts: dict[tuple[int, int], TrialProgress] = {}
    some = units(a_job)
    for goal in goals:
        of_round = changed(a_job, goals={unit.id: goal for unit in some}, starts=starts, carries=True)
        results = run(of_round, some)
        starts = {(r.unit.group, t.config): t.carried for r in results for t in r.trials if t.carried is not None}
    return results


@pytest.mark.parametrize("learner", CONFIGS)
def test_rounds_of_one_two_and_six_epochs_are_one_run_of_nine(learner: str) -> None:
    a_job = job(learner, CONFIGS[learner], groups=2, epochs=9)
    whole = run(a_job, units(a_job))
    assert models(in_rounds(a_job, (1, 3, 9))) == models(whole)
    assert any(trial.epochs == 9 for result in whole for trial in result.trials)
    assert models(in_rounds(a_job, (1, 3))) != models(whole)


def test_a_network_goes_on_bit_for_bit_in_another_pack() -> None:
    """Its rivals of the first round are gone in the second."""
    a_job = job("mlp", CONFIGS["mlp"], groups=1, epochs=9)
    together = changed(a_job, goals={0: 3}, carries=True)
    first = run(together, [Unit(0, 0, (0, 1, 2))])[0]
    starts = {(0, trial.config): trial.carried for trial in first.trials if trial.carried is not None}
    second = run(changed(a_job, goals={1: 9}, starts=starts), [Unit(1, 0, (1,))])
    assert models(second) == models(run(a_job, [Unit(0, 0, (1,))]))


def test_a_copy_goes_on_from_its_parent_with_its_own_hyperparameters() -> None:
    a_job = job("mlp", ({"learning_rate": 0.01}, {"learning_rate": 0.01}, {"learning_rate": 0.5}), groups=1, epochs=4)
    first = run(changed(a_job, goals={0: 2}, carries=True), [Unit(0, 0, (0,))])[0]
    carried = first.trials[0].carried
    assert carried is not None
    copies = run(changed(a_job, starts={(0, 1): carried, (0, 2): carried}), [Unit(1, 0, (1, 2))])[0].trials
    whole = run(a_job, [Unit(0, 0, (0,))])[0].trials[0]
    assert [trial.epochs for trial in copies] == [4, 4]
    assert copies[0].artifact is not None
    assert whole.artifact is not None
    assert np.array_equal(copies[0].artifact.tensors["weight_0"], whole.artifact.tensors["weight_0"])
    assert copies[0].curve == whole.curve
    assert copies[1].curve[:2] == whole.curve[:2]
    assert copies[1].curve[2:] != whole.curve[2:]


def test_a_config_that_converged_needs_no_further_round() -> None:
    a_job = job(groups=1, epochs=100)
    trials = run(changed(a_job, carries=True), units(a_job))[0].trials
    assert all(trial.status == "done" and trial.epochs < 100 for trial in trials)
    assert all(State.from_bytes(trial.carried.state).done.all() for trial in trials if trial.carried)


def test_tensors_of_all_configs_are_told_from_those_of_each() -> None:
    state = State({"w": np.arange(6.0).reshape(3, 2), "scale": np.array([7.0])}, np.array([False, True, False]))
    parts = [extract_trial(Training(state, (Fit(), Fit(), Fit()), 4), index) for index in (2, 1)]
    together = combine_trials(parts)
    assert together.state.tensors["w"].tolist() == [[4, 5], [2, 3]]
    assert together.state.tensors["scale"][0] == 7.0
    assert together.state.done.tolist() == [False, True]
    assert together.epochs == 4
    with pytest.raises(ValueError, match="cannot be cut"):
        extract_trial(Training(State({"w": np.zeros((2, 3))}, np.zeros(3, dtype=bool)), (Fit(), Fit(), Fit())), 0)
    with pytest.raises(ValueError, match="one epoch"):
        combine_trials([parts[0], replace(parts[1], epochs=5)])


def test_a_deadline_in_the_past_starts_nothing() -> None:
    a_job = job(groups=2, epochs=9, deadline=0.0)
    trials = [trial for result in run(a_job, units(a_job)) for trial in result.trials]
    assert {(trial.status, trial.epochs, trial.usable) for trial in trials} == {("stopped", 0, False)}


class Hurried(TrainingLimits):
    """Limits whose time is up when they were asked ``looks`` times."""

    __slots__ = ("looks",)

    def expired(self) -> bool:
        left = getattr(self, "looks", 4)
        object.__setattr__(self, "looks", left - 1)
        return left <= 0


@pytest.mark.parametrize("learner", ["logistic_regression", "mlp", "gbdt", "linear_regression"])
def test_a_deadline_leaves_what_was_reached(learner: str) -> None:
    of = registry.learner(learner)
    a_job = job(learner, ({},), groups=1, rows=600, epochs=9 if of.declaration.default_epochs else 1)
    if learner == "linear_regression":
        a_job = changed(a_job, label=next(iter(of.declaration.labels)), metric="rmse")
    hurried = Hurried(a_job.training.seed, a_job.training.epochs)
    trial = run(replace(a_job, training=hurried), units(a_job))[0].trials[0]
    assert trial.usable
    if learner == "linear_regression":
        assert (trial.status, trial.epochs) == ("done", 1)
    else:
        assert trial.status == "stopped"
        assert 1 <= trial.epochs < 9
    assert trial.valid
