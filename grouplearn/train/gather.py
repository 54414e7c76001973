"""Small groups side by side: one batched solve for all of them instead of one small solve each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Stack
from grouplearn.data.split import FINAL
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import (
    BoostedStack,
    BoostedStackLearner,
    GatheringLearner,
    HeldOut,
    MomentsLearner,
    Solved,
    SolvedStack,
    StackLearner,
)
from grouplearn.models.state import Artifact
from grouplearn.schedule.messages import Unit
from grouplearn.train.folds import solve_folds
from grouplearn.train.job import GroupFacts, Job, TrialResult, UnitResult
from grouplearn.train.results.outcome import trial_with_folds
from grouplearn.train.results.packed import TEXT, Curves, Models, Packed
from grouplearn.train.rows.prepare import GroupFailed, Prepared
from grouplearn.train.rows.prepare_stack import prepare_folds, prepare_stacks
from grouplearn.train.rows.stack_rows import PreparedFolds, PreparedStack
from grouplearn.train.unit import groups_of, train_unit

Metrics = Mapping[str, FloatArray]
Made = TypeVar("Made")
AnySolved = TypeVar("AnySolved", bound=SolvedStack)


def train_gathered(job: Job, unit: Unit, report: Callable[[int], None], cancelled: Callable[[], bool]) -> UnitResult:
    """Train a unit of several groups: those of one shape in one stack, groups that cannot be stacked one by one.

    Stacks depend only on the plan and the data, so the models are the same on any worker. Raises only Interrupted.
    """
    began = time.perf_counter()
    table = _Table(job, unit)
    if unit.folds:
        _train_folds(job, unit, table, report, cancelled)
        return UnitResult(unit, (), pack=table.finished(time.perf_counter() - began))
    prepared = prepare_stacks(job, groups_of(job, unit.groups), unit.fold, table.configs)
    table.fail(prepared.failed)
    train = _boost if job.trainer.access.in_one_go else _solve
    for stack in prepared.stacks:
        # Groups that broke the stack report their reasons when they train alone.
        broken = train(table, stack, report, cancelled)
        table.train_alone(dict.fromkeys(broken), report, cancelled)
    table.train_alone(prepared.alone, report, cancelled)
    return UnitResult(unit, (), pack=table.finished(time.perf_counter() - began))


def _train_folds(
    job: Job, unit: Unit, table: _Table, report: Callable[[int], None], cancelled: Callable[[], bool]
) -> None:
    """Train every fold and the final models together; unusual groups fold by fold."""
    learner = cast(MomentsLearner, job.trainer)
    prepared, others = prepare_folds(job, groups_of(job, unit.groups))
    if cancelled():
        raise Interrupted
    try:
        if prepared is not None:
            with np.errstate(all="ignore"):
                solved, valid = solve_folds(learner, table.configs, prepared, job.target.measured)
            others = (*others, *table.add_folded(prepared, solved, valid))
            report((1 + unit.folds) * solved.epochs.size)
    except Interrupted:  # raised in a thread that does not check for interrupts itself
        raise
    except Exception:
        others = tuple(range(len(unit.groups)))
    for place in others:
        table.train_folds_alone(place, report, cancelled)


def _solve(
    table: _Table, stack: PreparedStack, report: Callable[[int], None], cancelled: Callable[[], bool]
) -> Sequence[int]:
    """Train a stack in one solve; return the places of groups that could not be trained by it."""
    learner = cast(StackLearner, table.job.trainer)  # the plan puts only groups of these side by side
    solved = _unless_broken(
        learner,
        stack.problem,
        table.configs,
        lambda: learner.solve(stack.problem, table.configs, stack.train, report, cancelled),
    )
    return stack.members if solved is None else table.add(stack, solved)


def _boost(
    table: _Table, stack: PreparedStack, report: Callable[[int], None], cancelled: Callable[[], bool]
) -> Sequence[int]:
    """Boost a stack in one call; return the places of groups that must train alone."""
    learner = cast(BoostedStackLearner, table.job.trainer)
    held_out = HeldOut(stack.valid, table.job.target.metric)
    solved = _unless_broken(
        learner,
        stack.problem,
        table.configs,
        lambda: learner.boost_together(stack.problem, table.configs, stack.train, held_out, cancelled),
    )
    if solved is None:
        return stack.members
    broken = table.add_boosted(stack, solved)
    report(int(solved.epochs[solved.sound].sum()))
    return broken


def _unless_broken(
    learner: GatheringLearner, problem: Problem, configs: Sequence[Config], made: Callable[[], Made]
) -> Made | None:
    """Return the result of ``made`` for a stack, None if its groups must train alone; raises Interrupted."""
    if not learner.gathers(problem, configs):
        return None
    try:
        with np.errstate(all="ignore"):
            return made()
    except Interrupted:
        raise
    except Exception:
        return None


def _parted(
    stack: PreparedStack, solved: AnySolved, kept: npt.NDArray[np.bool_]
) -> tuple[PreparedStack, AnySolved, list[int]]:
    """Return the ``kept`` groups (G,) with their models, and the places of the others."""
    if kept.all():
        return stack, solved, []
    others = [place for place, is_kept in zip(stack.members, kept.tolist(), strict=True) if not is_kept]
    return stack.take(kept), solved.take(kept), others


def _named(artifact: Artifact) -> Mapping[str, npt.NDArray[Any]]:
    """Return a model as named arrays; a text as its bytes."""
    return {TEXT: np.frombuffer(artifact.text, np.uint8)} if artifact.text else artifact.tensors


def _beyond(metrics: Sequence[FloatArray], groups: int) -> npt.NDArray[np.bool_]:
    """Return which groups (G,) have an infinite metric (G, C)."""
    beyond = np.zeros(groups, np.bool_)
    for each in metrics:
        beyond |= np.isinf(each).any(axis=1)
    return beyond


@dataclass
class _Table:
    """The unit's results so far: arrays over its groups and configs, models stack by stack."""

    job: Job
    unit: Unit
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    notes: dict[tuple[int, int], str] = field(default_factory=dict)
    models: list[Models] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = len(self.unit.groups), len(self.unit.configs)
        names = self.job.target.measured
        self.configs = tuple(self.job.configs[number] for number in self.unit.configs)
        self.facts: list[GroupFacts | None] = [None] * shape[0]
        self.epochs = np.zeros(shape, dtype=np.int32)
        self.converged = np.zeros(shape, dtype=np.bool_) if self.job.trainer.access.converges else None
        self.train = (
            {name: np.full(shape, np.nan) for name in names}
            if self.job.split.measures_training_rows(self.unit.fold)
            else {}
        )
        self.valid = {name: np.full(shape, np.nan) for name in names}
        self.lengths = np.zeros(shape, dtype=np.int32)
        #: The objective after each epoch (g, C, epochs) of some groups, and the metric where it was measured.
        self.curves: list[tuple[npt.NDArray[np.intp], FloatArray, FloatArray]] = []

    def fail(self, failed: dict[int, GroupFailed]) -> None:
        """Record groups that cannot be trained."""
        for place, why in failed.items():
            self.facts[place] = why.facts
            self.reasons |= {(place, config): str(why) for config in range(len(self.configs))}

    def add(self, stack: PreparedStack, solved: Solved) -> list[int]:
        """Add and measure a stack's models; return the places of groups with a diverged model."""
        stack, solved, broken = self._measure(stack, solved)
        if not stack.members:
            return broken
        members = np.array(stack.members)
        self.epochs[members] = self.lengths[members] = solved.epochs
        if self.converged is not None:
            self.converged[members] = solved.converged
        self._draw(members, solved)
        if self.unit.fold == FINAL:
            whole = solved.as_multiclass() if stack.problem.among_more else solved
            self.models.append(Models(members, whole.tensors()))
        return broken

    def add_boosted(self, stack: PreparedStack, solved: BoostedStack) -> list[int]:
        """Add a boosted stack's models as ``add`` does; a round is an epoch of its curve."""
        stack, solved, broken = self._measure(stack, solved)
        if not stack.members:
            return broken
        members = np.array(stack.members)
        self.epochs[members], self.lengths[members] = solved.epochs, solved.points
        judged = np.ascontiguousarray(solved.judged.transpose(1, 2, 0))
        self.curves.append((members, np.full(judged.shape, np.nan), judged))
        if self.unit.fold == FINAL:
            gain = Ragged.of_equal(solved.gain.ravel(), solved.epochs.size)
            self.models.append(Models(members, {TEXT: solved.texts}, gain))
        return broken

    def _measure(self, stack: PreparedStack, solved: AnySolved) -> tuple[PreparedStack, AnySolved, list[int]]:
        """Add the metrics of models; return the groups that have them, and the places of the others."""
        stack, solved, broken = _parted(stack, solved, solved.sound)
        measured = self._measured(stack, solved)
        if not self.job.target.label.has_classes:  # an overflow is no model, either
            kept = ~_beyond([each for found in measured for each in found.values()], len(stack.members))
            stack, solved, more = _parted(stack, solved, kept)
            measured = [{name: each[kept] for name, each in found.items()} for found in measured]
            broken += more
        members = np.array(stack.members, dtype=np.intp)
        for place, group_facts in zip(stack.members, stack.facts, strict=True):
            self.facts[place] = group_facts
        for into, found in zip((self.train, self.valid), measured, strict=True):
            for name, values in found.items():
                into[name][members] = values
        return stack, solved, broken

    def _draw(self, members: npt.NDArray[np.intp], solved: Solved) -> None:
        """Store the curves, which end with the finished model's objective."""
        curve = np.ascontiguousarray(solved.curve.transpose(1, 2, 0))
        np.put_along_axis(curve, (solved.epochs - 1)[:, :, None], solved.loss[:, :, None], axis=2)
        self.curves.append((members, curve, np.full(curve.shape, np.nan)))

    def _drawn(self) -> Curves:
        """Return all curves, trial after trial."""
        losses, metrics = np.empty(self.lengths.sum()), np.empty(self.lengths.sum())
        first = (np.cumsum(self.lengths) - self.lengths.ravel()).reshape(self.lengths.shape)
        for members, curve, judged in self.curves:
            epoch = np.arange(curve.shape[2])
            reached = epoch < self.lengths[members][:, :, None]
            places = (first[members][:, :, None] + epoch)[reached]
            losses[places], metrics[places] = curve[reached], judged[reached]
        return Curves(self.lengths, losses, metrics if self.job.trainer.access.in_one_go else None)

    def add_folded(self, prepared: PreparedFolds, solved: Solved, valid: dict[str, FloatArray]) -> list[int]:
        """Add the models of all rows and the folds' mean metrics; return the places of diverged groups."""
        rows = prepared.rows
        stack = PreparedStack(prepared.members, prepared.problem, rows, rows.weight, None, prepared.facts)
        broken = self.add(stack, solved)
        for name, values in valid.items():
            self.valid[name][np.array(prepared.members)] = values
        return broken

    def train_folds_alone(self, place: int, report: Callable[[int], None], cancelled: Callable[[], bool]) -> None:
        """Train a group's folds one after another."""
        unit = replace(self.unit.of(self.unit.groups[place]), folds=0)
        results = [
            train_unit(self.job, replace(unit, fold=fold), None, report, cancelled) for fold in self.job.split.fits
        ]
        self.facts[place] = results[-1].facts
        by_config = zip(*(result.trials for result in results), strict=True)
        self._take(place, [trial_with_folds(trials[-1], trials[:-1]) for trials in by_config])
        self._keep_alone(place, results[-1].trials)

    def _measured(self, stack: PreparedStack, solved: SolvedStack) -> list[Metrics]:
        """Return the metrics of a stack's models on training and on held-out rows, empty if not wanted."""
        learner = cast(GatheringLearner, self.job.trainer)

        def of(rows: Stack) -> Metrics:
            return learner.measure(stack.problem, self.configs, rows, solved, self.job.target.measured)

        with np.errstate(all="ignore"):
            train = of(replace(stack.train, weight=stack.row_weight)) if self.train and stack.members else {}
            return [train, of(stack.valid) if stack.valid is not None and stack.members else {}]

    def train_alone(
        self,
        places: Mapping[int, Prepared | None],
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> None:
        """Train groups one after another, on already prepared rows if there are any."""
        for place, prepared in places.items():
            result = train_unit(self.job, self.unit.of(self.unit.groups[place]), prepared, report, cancelled)
            self.facts[place] = result.facts
            self._take(place, result.trials)
            self._keep_alone(place, result.trials)

    def _take(self, place: int, trials: Sequence[TrialResult]) -> None:
        """Store the results of every config of a group that trained alone."""
        self.lengths[place] = [len(trial.curve) for trial in trials]
        curves, judged = (np.full((1, len(trials), self.lengths[place].max()), np.nan) for _ in range(2))
        for config, trial in enumerate(trials):
            if trial.status == "failed":
                self.reasons[place, config] = trial.reason or "failed"
            elif trial.reason is not None:
                self.notes[place, config] = trial.reason
            self.epochs[place, config] = trial.epochs
            if self.converged is not None:
                self.converged[place, config] = bool(trial.converged)
            curves[0, config, : len(trial.curve)] = [point.train_loss for point in trial.curve]
            judged[0, config, : len(trial.curve)] = [point.valid_metric for point in trial.curve]
            for into, values in ((self.train, trial.train), (self.valid, trial.valid)):
                for name in into:
                    into[name][place, config] = values.get(name, np.nan)
        self.curves.append((np.array([place]), curves, judged))

    def _keep_alone(self, place: int, trials: Sequence[TrialResult]) -> None:
        found = [trial.artifact for trial in trials]
        some = next((artifact for artifact in found if artifact is not None), None)
        if some is None:
            return
        tensors = {
            name: Ragged.of([like[:0] if each is None else _named(each)[name] for each in found])
            for name, like in _named(some).items()
        }
        told = [np.array(trial.importance or (), np.float64) for trial in trials]
        importance = Ragged.of(told) if any(each.size for each in told) else None
        self.models.append(Models(np.array([place]), tensors, importance))

    def finished(self, seconds: float) -> Packed:
        """Return the results; the time is shared equally, as everything ran at once."""
        return Packed(
            groups=self.unit.groups,
            configs=self.unit.configs,
            facts=tuple(self.facts),
            reasons=self.reasons,
            notes=self.notes,
            epochs=self.epochs,
            converged=self.converged,
            seconds=seconds / max(1, self.epochs.size),
            train=self.train,
            valid=self.valid,
            curves=self._drawn(),
            models=tuple(self.models),
        )
