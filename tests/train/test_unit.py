"""A training unit: loops, early stopping, metrics, and failures that stay where they are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest
from helpers.runtime_jobs import changed, dataset, job, one_group
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from grouplearn.data.dataset import Group
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.control import Diverged, Interrupted
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner
from grouplearn.models.label import NUMBER, TWO_CLASSES, Label
from grouplearn.models.state import Artifact, State
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import Job, UnitResult
from grouplearn.train.rows.prepare import prepare
from grouplearn.train.unit import train_unit

RATE = Hyperparameter("learning_rate", "float", 0.1, "step length", "Cauchy 1847", remedy="lower")


class Descent(AlgebraicLearner):
    """Least squares without intercept by gradient descent, one step of ``learning_rate`` per epoch."""

    declaration = Declaration(
        name="descent",
        summary="a learner for tests",
        labels=frozenset({NUMBER}),
        hyperparameters=(RATE,),
        default_epochs=10,
        form="linear",
    )

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        self.check(configs)
        nothing = np.zeros((len(configs), problem.n_features))
        return State({"w": nothing, "loss": np.full(len(configs), np.nan)}, np.zeros(len(configs), dtype=bool))

    def check(self, configs: Sequence[Config]) -> None:
        if any(config["learning_rate"] == 13 for config in configs):
            raise Diverged("thirteen brings bad luck")

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Any) -> Any:
        return (x @ state.tensors["w"].T)[:, :, None]

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Any) -> Any:
        error = block.x @ state.tensors["w"].T - block.y[:, None]
        return {"gradient": error.T @ block.x, "loss": 0.5 * (error**2).sum(axis=0)}

    def merge(self, left: Any, right: Any) -> Any:
        return {name: left[name] + right[name] for name in left}

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Any) -> State:
        rate = np.array([config["learning_rate"] for config in configs], dtype=float) * ~state.done
        return replace(
            state, tensors={"w": state.tensors["w"] - rate[:, None] * sums["gradient"], "loss": sums["loss"]}
        )

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        return Artifact("tensors", {"weights": state.tensors["w"][index : index + 1], "intercept": np.zeros(1)})

    def score(self, label: Label, artifact: Artifact, x: Any) -> Any:
        return x @ artifact.tensors["weights"].T

    def importance(self, artifact: Artifact, n_features: int) -> Any:
        return np.abs(artifact.tensors["weights"][0])


@pytest.fixture
def descent(monkeypatch: pytest.MonkeyPatch) -> type[Descent]:
    monkeypatch.setattr(registry, "LEARNERS", {**registry.LEARNERS, "descent": Descent()})
    return Descent


def train(a_job: Job, fold: int = -1, configs: tuple[int, ...] | None = None) -> UnitResult:
    numbers = tuple(range(len(a_job.configs))) if configs is None else configs
    return train_unit(a_job, Unit(0, 0, numbers, fold), None, lambda epochs: None, lambda: False)


def descent_job(*rates: float, epochs: int = 60, **options: Any) -> Job:
    data = dataset([[1.0], [2.0], [2.0]], [2.0, 4.0, 3.0], split=[0, 0, 1])
    configs = tuple({"learning_rate": rate} for rate in rates)
    return one_group(data, learner="descent", configs=configs, epochs=epochs, **options)


def test_trials_reach_what_scikit_learn_reaches() -> None:
    a_job = job(epochs=300, configs=({"l2": 0.5}, {"l2": 20.0}))
    result, prepared = train(a_job), prepare(a_job, a_job.groups[0])
    assert prepared.valid is not None
    for config, trial in zip(a_job.configs, result.trials, strict=True):
        other = LogisticRegression(C=1 / float(config["l2"] or 0), tol=1e-10, max_iter=1000)  # type: ignore[arg-type]
        other.fit(prepared.train.x, prepared.train.y)
        assert trial.artifact is not None
        assert trial.artifact.tensors["weights"] == pytest.approx(other.coef_, abs=1e-3)
        for shard, metrics in ((prepared.train, trial.train), (prepared.valid, trial.valid)):
            assert metrics["log_loss"] == pytest.approx(log_loss(shard.y, other.predict_proba(shard.x)), abs=1e-4)
        assert trial.curve[-1].valid_metric == trial.valid["log_loss"]
        assert len(trial.curve) == trial.epochs


@pytest.mark.parametrize(
    ("learner", "configs"),
    [
        ("linear_regression", ({"l2": 1.0}, {"l1": 0.1})),
        ("gbdt", ({"num_iterations": 5}, {"num_iterations": 3})),
    ],
)
def test_a_pack_equals_packs_of_one(learner: str, configs: tuple[Config, ...]) -> None:
    a_job = changed(job(learner, configs), label=NUMBER, metric="rmse")
    together = train(a_job).trials
    alone = [train(a_job, configs=(number,)).trials[0] for number in range(2)]
    for one, other in zip(together, alone, strict=True):
        assert (one.config, one.epochs, len(one.curve)) == (other.config, other.epochs, len(other.curve))
        assert one.train == pytest.approx(other.train, rel=1e-12)
        assert one.valid == pytest.approx(other.valid, rel=1e-12)


def test_a_config_that_diverges_fails_alone(descent: type[Descent]) -> None:
    good, wild = train(descent_job(0.1, 100.0, epochs=500)).trials
    assert (good.status, good.epochs) == ("done", 500)
    assert good.artifact is not None
    assert good.artifact.tensors["weights"] == pytest.approx(2.0)
    assert wild.status == "failed"
    hint = "lower learning_rate, or bring the features to one scale, as zscore(...) does"
    assert wild.reason == f"diverged: the objective became infinite; hint: {hint}"
    assert wild.artifact is None


def test_a_config_that_breaks_the_pack_fails_alone(descent: type[Descent]) -> None:
    trials = train(descent_job(0.1, 13.0, 0.2)).trials
    assert [trial.status for trial in trials] == ["done", "failed", "done"]
    assert trials[1].reason == "thirteen brings bad luck"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "out of memory; hint: fewer feature columns (hash, ordinal), or fewer workers at a time"),
        (ValueError("too many\n  leaves"), "too many leaves"),
        (np.linalg.LinAlgError("Singular matrix"), "Singular matrix"),
        (ZeroDivisionError("by zero"), "numerical failure: by zero"),
        (RuntimeError("x" * 999), f"RuntimeError: {'x' * 500}"),
    ],
)
def test_errors_of_learners_become_reasons(
    descent: type[Descent], monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def fail(self: Descent, *_: object) -> None:
        raise error

    monkeypatch.setattr(descent, "step", fail)
    (trial,) = train(descent_job(0.1)).trials
    assert (trial.status, trial.reason) == ("failed", reason)


def test_a_group_that_cannot_be_prepared_fails_all_its_trials() -> None:
    a_job = replace(job(), groups=(Group(0, 0, (), ()),))
    result = train(a_job)
    assert [trial.reason for trial in result.trials] == ["the group has no rows"] * 2
    assert not result.facts


def test_early_stopping_keeps_the_best_epoch(descent: type[Descent]) -> None:
    """The weight grows towards 2 and passes 1.5, where the held-out row (2, 3) is predicted exactly."""
    patient = train(descent_job(0.01, epochs=60, patience=3)).trials[0]
    full = train(descent_job(0.01, epochs=60)).trials[0]
    errors = [point.valid_metric for point in full.curve]
    best = int(np.argmin(errors)) + 1
    assert patient.epochs == best
    assert len(patient.curve) == best + 3
    assert patient.valid["rmse"] == min(errors)
    assert full.epochs == 60
    stopped_there = train(descent_job(0.01, epochs=best)).trials[0]
    assert patient.artifact is not None
    assert stopped_there.artifact is not None
    assert patient.artifact.tensors["weights"] == stopped_there.artifact.tensors["weights"]
    assert patient.train == stopped_there.train


def test_configs_of_a_pack_stop_on_their_own(descent: type[Descent]) -> None:
    slow, fast = train(descent_job(0.01, 0.05, epochs=60, patience=3)).trials
    (alone,) = train(descent_job(0.01, epochs=60, patience=3)).trials
    assert (slow.epochs, slow.curve, slow.valid["rmse"]) == (alone.epochs, alone.curve, alone.valid["rmse"])
    assert fast.epochs < slow.epochs


def test_epochs_of_a_converged_config_are_not_run(descent: type[Descent], monkeypatch: pytest.MonkeyPatch) -> None:
    step = descent.step

    def until_exact(self: Descent, *arguments: Any) -> State:
        state = step(self, *arguments)
        return replace(state, done=state.done | (np.abs(state.tensors["w"][:, 0] - 2) < 1e-6))

    monkeypatch.setattr(descent, "step", until_exact)
    told: list[int] = []
    a_job = descent_job(0.2, 0.1, epochs=1000)
    result = train_unit(a_job, Unit(0, 0, (0, 1)), None, told.append, lambda: False)
    first, second = (trial.epochs for trial in result.trials)
    assert first == 1, "1 / curvature is the exact step"
    assert 1 < second < 1000
    assert sum(told) == first + second
    assert [len(trial.curve) for trial in result.trials] == [first, second]


def test_sums_are_merged_over_blocks_in_order(descent: type[Descent]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    a_job = one_group(dataset(x, x @ [1.0, -2.0]), learner="descent", configs=({"learning_rate": 0.005},), epochs=200)
    whole = train(a_job).trials[0]
    parts = train(replace(a_job, block_rows=7)).trials[0]
    assert whole.artifact is not None
    assert parts.artifact is not None
    assert parts.artifact.tensors["weights"] == pytest.approx(whole.artifact.tensors["weights"], rel=1e-12)
    assert parts.artifact.tensors["weights"][0] == pytest.approx([1.0, -2.0])
    assert parts.train["rmse"] == pytest.approx(whole.train["rmse"], abs=1e-12)


def test_a_fold_keeps_its_validation_metrics_alone() -> None:
    a_job = changed(job(groups=1), folds=2)
    fold = train(a_job, fold=1).trials[0]
    assert set(fold.valid) == {"log_loss", "auc", "accuracy", "f1"}
    assert (fold.train, fold.curve, fold.artifact, fold.importance) == ({}, (), None, None)
    final = train(a_job).trials[0]
    assert final.artifact is not None
    assert (final.valid, bool(final.train)) == ({}, True)


def test_class_weights_change_the_model_and_not_the_metrics() -> None:
    from sklearn.metrics import accuracy_score

    a_job = job(configs=({"l2": 1.0},), groups=1, class_weight={1: 50.0})
    trial, prepared = train(a_job).trials[0], prepare(a_job, a_job.groups[0])
    assert trial.artifact is not None
    scores = registry.learner(a_job.learner).score(a_job.target.label, trial.artifact, prepared.train.x)
    assert (scores > 0.5).mean() > 0.9
    assert trial.train["accuracy"] == pytest.approx(accuracy_score(prepared.train.y, scores[:, 0] > 0.5))


@pytest.mark.parametrize("learner", ["linear_regression", "logistic_regression"])
def test_cancelling_stops_in_the_middle_of_a_pass(learner: str) -> None:
    """True is said to kernels alone: whom they ask hears it."""

    def cancelled() -> bool:
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_name != "ask":
            frame = frame.f_back
        return frame is not None

    label = NUMBER if learner == "linear_regression" else TWO_CLASSES
    x = np.random.default_rng(1).random((40_000, 3))
    a_job = one_group(dataset(x, np.arange(40_000) % 2.0), label)
    with pytest.raises(Interrupted):
        train_unit(a_job, Unit(0, 0, (0,)), None, lambda epochs: None, cancelled)


def test_cancelling_stops_between_blocks_and_epochs(descent: type[Descent]) -> None:
    polls = iter([False] * 5 + [True])
    with pytest.raises(Interrupted):
        train_unit(descent_job(0.1), Unit(0, 0, (0,)), None, lambda epochs: None, lambda: next(polls))
