"""Small groups side by side: one batched solve for all of them instead of one small solve each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Stack
from grouplearn.data.split import FINAL
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import (
    BoostedStackLearner,
    GatheringLearner,
    HeldOut,
    MomentsLearner,
    SolvedStack,
    StackLearner,
)
from grouplearn.schedule.messages import Unit
from grouplearn.train.folds import solve_folds
from grouplearn.train.job import GroupFacts, Job, UnitResult
from grouplearn.train.results.outcome import with_folds
from grouplearn.train.results.trials import DONE, FAILED, Curves, Models, Trials
from grouplearn.train.rows.prepare import GroupFailed, Prepared
from grouplearn.train.rows.prepare_stack import prepare_folds, prepare_stacks
from grouplearn.train.rows.stack_rows import PreparedStack
from grouplearn.train.unit import groups_of, train_unit

Metrics = Mapping[str, FloatArray]
Made = TypeVar("Made")
AnySolved = TypeVar("AnySolved", bound=SolvedStack)


def train_gathered(job: Job, unit: Unit, report: Callable[[int], None], cancelled: Callable[[], bool]) -> UnitResult:
    """Train a unit of several groups: those of one shape in one stack, groups that cannot be stacked one by one.

    Stacks depend only on the plan and the data, so the models are the same on any worker. Raises only Interrupted.
    """
    began = time.perf_counter()
    gathered = _Gathered(job, unit, report, cancelled)
    if unit.folds:
        _train_folds(gathered)
        return gathered.result(time.perf_counter() - began)
    prepared = prepare_stacks(job, groups_of(job, unit.groups), unit.fold, gathered.configs)
    gathered.fail(prepared.failed)
    for stack in prepared.stacks:
        # Groups that broke the stack report their reasons when they train alone.
        gathered.train_alone(dict.fromkeys(_solve(gathered, stack)))
    gathered.train_alone(prepared.alone)
    return gathered.result(time.perf_counter() - began)


def _train_folds(gathered: _Gathered) -> None:
    """Train every fold and the final models together; unusual groups fold by fold."""
    job, unit = gathered.job, gathered.unit
    prepared, others = prepare_folds(job, groups_of(job, unit.groups))
    if gathered.cancelled():
        raise Interrupted
    try:
        if prepared is not None:
            with np.errstate(all="ignore"):
                solved, valid = solve_folds(cast(MomentsLearner, job.trainer), gathered.configs, prepared, job.measured)
            stack = PreparedStack(
                prepared.members, prepared.problem, prepared.rows, prepared.rows.weight, None, prepared.facts
            )
            others = (*others, *gathered.add(stack, solved, valid))
            gathered.report((1 + unit.folds) * solved.epochs.size)
    except Interrupted:  # raised in a thread that does not check for interrupts itself
        raise
    except Exception:
        others = tuple(range(len(unit.groups)))
    for place in others:
        gathered.train_folds_alone(place)


def _solve(gathered: _Gathered, stack: PreparedStack) -> Sequence[int]:
    """Train a stack in one call; return the places of groups that must train alone."""
    job, learner = gathered.job, gathered.job.trainer
    given = stack.problem, gathered.configs, stack.train

    def made() -> SolvedStack:
        if learner.access.in_one_go:
            held_out = HeldOut(stack.valid, job.target.metric)
            return cast(BoostedStackLearner, learner).boost_together(*given, held_out, gathered.cancelled)
        return cast(StackLearner, learner).solve(*given, gathered.report, gathered.cancelled)

    solved = _unless_broken(cast(GatheringLearner, learner), stack.problem, gathered.configs, made)
    if solved is None:
        return stack.members
    broken = gathered.add(stack, solved)
    if learner.access.in_one_go:
        gathered.report(int(solved.epochs[solved.sound].sum()))
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


def _beyond(metrics: Sequence[FloatArray], groups: int) -> npt.NDArray[np.bool_]:
    """Return which groups (G,) have an infinite metric (G, C)."""
    beyond = np.zeros(groups, np.bool_)
    for each in metrics:
        beyond |= np.isinf(each).any(axis=1)
    return beyond


@dataclass
class _Gathered:
    """The results of a unit so far: trials stack by stack and group by group, and what is known of groups."""

    job: Job
    unit: Unit
    report: Callable[[int], None]
    cancelled: Callable[[], bool]
    trials: list[Trials] = field(default_factory=list)
    facts: dict[int, GroupFacts] = field(default_factory=dict)

    @property
    def configs(self) -> tuple[Config, ...]:
        """The unit's configs."""
        return tuple(self.job.configs[number] for number in self.unit.configs)

    def fail(self, failed: dict[int, GroupFailed]) -> None:
        """Record groups that cannot be trained."""
        for place, why in failed.items():
            group = self.unit.groups[place]
            self.trials.append(Trials.alike([group], self.unit.configs, FAILED, str(why)))
            if why.facts is not None:
                self.facts[group] = why.facts

    def add(self, stack: PreparedStack, solved: SolvedStack, folds: Metrics | None = None) -> list[int]:
        """Add and measure a stack's models; return the places of groups with a diverged model.

        With ``folds`` their validation metrics are these, (G, C) each.
        """
        members = stack.members
        stack, solved, measured, broken = self._measure(stack, solved)
        if not stack.members:
            return broken
        if folds is not None:
            kept = np.isin(members, stack.members)
            measured = [measured[0], {name: each[kept] for name, each in folds.items()}]
        groups, names = [self.unit.groups[place] for place in stack.members], self.job.measured
        self.facts |= dict(zip(groups, stack.facts, strict=True))
        trials = Trials.alike(groups, self.unit.configs, DONE)
        nothing = np.full(len(trials), np.nan)
        train, valid = (
            np.stack([each[name].ravel() if name in each else nothing for name in names], axis=1) for each in measured
        )
        epochs = solved.epochs.ravel().astype(np.int32)
        trials = replace(trials, epochs=epochs, train=train, valid=valid, names=names)
        self.trials.append(self._with_models(trials, stack, solved))
        return broken

    def _with_models(self, trials: Trials, stack: PreparedStack, solved: SolvedStack) -> Trials:
        """Return the trials of a stack with their curves and, of the final fit, their models."""
        lengths, losses, judged = solved.drawn
        some = lengths.ravel() > 0
        last, judged = (np.cumsum(lengths) - 1)[some], judged.copy()
        # Without a metric after each epoch, the curve ends with that of the finished model.
        judged[last] = np.where(
            np.isnan(judged[last]), trials.metric("valid", self.job.target.metric)[some], judged[last]
        )
        if solved.converged is not None:
            trials = replace(trials, converged=solved.converged.ravel().astype(np.int8))
        whole = solved.as_multiclass() if stack.problem.among_more else solved
        models = Models(np.arange(len(trials)), whole.tensors(), whole.importance)
        return replace(
            trials,
            curves=Curves(lengths.ravel().astype(np.int32), losses, judged),
            models=(models,) if self.unit.fold == FINAL else (),
        )

    def _measure(
        self, stack: PreparedStack, solved: AnySolved
    ) -> tuple[PreparedStack, AnySolved, list[Metrics], list[int]]:
        """Return the groups that have models and their metrics on training and held-out rows, and the places of the others."""
        stack, solved, broken = _parted(stack, solved, solved.sound)
        measured = self._measured(stack, solved)
        if not self.job.target.label.has_classes:  # an overflow is no model, either
            kept = ~_beyond([each for found in measured for each in found.values()], len(stack.members))
            stack, solved, more = _parted(stack, solved, kept)
            measured = [{name: each[kept] for name, each in found.items()} for found in measured]
            broken += more
        return stack, solved, measured, broken

    def _measured(self, stack: PreparedStack, solved: SolvedStack) -> list[Metrics]:
        """Return the metrics of a stack's models on training and on held-out rows, empty if not wanted."""
        learner = cast(GatheringLearner, self.job.trainer)
        measures_training_rows = self.job.split.measures_training_rows(self.unit.fold)

        def of(rows: Stack) -> Metrics:
            return learner.measure(stack.problem, self.configs, rows, solved, self.job.measured)

        with np.errstate(all="ignore"):
            train = (
                of(replace(stack.train, weight=stack.row_weight)) if measures_training_rows and stack.members else {}
            )
            return [train, of(stack.valid) if stack.valid is not None and stack.members else {}]

    def train_folds_alone(self, place: int) -> None:
        """Train a group's folds one after another."""
        unit = replace(self.unit.of(self.unit.groups[place]), folds=0)
        *folds, final = (
            train_unit(self.job, replace(unit, fold=fold), None, self.report, self.cancelled)
            for fold in self.job.split.fits
        )
        self.trials.append(with_folds(final.trials, [each.trials for each in folds]))
        self.facts |= final.facts

    def train_alone(self, places: Mapping[int, Prepared | None]) -> None:
        """Train groups one after another, on already prepared rows if there are any."""
        for place, prepared in places.items():
            unit = self.unit.of(self.unit.groups[place])
            result = train_unit(self.job, unit, prepared, self.report, self.cancelled)
            self.trials.append(result.trials)
            self.facts |= result.facts

    def result(self, seconds: float) -> UnitResult:
        """Return the results; the time is shared equally, as everything ran at once."""
        trials = Trials.joined(self.trials).ordered()
        trials = replace(trials, seconds=np.full(len(trials), seconds / max(1, len(trials))))
        return UnitResult(self.unit, trials, self.facts)
