"""The end of a unit: every metric of the finished models from sums over blocks, and the resulting trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix
from grouplearn.data.tensors import tensor_bytes
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.optional import HasImportance, JoinsClasses, ProvesConvergence, predicting
from grouplearn.learners.contract.standard_errors import ERRORS, ErrorSums, Estimated, HasStandardErrors
from grouplearn.models.forms.forms import misfit
from grouplearn.models.metrics import metrics
from grouplearn.models.metrics.metrics import MetricSums
from grouplearn.models.state import Artifact, State
from grouplearn.train.block_sums import BlockSums
from grouplearn.train.job import NOT_BEGUN
from grouplearn.train.pack import (
    Fit,
    Pack,
    Scores,
    Training,
    diverged,
    judge_blocks,
    measure,
    pack_scores,
    settle,
    waited_values,
)
from grouplearn.train.results.trial_states import extract_trial, progress_of
from grouplearn.train.results.trials import TrialResult

#: The tensor of a state that has the totals of the rows that it has learned from.
ALL_ROWS = "all_rows"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metric sums of some blocks: of candidate models on training and held-out rows, and of waiting points of curves; ``errors``
    are the sums from which the models' standard errors follow."""

    train: BlockSums[MetricSums] = field(default_factory=BlockSums)
    valid: BlockSums[MetricSums] = field(default_factory=BlockSums)
    waiting: BlockSums[MetricSums] = field(default_factory=BlockSums)
    errors: BlockSums[ErrorSums] = field(default_factory=BlockSums)

    def merged(self, other: Evaluation) -> Evaluation:
        """Return the sums of both sets of blocks."""
        return Evaluation(
            self.train.merged(other.train, metrics.merge),
            self.valid.merged(other.valid, metrics.merge),
            self.waiting.merged(other.waiting, metrics.merge),
            self.errors.merged(other.errors, _both),
        )


def _both(left: ErrorSums, right: ErrorSums) -> ErrorSums:
    return left.merged(right)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A possible model of a config: the best one so far, or the current one."""

    index: int
    frozen: bool


def evaluate(pack: Pack, training: Training) -> Evaluation:
    """Return the metric sums of the pack's blocks."""
    scores = _candidate_scores(pack, training)
    if scores is None:
        return Evaluation()
    prepared = pack.prepared
    nothing: BlockSums[MetricSums] = BlockSums()
    return Evaluation(
        measure(pack, prepared.judged, scores) if pack.measures_training_rows else nothing,
        measure(pack, prepared.valid, scores) if prepared.valid is not None else nothing,
        judge_blocks(pack, training) if _by_artifact(pack) else nothing,
        _error_sums(pack, training.state),
    )


def _error_sums(pack: Pack, state: State) -> BlockSums[ErrorSums]:
    """Return the sums over blocks of training rows from which standard errors follow; none if there are none."""
    sums: BlockSums[ErrorSums] = BlockSums()
    if pack.errors is None:
        return sums
    learner = cast(HasStandardErrors, pack.learner)
    for block in pack.prepared.train.blocks():
        pack.check()
        given = pack.prepared.problem, pack.configs, state
        own = learner.error_sums(*given, block.read(), pack.errors) if block.n_rows else None
        sums = sums.merged(BlockSums.of(block.first, own), _both)
    return sums


def _errors(pack: Pack, training: Training, evaluation: Evaluation) -> list[FloatArray]:
    """Return what is kept of the standard errors of each config, nothing if they have none."""
    if pack.errors is None or all(fit.diverged for fit in training.fits):
        return []
    converged = [_converged(pack, training, index, fit.epochs) for index, fit in enumerate(training.fits)]
    losses = pack.learner.losses(training.state)
    models = Estimated(pack.configs, converged, losses, training.state, pack.before)
    total = evaluation.errors.total(pack.prepared.n_blocks, _both)
    return cast(HasStandardErrors, pack.learner).errors(pack.prepared.problem, models, total, pack.errors)


