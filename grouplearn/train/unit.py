"""A training unit from rows to results: the function that every runtime calls, so that models are the same everywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from grouplearn.data.dataset import Group
from grouplearn.data.memory import ran_out
from grouplearn.data.split import FINAL
from grouplearn.learners.contract.control import Diverged, Interrupted
from grouplearn.schedule.messages import Unit
from grouplearn.train.fit import fit_pack
from grouplearn.train.job import NOT_BEGUN, GroupFacts, Job, UnitResult
from grouplearn.train.pack import Pack, Training, kernels_hear
from grouplearn.train.results.checkpoints import Checkpointer
from grouplearn.train.results.evaluation import conclude, evaluate
from grouplearn.train.results.trials import FAILED, STOPPED, TrialResult, Trials
from grouplearn.train.rows.prepare import GroupFailed, Prepared, prepare
from grouplearn.train.trial_states import combine_trials
from grouplearn.train.turns import in_turn

Made = TypeVar("Made")

#: Longest reason of a failure; longer texts of libraries are cut.
_REASON_LENGTH = 500


def train_unit(
    job: Job,
    unit: Unit,
    prepared: Prepared | None,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> UnitResult:
    """Train the configs of ``unit`` on one thread and return their results; a failing config is a failed trial.

    ``prepared`` is the unit's group in its fold, prepared here if None. ``report(n)`` is called for every n further epochs
    (counted per config). Raises only Interrupted, soon after ``cancelled()`` became true. The caller limits the numerical
    libraries to one thread.
    """
    started = time.perf_counter()
    if job.training.expired():
        return UnitResult(unit, Trials.alike(unit.groups, unit.configs, STOPPED, NOT_BEGUN))
    try:
        # Divergence shows in the numbers; warnings are not needed.
        with np.errstate(all="ignore"), kernels_hear(cancelled):
            prepared = prepare(job, group_of(job, unit.group), unit.fold) if prepared is None else prepared
            trials, reached = _train(job, unit, unit.configs, prepared, report, cancelled)
    except Interrupted:
        raise
    except GroupFailed as error:
        return failed_unit(unit, str(error), time.perf_counter() - started, error.facts)
    except Exception as error:
        facts = None if prepared is None else prepared.facts
        return failed_unit(unit, reason_of(error), time.perf_counter() - started, facts)
    found = Trials.of(unit.group, trials, job.measured)
    return UnitResult(unit, found, {unit.group: prepared.facts}, reached=reached)


def failed_unit(unit: Unit, reason: str, seconds: float = 0.0, facts: GroupFacts | None = None) -> UnitResult:
    """Return the result of a unit whose trials all failed for one reason, with what is known of its group's rows."""
    trials = Trials.alike(unit.groups, unit.configs, FAILED, reason, seconds)
    return UnitResult(unit, trials, {} if facts is None else {unit.group: facts})


def group_of(job: Job, number: int) -> Group:
    """Return the group with this id."""
    if number < len(job.groups) and job.groups[number].id == number:
        return job.groups[number]
    return next(group for group in job.groups if group.id == number)


def groups_of(job: Job, numbers: Sequence[int]) -> list[Group]:
    """Return the groups with these ids."""
    found = [job.groups[number] for number in numbers if number < len(job.groups)]
    return found if [group.id for group in found] == [*numbers] else [group_of(job, number) for number in numbers]


def reason_of(error: Exception, features: Sequence[str] = ()) -> str:
    """Return an exception as a reason for users; ``features`` are the names of the feature columns."""
    message = error.about(features) if isinstance(error, Diverged) else str(error)
    text = " ".join(message.split())[:_REASON_LENGTH]
    if ran_out(error):
        return "out of memory; hint: fewer feature columns (hash, ordinal), or fewer workers at a time"
    if isinstance(error, Diverged | ValueError):
        return text or type(error).__name__
    if isinstance(error, ArithmeticError):
        return f"numerical failure: {text or type(error).__name__}"
    return f"{type(error).__name__}: {text}"


def or_failed(made: Callable[[], Made]) -> Made | GroupFailed:
    """Return the result of ``made`` for a group, or the reason for users why it fails; raises Interrupted."""
    try:
        with np.errstate(all="ignore"):
            return made()
    except GroupFailed as error:
        return error
    except Interrupted:
        raise
    except Exception as error:
        return GroupFailed(reason_of(error))


def _train(
    job: Job,
    unit: Unit,
    numbers: tuple[int, ...],
    prepared: Prepared,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> tuple[tuple[TrialResult, ...], bytes | None]:
    """Train the configs ``numbers`` as one pack; if it fails, one by one, so that one config fails alone.

    Return their trials, and what the pack continues from if its turn was over.
    """
    pack = kept(
        pack_of(job, unit, numbers, prepared, report, cancelled), Checkpointer.of(job.training.states, unit, numbers)
    )
    pack, turn = in_turn(pack, unit, job.training)
    started = time.perf_counter()
    try:
        return _finish(pack, numbers, fit_pack(pack), unit.fold == FINAL, started), turn.reached
    except Interrupted:
        raise
    except Exception as error:
        if len(numbers) == 1:
            seconds = time.perf_counter() - started
            reason = reason_of(error, prepared.facts.features)
            return (TrialResult(numbers[0], "failed", reason, seconds=seconds),), None
        alone = (_train(job, unit, (number,), prepared, report, cancelled) for number in numbers)
        return tuple(trial for trials, _ in alone for trial in trials), None


def kept(pack: Pack, checkpointer: Checkpointer) -> Pack:
    """Return the pack resumed from its checkpointer, which also keeps its progress."""
    reached = checkpointer.read()
    if reached is not None and not pack.learner.resumes(pack.prepared.problem, pack.configs, reached.state):
        reached = None
    return replace(pack, start=pack.start if reached is None else reached, keep=checkpointer.keep)


def pack_of(
    job: Job,
    unit: Unit,
    numbers: Sequence[int],
    prepared: Prepared,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> Pack:
    """Return the configs ``numbers`` of a unit as a pack on ``prepared`` rows."""
    configs = tuple(job.configs[number] for number in numbers)
    if unit.id in job.round.goals:
        prepared = replace(prepared, problem=replace(prepared.problem, epochs=job.round.goals[unit.id]))
    carried = [job.round.starts[unit.group, number] for number in numbers if (unit.group, number) in job.round.starts]
    start = combine_trials(carried) if carried else None
    if start is not None and not job.trainer.resumes(prepared.problem, configs, start.state):
        raise ValueError("what was kept of these trials is not what they train: DROP RUN, and TRAIN again")
    return Pack(
        job.trainer,
        configs,
        prepared,
        job.target.metric,
        job.training.patience,
        report,
        cancelled,
        start,
        job.round.carries,
        job.training.expired,
        metrics=job.measured,
        measures_training_rows=job.split.measures_training_rows(unit.fold),
    )


def _finish(
    pack: Pack, numbers: Sequence[int], training: Training, keep_model: bool, started: float
) -> tuple[TrialResult, ...]:
    evaluation = evaluate(pack, training)
    seconds = time.perf_counter() - started
    return conclude(pack, numbers, training, evaluation, keep_model, seconds)
