"""Checks results from a ledger against their job: units of invalid segments are trained again."""

from __future__ import annotations

from collections.abc import Iterator

from grouplearn.learners.contract.problem import Problem
from grouplearn.models.state import Artifact
from grouplearn.schedule.messages import Blocks
from grouplearn.train.job import GroupFacts, Job, UnitResult

#: Limits of catalog columns: counts, bytes and rows; and more seconds than any run takes.
_MOST, _MOST_BYTES, _LONGEST = 2**31 - 1, 2**63 - 1, 1e12


def is_sound(job: Job, result: UnitResult) -> bool:
    """Return whether a result belongs to the job's groups, and its models are valid for the learner."""
    unit = result.unit
    if not all(0 <= group < len(job.groups) for group in unit.groups) or unit.fold not in job.split.fits:
        return False
    if any(config < 0 for config in unit.configs):
        return False
    if not (_is_of_unit(result) and _counts(result)):
        return False
    try:
        return all(_fits(job, facts, artifact) for facts, artifact in _models(job, result))
    except (IndexError, KeyError, ValueError):  # a pack's arrays differ in length
        return False


def _is_of_unit(result: UnitResult) -> bool:
    """Return whether a result has each trial of its unit exactly once."""
    unit, pack = result.unit, result.pack
    if pack is not None:
        counts = all(each.count == len(each.members) * len(pack.configs) for each in pack.models)
        return (pack.groups, pack.configs) == (unit.groups, unit.configs) and counts and not result.trials
    return sorted(trial.config for trial in result.trials) == sorted(unit.configs)


def _counts(result: UnitResult) -> bool:
    """Return whether counts and measurements are within the catalog's limits."""
    pack = result.pack
    known = [facts for facts in (result.facts, *(pack.facts if pack else ())) if facts is not None]
    times = [result.started, result.ended, *([pack.seconds] if pack else [])]
    counts = [result.unit.id, result.worker]
    many = [result.loaded, *(each for facts in known for each in (facts.n_train, facts.n_valid, facts.n_skipped))]
    for trial in result.trials:
        times.append(trial.seconds)
        counts += [trial.epochs, *(point.epoch for point in trial.curve)]
        counts += [trial.carried.epochs, *(point.epoch for point in trial.carried.curve)] if trial.carried else []
    for step in result.steps:
        times += [step.started, step.ended]
        counts += [step.step, step.epoch, step.worker, *_ends(step.blocks)]
        many += [step.fetched, step.loaded]
    for lost in result.lost:
        times += [lost.started, lost.ended]
        counts += [lost.worker, lost.epoch or 0, *_ends(lost.blocks)]
    return (
        all(-1 <= each <= _MOST for each in counts)
        and all(0 <= each <= _MOST_BYTES for each in many)
        and all(abs(each) < _LONGEST for each in times)
    )


def _ends(blocks: Blocks | None) -> tuple[int, ...]:
    return (blocks.first, blocks.last) if blocks is not None else ()


def _models(job: Job, result: UnitResult) -> Iterator[tuple[GroupFacts | None, Artifact]]:
    """Yield the models of a result, with the facts of their group."""
    yield from ((result.facts, trial.artifact) for trial in result.trials if trial.artifact is not None)
    if result.pack is not None:
        for facts, trials in zip(result.pack.facts, result.pack.trials(job.target.metric), strict=True):
            yield from ((facts, trial.artifact) for trial in trials if trial.artifact is not None)


def _fits(job: Job, facts: GroupFacts | None, artifact: Artifact) -> bool:
    if facts is None:
        return False
    n_classes = len(facts.classes)
    problem = Problem(job.target.label, facts.n_features, n_classes, label_length=job.target.label_length)
    of_classes = not job.target.label.scores_classes or n_classes > 1
    return of_classes and job.trainer.flaw(problem, artifact) is None
