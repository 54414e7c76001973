"""A training unit from rows to results: the one function that every runtime calls, so that models are the same everywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from grouplearn.data.dataset import Group
from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.base import Artifact, Diverged, Interrupted, State
from grouplearn.runtime.fit import Fit, Pack, diverged, evaluate, evaluate_artifacts, fit_pack
from grouplearn.runtime.job import Job, TrialResult, UnitResult
from grouplearn.runtime.packed import failed_pack
from grouplearn.runtime.prepare import FINAL, GroupFailed, Prepared, prepare
from grouplearn.schedule.messages import Unit

#: A reason is a line in a table: longer texts of libraries are cut.
_REASON_LENGTH = 500


def train_unit(
    job: Job,
    unit: Unit,
    prepared: Prepared | None,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> UnitResult:
    """Train the configs of ``unit`` on one thread and return their results; a failing config is a failed trial.

    ``prepared`` is the unit's group under its fold, prepared here when None. ``report(n)`` is told of every n further
    epochs (times configs). Raises Interrupted soon after ``cancelled()`` became true, and nothing else. The caller limits
    the numerical libraries to one thread.
    """
    started = time.perf_counter()
    try:
        with np.errstate(all="ignore"):  # divergence is told by the numbers, not by warnings
            prepared = prepare(job, group_of(job, unit.group), unit.fold) if prepared is None else prepared
            trials = _train(job, unit, unit.configs, prepared, report, cancelled)
    except Interrupted:
        raise
    except GroupFailed as error:
        return failed_unit(unit, str(error), time.perf_counter() - started)
    except Exception as error:
        return failed_unit(unit, reason_of(error), time.perf_counter() - started)
    return UnitResult(unit, trials, prepared.facts)


def failed_unit(unit: Unit, reason: str, seconds: float = 0.0) -> UnitResult:
    """Return the result of a unit all of whose trials failed for one reason."""
    if unit.others or unit.folds:
        return UnitResult(unit, (), pack=failed_pack(unit, reason, seconds))
    share = seconds / max(1, len(unit.configs))
    return UnitResult(unit, tuple(TrialResult(config, "failed", reason, seconds=share) for config in unit.configs))


def group_of(job: Job, number: int) -> Group:
    """Return the group with id ``number``."""
    if number < len(job.groups) and job.groups[number].id == number:
        return job.groups[number]
    return next(group for group in job.groups if group.id == number)


def reason_of(error: Exception) -> str:
    """Return an exception as a reason that a user understands."""
    text = " ".join(str(error).split())[:_REASON_LENGTH]
    if isinstance(error, MemoryError):
        return "out of memory; hint: fewer feature columns (hash, ordinal), or fewer workers at a time"
    if isinstance(error, Diverged | ValueError):
        return text or type(error).__name__
    if isinstance(error, ArithmeticError):
        return f"numerical failure: {text or type(error).__name__}"
    return f"{type(error).__name__}: {text}"


def _train(
    job: Job,
    unit: Unit,
    numbers: tuple[int, ...],
    prepared: Prepared,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> tuple[TrialResult, ...]:
    """Train the configs ``numbers`` as one pack; if the pack breaks, one by one, so that one config fails alone."""
    configs = tuple(job.configs[number] for number in numbers)
    learner = registry.learner(job.learner)
    pack = Pack(learner, configs, prepared, job.metric, job.patience, report, cancelled)
    started = time.perf_counter()
    try:
        state, fits = fit_pack(pack)
        return finish_pack(pack, numbers, state, fits, unit.fold == FINAL, started)
    except Interrupted:
        raise
    except Exception as error:
        if len(numbers) == 1:
            seconds = time.perf_counter() - started
            return (TrialResult(numbers[0], "failed", reason_of(error), seconds=seconds),)
        alone = (_train(job, unit, (number,), prepared, report, cancelled) for number in numbers)
        return tuple(trial for trials in alone for trial in trials)


def finish_pack(
    pack: Pack, numbers: Sequence[int], state: State, fits: Sequence[Fit], keep_model: bool, started: float
) -> tuple[TrialResult, ...]:
    """Return the trials of a trained pack: models, metrics on training and held-out rows, an equal share of the time."""
    models = tuple(_model(pack, state, fit, index) for index, fit in enumerate(fits))
    rows = pack.prepared.train
    train_rows = Shard(rows.x, rows.y, pack.prepared.row_weight) if keep_model else None
    train, valid = (_metrics(pack, shard, state, models) for shard in (train_rows, pack.prepared.valid))
    seconds = (time.perf_counter() - started) / len(numbers)
    return tuple(
        _trial(pack, fit, model, TrialResult(number, "done", None, fit.epochs, seconds, measured, after), keep_model)
        for number, fit, model, measured, after in zip(numbers, fits, models, train, valid, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Model:
    """The model of one config, or why there is none; ``frozen`` when it is not the pack's final state."""

    artifact: Artifact | None
    reason: str | None = None
    frozen: bool = False


def _model(pack: Pack, state: State, fit: Fit, index: int) -> _Model:
    if fit.diverged:
        return _Model(None, diverged(pack.learner))
    if fit.artifact is not None:
        return _Model(fit.artifact, frozen=True)
    artifact = pack.learner.finalize(pack.prepared.problem, pack.configs, state, index)
    if not all(np.isfinite(tensor).all() for tensor in artifact.tensors.values()):
        return _Model(None, diverged(pack.learner))
    return _Model(artifact)


def _metrics(pack: Pack, shard: Shard | None, state: State, models: Sequence[_Model]) -> list[dict[str, float]]:
    """Return the metrics of each model on the rows of ``shard``; empty for failed trials and without a shard."""
    if shard is None:
        return [{} for _ in models]
    if not any(model.frozen for model in models):
        alive = [index for index, model in enumerate(models) if model.artifact is not None]
        measured = iter(evaluate(pack, shard, state, alive) if alive else ())
    else:
        artifacts = [model.artifact for model in models if model.artifact is not None]
        measured = iter(evaluate_artifacts(pack, shard, artifacts))
    return [next(measured) if model.artifact is not None else {} for model in models]


def _trial(pack: Pack, fit: Fit, model: _Model, measured: TrialResult, keep_model: bool) -> TrialResult:
    """Complete the trial of one config; of a fold only its validation metrics are kept."""
    if model.artifact is None:
        measured = replace(measured, status="failed", reason=model.reason, train={}, valid={})
    if not keep_model:
        return measured
    if model.artifact is None:
        return replace(measured, curve=tuple(fit.curve))
    importance = pack.learner.importance(model.artifact, pack.prepared.problem.n_features)
    return replace(
        measured,
        curve=tuple(fit.curve),
        artifact=model.artifact,
        importance=None if importance is None else tuple(importance.tolist()),
    )
