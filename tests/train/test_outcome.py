"""Folds merged, the best trial chosen."""

import math
from dataclasses import replace
from typing import Literal

import pytest
from helpers.runtime_jobs import changed, job

from grouplearn.models.metrics.classes import CLASSES
from grouplearn.models.state import Artifact
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import NOT_BEGUN, NOT_VALIDATED, GroupFacts, UnitResult
from grouplearn.train.results.outcome import Outcome, merge, outcome_of
from grouplearn.train.results.trials import TrialResult, Trials

FACTS = GroupFacts((), (0, 1), 10, 0, 0)
MODEL = Artifact("tensors")
NAN = math.nan


def done(config: int, valid: float | None = None, train: float = 0.5, artifact: Artifact | None = None) -> TrialResult:
    metrics = {} if valid is None else {"log_loss": valid}
    return TrialResult(config, "done", None, 3, 1.0, {"log_loss": train}, metrics, artifact=artifact)


def failed(config: int, reason: str = "diverged") -> TrialResult:
    return TrialResult(config, "failed", reason, seconds=1.0)


@pytest.mark.parametrize(
    ("trials", "greater", "best"),
    [
        ([done(0, 0.3), done(1, 0.2), done(2, 0.4)], False, 1),
        ([done(0, 0.3), done(1, 0.2), done(2, 0.4)], True, 2),
        ([done(2, 0.2), done(1, 0.2)], False, 1),
        ([done(0, 0.2 + 1e-12), done(1, 0.2)], False, 0),
        ([done(0, 0.8 - 1e-12), done(1, 0.8)], True, 0),
        ([done(0, 0.2 + 1e-8), done(1, 0.2)], False, 1),
        ([done(0, math.inf), done(1, math.inf)], False, 0),
        ([done(0, NAN), done(1, 9.0)], False, 1),
        ([done(0, train=0.3), done(1, train=0.2)], False, 1),
        ([done(0, NAN, train=0.3), done(1, NAN, train=0.2)], False, 1),
        ([failed(0), done(1, NAN, train=NAN)], False, 1),
        ([failed(0), failed(1)], False, None),
    ],
)
def test_best_config(trials: list[TrialResult], greater: bool, best: int | None) -> None:
    columns = Trials.of(0, trials, ("log_loss",)).ordered()
    metric = replace(CLASSES.named("log_loss"), greater_is_better=greater)
    outcome = outcome_of(job(groups=1).groups, {}, columns, (metric,))
    assert outcome.best.tolist() == [-1 if best is None else best]


def merged(*by_fold: list[TrialResult]) -> Outcome:
    """Folds -1, 0, 1, ... of the only group, the final fit last to arrive."""
    results = [
        UnitResult(
            Unit(number, 0, (), fold=number - 1),
            Trials.of(0, trials, ("log_loss",)),
            {0: FACTS} if number == 0 else {},
        )
        for number, trials in enumerate(by_fold)
    ]
    return merge(changed(job(groups=1), folds=max(2, len(by_fold) - 1)), reversed(results))


def test_validation_metrics_are_means_over_folds_that_have_one() -> None:
    final = [done(0, artifact=MODEL), done(1, artifact=MODEL)]
    outcome = merged(final, [done(0, 0.1), done(1, 0.4)], [done(0, 0.3), done(1, NAN)], [done(0, NAN), done(1, 0.2)])
    assert [trial.valid["log_loss"] for trial in outcome.trials] == pytest.approx([0.2, 0.3])
    assert [trial.artifact for trial in outcome.trials] == [MODEL, MODEL]
    assert [trial.seconds for trial in outcome.trials] == [4.0, 4.0]
    assert (outcome.best.tolist(), outcome.facts) == ([0], (FACTS,))


def test_a_trial_with_a_failed_fold_is_not_validated() -> None:
    final = [done(0, artifact=MODEL), done(1, artifact=MODEL)]
    outcome = merged(final, [done(0, 0.3), done(1, 0.1)], [done(0, 0.3), failed(1)])
    assert (outcome.trials[1].status, outcome.trials[1].valid, outcome.best.tolist()) == ("done", {}, [0])
    assert outcome.trials[1].reason == "not validated: 1 of 2 folds failed; the first: diverged"


def test_a_trial_fails_with_its_final_fit_or_with_all_its_folds() -> None:
    outcome = merged([failed(0), done(1), done(2)], [done(0, 0.1), failed(1), done(2, 0.5)], [done(0, 0.1), failed(1)])
    assert [trial.status for trial in outcome.trials] == ["failed", "failed", "done"]
    assert outcome.trials[1].reason == "all 2 folds failed; the first: diverged"
    assert outcome.best.tolist() == [2]


@pytest.mark.parametrize("final", ["done", "stopped"])
def test_a_model_that_time_left_without_any_fold_says_so(final: Literal["done", "stopped"]) -> None:
    whole = [replace(done(0, artifact=MODEL), status=final, epochs=3)]
    stopped = [TrialResult(0, "stopped", NOT_BEGUN)]
    (trial,) = merged(whole, stopped, stopped).trials
    assert (trial.status, trial.reason, trial.artifact, trial.valid) == ("stopped", NOT_VALIDATED, MODEL, {})


def test_groups_and_configs_in_order_whoever_trained_them() -> None:
    names = ("log_loss",)
    results = [
        UnitResult(Unit(3, 1, (1,)), Trials.of(1, [done(1, 0.1)], names), {1: FACTS}),
        UnitResult(Unit(2, 1, (0,)), Trials.of(1, [done(0, 0.2)], names), {1: FACTS}),
        UnitResult(Unit(0, 0, (0, 1)), Trials.of(0, [failed(0), failed(1)], names)),
    ]
    outcome = merge(job(groups=2), results)
    assert (outcome.groups[0].id, outcome.facts) == (0, (None, FACTS))
    assert list(zip(outcome.trials.group, outcome.trials.config, strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert outcome.best.tolist() == [-1, 1]