def conclude(
    pack: Pack, numbers: Sequence[int], training: Training, evaluation: Evaluation, keep_model: bool, seconds: float
) -> tuple[TrialResult, ...]:
    """Return the trials of a trained pack: models, metrics on training and held-out rows, an equal share of the time."""
    settled = settle(pack, training, _waited(pack, training, evaluation))
    places = _places(pack, training, settled)
    train, valid = (_finished(pack, sums) for sums in (evaluation.train, evaluation.valid))
    models = [_model(pack, settled, index) for index in range(len(numbers))]
    alike, trials = _first_alike(models), []
    errors = _errors(pack, training, evaluation) if keep_model else []
    for index, (number, fit) in enumerate(zip(numbers, settled.fits, strict=True)):
        model, place = models[index], places.get(alike[index])
        measured, after = ({} if place is None else _column(finished, place) for finished in (train, valid))
        converged = _converged(pack, training, index, fit.epochs)
        trial = TrialResult(
            number, "done", None, fit.epochs, seconds / len(numbers), measured, after, converged=converged
        )
        trial = _trial(pack, fit, model, trial, keep_model)
        if trial.artifact is not None and errors:
            own = {**trial.artifact.tensors, ERRORS: errors[index]}
            trial = replace(trial, artifact=replace(trial.artifact, tensors=own))
        if trial.artifact is not None:
            trial = replace(trial, state=state_to_keep(pack, training, index, trial.artifact))
        trials.append(_as_far_as_it_came(pack, settled, index, trial))
    return tuple(trials)


def state_to_keep(pack: Pack, training: Training, index: int, artifact: Artifact) -> bytes | None:
    """Return what a config's model can be refreshed from, if it is kept: sums of one pass, or weights and optimizer."""
    if pack.state_bytes is None:
        return None
    if training.sums is not None:
        state = tensor_bytes(training.sums)
    elif pack.learner.access.visits:
        totals = {ALL_ROWS: pack.prepared.train.totals.numbers()[None]}
        tensors = State.from_bytes(extract_trial(training, index).state).tensors
        state = State({**tensors, **totals}, np.zeros(1, np.bool_)).to_bytes()
    else:
        return None
    size = len(artifact.text) + sum(tensor.nbytes for tensor in artifact.tensors.values())
    return state if len(state) <= max(pack.state_bytes, size) else None


def _converged(pack: Pack, training: Training, index: int, epochs: int) -> bool | None:
    """Return whether a config converged; None if unknown, as for a model of an earlier epoch that early stopping kept."""
    learner, state = pack.learner, training.state
    if not learner.access.converges or (pack.patience is not None and epochs < training.epochs):
        return None
    if not state.done[index]:
        return False
    return True if not isinstance(learner, ProvesConvergence) or learner.proves_convergence(state, index) else None


def _as_far_as_it_came(pack: Pack, training: Training, index: int, trial: TrialResult) -> TrialResult:
    """Return an unfinished trial as stopped, with what it continues from, if wanted."""
    if trial.status == "failed":
        return trial
    if not training.state.done[index] and training.epochs < pack.prepared.problem.epochs:
        if not trial.epochs:
            return TrialResult(trial.config, "stopped", NOT_BEGUN, seconds=trial.seconds)
        trial = replace(trial, status="stopped")
    return replace(trial, carried=progress_of(pack.learner, training, index)) if pack.carries else trial


def _by_artifact(pack: Pack) -> bool:
    """Whether models are scored one by one: with early stopping they are of different epochs."""
    return pack.patience is not None and pack.judges and not pack.learner.access.in_one_go


def _candidates(training: Training) -> list[_Candidate]:
    """Until its last point has a metric, a config's model may be the current or the frozen one."""
    found = []
    for index, fit in enumerate(training.fits):
        if fit.artifact is not None:
            found.append(_Candidate(index, frozen=True))
        if (fit.artifact is None or index in training.waiting) and not fit.diverged:
            found.append(_Candidate(index, frozen=False))
    return found


def _candidate_scores(pack: Pack, training: Training) -> Scores | None:
    """Return a function that predicts rows with the candidates, or with all configs; None without candidates."""
    if not _by_artifact(pack):
        alive = not all(fit.diverged for fit in training.fits)
        return pack_scores(pack, training.state, range(len(pack.configs))) if alive else None
    problem, models = pack.prepared.problem, []
    for candidate in _candidates(training):
        frozen = training.fits[candidate.index].artifact if candidate.frozen else None
        present = frozen or pack.learner.finalize(problem, pack.configs, training.state, candidate.index)
        models.append((predicting(pack.learner, pack.configs[candidate.index]), present))

    def scores(x: Matrix) -> FloatArray:
        return np.stack([learner.score(problem.label, model, x) for learner, model in models], axis=1)

    return scores if models else None


