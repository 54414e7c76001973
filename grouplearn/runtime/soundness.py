"""Results read from a ledger, held against the job that they are of: a segment that says something else is trained again."""

from __future__ import annotations

from collections.abc import Iterator

from grouplearn.learners.base import Artifact, Problem, Task
from grouplearn.runtime.job import GroupFacts, Job, UnitResult


def is_sound(job: Job, result: UnitResult) -> bool:
    """Return whether a result is of groups of the job, and its models are such as the learner makes for them."""
    unit = result.unit
    if not all(0 <= group < len(job.groups) for group in unit.groups) or any(config < 0 for config in unit.configs):
        return False
    try:
        return all(_fits(job, facts, artifact) for facts, artifact in _models(job, result))
    except (IndexError, ValueError):  # arrays of a pack that are not as long as each other
        return False


def _models(job: Job, result: UnitResult) -> Iterator[tuple[GroupFacts | None, Artifact]]:
    """Yield the models of a result, with what is known of their group."""
    yield from ((result.facts, trial.artifact) for trial in result.trials if trial.artifact is not None)
    if result.pack is not None:
        for facts, trials in zip(result.pack.facts, result.pack.trials(job.metric), strict=True):
            yield from ((facts, trial.artifact) for trial in trials if trial.artifact is not None)


def _fits(job: Job, facts: GroupFacts | None, artifact: Artifact) -> bool:
    if facts is None:
        return False
    n_classes = len(facts.classes)
    problem = Problem(job.task, len(facts.features), n_classes, label_length=job.label_length)
    of_classes = job.task is not Task.MULTICLASS or n_classes > 1
    return of_classes and job.trainer.flaw(problem, artifact) is None
