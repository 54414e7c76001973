"""Checks results from a ledger against their job: units of invalid segments are trained again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.standard_errors import ERRORS, are_packed
from grouplearn.models.state import Artifact
from grouplearn.schedule.messages import BlockRange
from grouplearn.train.job import GroupFacts, Job, UnitResult
from grouplearn.train.results.trials import COLUMNS, KEPT, Models

#: Limits of catalog columns: counts, bytes and rows; and more seconds than any run takes.
_MOST, _MOST_BYTES, _LONGEST = 2**31 - 1, 2**63 - 1, 1e12


def is_sound(job: Job, result: UnitResult) -> bool:
    """Return whether a result belongs to the job's groups, and its models are valid for the learner."""
    unit = result.unit
    if not all(0 <= group < len(job.groups) for group in unit.groups) or unit.fold not in job.split.fits:
        return False
    if any(config < 0 for config in unit.configs):
        return False
    try:
        return _is_of_unit(result) and _counts(result) and all(_fits(job, *model) for model in _models(result))
    except (IndexError, KeyError, ValueError, TypeError):  # arrays differ in length
        return False


def _is_of_unit(result: UnitResult) -> bool:
    """Return whether a result has each trial of its unit exactly once, and facts of no other group."""
    unit, trials = result.unit, result.trials
    wanted = [(group, config) for group in unit.groups for config in unit.configs]
    found = list(zip(trials.group.tolist(), trials.config.tolist(), strict=True))
    places = [place for models in trials.models for place in models.places.tolist()]
    return (
        sorted(found) == sorted(wanted)
        and set(result.facts) <= set(unit.groups)
        and len(set(places)) == len(places)
        and all(0 <= place < len(trials) for place in (*places, *trials.texts, *trials.carried))
        and all(len(each) == len(models.places) for models in trials.models for each in _arrays(models))
        and all(_has_states(models) for models in trials.models)
        and bool((trials.status >= 0).all() and (trials.status < KEPT).all() and (trials.curves.lengths >= 0).all())
        and all(len(getattr(trials, name)) == len(trials) for name in COLUMNS)
        and trials.train.shape == trials.valid.shape == (len(trials), len(trials.names))
        and len(trials.curves.losses) == len(trials.curves.judged) == trials.curves.lengths.sum()
    )


def _arrays(models: Models) -> Iterator[Ragged]:
    """Yield the arrays that models have one of each."""
    yield from models.tensors.values()
    if models.importance is not None:
        yield models.importance


def _has_states(models: Models) -> bool:
    """Return whether models have a state each, if any has."""
    states = models.states
    if states is None:
        return True
    return states.of.shape == models.places.shape and bool(
        ((states.of >= -1) & (states.of < len(states.contents))).all()
    )


def _counts(result: UnitResult) -> bool:
    """Return whether counts and measurements are within the catalog's limits."""
    known, trials = result.facts.values(), result.trials
    times = [result.started, result.ended, *trials.seconds.tolist()]
    counts = [result.unit.id, result.worker, *trials.epochs.tolist(), *trials.converged.tolist()]
    many = [result.loaded, *(each for facts in known for each in (facts.n_train, facts.n_valid, facts.n_skipped))]
    for carried in trials.carried.values():
        counts += [carried.epochs, *(point.epoch for point in carried.curve)]
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


def _ends(blocks: BlockRange | None) -> tuple[int, ...]:
    return (blocks.first, blocks.last) if blocks is not None else ()


def _models(result: UnitResult) -> Iterator[tuple[GroupFacts | None, Artifact]]:
    """Yield the models of a result, with the facts of their group."""
    for models in result.trials.models:
        for at, place in enumerate(models.places.tolist()):
            yield result.facts.get(int(result.trials.group[place])), models.artifact(at)


def _fits(job: Job, facts: GroupFacts | None, artifact: Artifact) -> bool:
    if facts is None:
        return False
    n_classes = len(facts.classes)
    problem = Problem(job.target.label, facts.n_features, n_classes, label_length=job.dataset.label_length)
    of_classes = not job.target.label.scores_classes or n_classes > 1
    tensors = {**artifact.tensors}
    errors = tensors.pop(ERRORS, None) if job.errors is not None else None
    if errors is not None and not are_packed(errors):
        return False
    return of_classes and job.trainer.validation_error(problem, replace(artifact, tensors=tensors)) is None