def _waited(pack: Pack, training: Training, evaluation: Evaluation) -> list[float]:
    if _by_artifact(pack):
        return waited_values(pack, training, evaluation.waiting)
    finished = _finished(pack, evaluation.valid, pack.metric)
    return [_column(finished, index).get(pack.metric, np.nan) for index in training.waiting]


def _places(pack: Pack, training: Training, settled: Training) -> dict[int, int]:
    """Return the place of each config's model among those that were evaluated."""
    if not _by_artifact(pack):
        return {index: index for index in range(len(pack.configs))}
    at = {candidate: place for place, candidate in enumerate(_candidates(training))}
    places = {}
    for index, (before, after) in enumerate(zip(training.fits, settled.fits, strict=True)):
        still_frozen = after.artifact is not None and after.artifact is before.artifact
        place = at.get(_Candidate(index, still_frozen))
        if place is not None:
            places[index] = place
    return places


def _finished(pack: Pack, sums: BlockSums[MetricSums], *only: str) -> dict[str, FloatArray]:
    if not sums.subtrees:
        return {}
    total = sums.total(pack.prepared.n_blocks, metrics.merge)
    return {} if total is None else pack.family.finish(total, *(only or pack.metrics))


def _column(finished: dict[str, FloatArray], place: int) -> dict[str, float]:
    return {name: float(values[place]) for name, values in finished.items()}


@dataclass(frozen=True, slots=True)
class _Model:
    """The model of one config, or the reason why there is none."""

    artifact: Artifact | None
    reason: str | None = None


def _model(pack: Pack, training: Training, index: int) -> _Model:
    fit = training.fits[index]
    if fit.diverged:
        return _Model(None, diverged(pack.learner))
    if fit.artifact is not None:
        return _Model(fit.artifact)
    try:
        artifact = pack.learner.finalize(pack.prepared.problem, pack.configs, training.state, index)
    except Diverged as error:
        return _Model(None, str(error))
    if not all(np.isfinite(tensor).all() for tensor in artifact.tensors.values()):
        return _Model(None, diverged(pack.learner))
    if wrong := misfit(pack.learner, pack.prepared.problem, artifact):
        return _Model(None, f"{pack.learner.declaration.name} made a model that is not of its form: {wrong}")
    return _Model(artifact)


def _first_alike(models: Sequence[_Model]) -> list[int]:
    """Return the first config with a bitwise equal model: the last bits of scores depend on a model's place."""
    first: dict[object, int] = {}
    return [first.setdefault(_bits(model.artifact) or index, index) for index, model in enumerate(models)]


def _bits(artifact: Artifact | None) -> tuple[object, ...]:
    if artifact is None:
        return ()
    return (artifact.text, *((name, value.tobytes()) for name, value in sorted(artifact.tensors.items())))


def _trial(pack: Pack, fit: Fit, model: _Model, measured: TrialResult, keep_model: bool) -> TrialResult:
    """Return the complete trial of one config; of a fold only its validation metrics are kept."""
    beyond = [name for found in (measured.train, measured.valid) for name, value in found.items() if math.isinf(value)]
    label = pack.prepared.problem.label
    if model.artifact is not None and beyond and not label.has_classes:
        what, scaled = "of distances overflow", "the features, with zscore for example"
        if label.is_given:
            what, scaled = "of the label or of its predictions overflow", "the label down"
        if all(pack.family.named(name).pooled is None for name in beyond):  # a quotient of finite squares, such as r2
            what, scaled = "of the label are too small beside those of its errors", "the label up"
        model = _Model(None, f"the squares {what} ({beyond[0]}); scale {scaled}")
    if model.artifact is None:
        measured = replace(measured, status="failed", reason=model.reason, converged=None, train={}, valid={})
    if not keep_model:
        return measured
    if model.artifact is None:
        return replace(measured, curve=tuple(fit.curve))
    problem = pack.prepared.problem
    learner, artifact = pack.learner, model.artifact
    importance = learner.importance(artifact, problem.n_features) if isinstance(learner, HasImportance) else None
    if problem.among_more and isinstance(learner, JoinsClasses):
        artifact = learner.as_multiclass(artifact)
    return replace(
        measured,
        curve=tuple(fit.curve),
        artifact=artifact,
        importance=None if importance is None else tuple(importance.tolist()),
    )
