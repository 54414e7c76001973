"""A training unit from rows to results: the function that every runtime calls, so that models are the same everywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from grouplearn.data.shard import Totals
from grouplearn.data.split import FINAL
from grouplearn.data.tensors import named_tensors
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.refreshing import ContinuesModels
from grouplearn.models.state import Tensors
from grouplearn.schedule.messages import Unit
from grouplearn.train.fit import fit_pack
from grouplearn.train.gather import train_stacks
from grouplearn.train.job import NOT_BEGUN, GroupFacts, Job, UnitResult, group_of, warm_start
from grouplearn.train.pack import Fit, Pack, Training, cancellable_kernels
from grouplearn.train.pack_turn import in_turn
from grouplearn.train.reasons import or_failed, reason_of
from grouplearn.train.results.checkpoints import Checkpointer
from grouplearn.train.results.evaluation import ALL_ROWS, conclude, evaluate
from grouplearn.train.results.outcome import with_folds
from grouplearn.train.results.trial_states import combine_trials, training_from
from grouplearn.train.results.trials import FAILED, STOPPED, TrialProgress, TrialResult, Trials
from grouplearn.train.rows.prepare import Prepared, prepare
from grouplearn.train.rows.used import GroupFailed


def train_unit(
    job: Job,
    unit: Unit,
    prepared: Prepared | GroupFailed | None,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> UnitResult:
    """Train the configs of ``unit`` on one thread and return their results; a failing config is a failed trial.

    Small groups train side by side in stacks, and what no stack can train trains alone. ``prepared`` is the group of a unit of
    one in its fold, prepared here if None. ``report(n)`` is called for every n further epochs (counted per config). Raises
    only Interrupted, soon after ``cancelled()`` became true. The caller limits the numerical libraries to one thread.
    """
    began = time.perf_counter()
    with cancellable_kernels(cancelled):
        if not unit.stays_whole:
            return _train_alone(job, unit, prepared, report, cancelled)
        together, left = train_stacks(job, unit, report, cancelled)
        alone = (unit.of(unit.groups[place]) for place in left)
        parts = [together, *(_train_alone(job, each, None, report, cancelled) for each in alone)]
    trials = Trials.joined([part.trials for part in parts]).ordered()
    seconds = (time.perf_counter() - began) / max(1, len(trials))  # everything ran at once
    facts = {group: facts for part in parts for group, facts in part.facts.items()}
    return UnitResult(unit, replace(trials, seconds=np.full(len(trials), seconds)), facts)


def failed_unit(unit: Unit, reason: str, seconds: float = 0.0, facts: GroupFacts | None = None) -> UnitResult:
    """Return the result of a unit whose trials all failed for one reason, with what is known of its group's rows."""
    trials = Trials.alike(unit.groups, unit.configs, FAILED, reason, seconds)
    return UnitResult(unit, trials, {} if facts is None else {unit.group: facts})


def _train_alone(
    job: Job,
    unit: Unit,
    prepared: Prepared | GroupFailed | None,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> UnitResult:
    """Train a unit of one group as a pack, its folds one after another."""
    if unit.folds:
        units = (replace(unit, folds=0, fold=fold) for fold in job.split.fits)
        *folds, final = (_train_alone(job, each, None, report, cancelled) for each in units)
        return replace(final, trials=with_folds(final.trials, [each.trials for each in folds]))
    began, expired = time.perf_counter(), job.training.expired()
    if prepared is None and not expired:
        prepared = or_failed(lambda: prepare(job, group_of(job, unit.group), unit.fold))
    if isinstance(prepared, GroupFailed):
        return failed_unit(unit, str(prepared), time.perf_counter() - began, prepared.facts)
    if prepared is None or expired:
        return UnitResult(unit, Trials.alike(unit.groups, unit.configs, STOPPED, NOT_BEGUN))
    ready = prepared
    trained = or_failed(lambda: _train(job, unit, unit.configs, ready, report, cancelled))
    if isinstance(trained, GroupFailed):
        return failed_unit(unit, str(trained), time.perf_counter() - began, prepared.facts)
    trials, reached = trained
    return UnitResult(unit, Trials.of(unit.group, trials, job.measured), {unit.group: prepared.facts}, reached=reached)


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
        return _finish(pack, numbers, fit_pack(pack), started), turn.reached
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
    configs, goal = tuple(job.configs[number] for number in numbers), job.round.goals.get(unit.id)
    if goal is not None:
        counted = job.trainer.declaration.rounds
        configs = tuple({**config, counted: goal} for config in configs) if counted else configs
        prepared = replace(prepared, problem=replace(prepared.problem, epochs=goal))
    carried = [job.round.starts[unit.group, number] for number in numbers if (unit.group, number) in job.round.starts]
    start = training_from(job.trainer, carried) if carried else None
    if start is not None and not job.trainer.resumes(prepared.problem, configs, start.state):
        raise ValueError("what was kept of these trials is not what they train: DROP RUN, and TRAIN again")
    before, again, totals = continued(job, unit.group, prepared.problem, configs)
    warm = warm_start(job, unit.group, prepared.problem, prepared.facts.classes, configs)
    again = again if warm is None else Training(warm, tuple(Fit() for _ in configs))
    if totals is not None:
        train = prepared.train
        prepared = replace(prepared, train=replace(train, whole=totals.followed_by(train.totals)))
    return Pack(
        job.trainer,
        configs,
        prepared,
        job.target.metric,
        job.training.patience,
        report,
        cancelled,
        again if start is None else start,
        job.round.carries,
        job.training.expired,
        metrics=job.measured,
        measures_training_rows=job.split.measures_training_rows(unit.fold),
        state_bytes=job.state_bytes if job.keeps_models(unit.fold) else None,
        before=before,
        keeps_model=job.keeps_models(unit.fold),
        errors=job.errors if unit.fold == FINAL else None,
    )


def continued(
    job: Job, group: int, problem: Problem, configs: tuple[Config, ...]
) -> tuple[Tensors | None, Training | None, Totals | None]:
    """Return what a group goes on from: sums over its earlier rows, or its training so far with the totals of these rows.

    Raises ValueError if it cannot.
    """
    earlier, learner = job.earlier.get(group), job.trainer
    if earlier is None or not earlier.goes_on:
        return None, None, None
    fits = tuple(Fit() for _ in configs)
    if earlier.model is not None:
        if not isinstance(learner, ContinuesModels) or job.continuation is None:
            raise ValueError("its learner does not train finished models further")
        begun = learner.continued(problem, configs, [earlier.model] * len(configs), job.continuation)
        return None, Training(begun, fits), None
    if earlier.state is None:
        return None, None, None
    if learner.declaration.one_pass:
        return named_tensors(earlier.state), None, None
    state = combine_trials([TrialProgress(0, earlier.state)] * len(configs)).state
    numbers = state.tensors.pop(ALL_ROWS, None)
    state = replace(state, done=np.zeros(len(configs), np.bool_))
    if not learner.resumes(problem, configs, state):
        raise ValueError("its state is not that of such a model")
    if numbers is None or numbers.shape[1:] != (4,) or not np.isfinite(numbers).all():
        return None, Training(state, fits), None
    n_rows, *others = numbers[0].tolist()
    return None, Training(state, fits), Totals(int(n_rows), *others)


def _finish(pack: Pack, numbers: Sequence[int], training: Training, started: float) -> tuple[TrialResult, ...]:
    evaluation = evaluate(pack, training)
    seconds = time.perf_counter() - started
    return conclude(pack, numbers, training, evaluation, pack.keeps_model, seconds)
