"""Small groups side by side: one batched solve for all of them instead of one small solve each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Stack
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.stacks import (
    BoostedStackLearner,
    GatheringLearner,
    HeldOut,
    MomentsLearner,
    SolvedStack,
    StackLearner,
    SummedStack,
)
from grouplearn.learners.contract.standard_errors import ERRORS, HasStandardErrors
from grouplearn.schedule.messages import Unit
from grouplearn.train.folds import solve_folds
from grouplearn.train.job import GroupFacts, Job, UnitResult, groups_of
from grouplearn.train.reasons import or_failed
from grouplearn.train.results.trials import DONE, FAILED, Curves, Models, States, Trials
from grouplearn.train.rows.prepare_stack import FoldOf, PreparedStack, prepare_folds, prepare_stacks
from grouplearn.train.rows.used import GroupFailed

Metrics = Mapping[str, FloatArray]
AnySolved = TypeVar("AnySolved", bound=SolvedStack)


def train_stacks(
    job: Job, unit: Unit, report: Callable[[int], None], cancelled: Callable[[], bool]
) -> tuple[UnitResult, list[int]]:
    """Train the groups of a unit that can be stacked, those of one shape in one call, and tell which cannot be trained.

    Return their results, and the places of the other groups. Stacks depend only on the plan and the data, so the models are
    the same on any worker. Raises Interrupted.
    """
    trainer, groups = _StackTrainer(job, unit, report, cancelled), groups_of(job, unit.groups)
    if unit.folds:
        prepared, others = prepare_folds(job, groups)
        parts = [trainer.train_folds(*each) for each in prepared]
        return trainer.result(parts, {}), [*others, *(place for part in parts for place in part.broken)]
    found = prepare_stacks(job, groups, unit.fold, trainer.configs)
    parts = [trainer.train(stack) for stack in found.stacks]
    return trainer.result(parts, found.failed), [*found.alone, *(place for part in parts for place in part.broken)]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What became of a stack: its trials, what is known of its groups, and the places of those that must train alone."""

    trials: Trials
    facts: dict[int, GroupFacts]
    broken: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _StackTrainer:
    """Trains stacks of a unit's groups; raises Interrupted only, and leaves groups of a stack that breaks."""

    job: Job
    unit: Unit
    report: Callable[[int], None]
    cancelled: Callable[[], bool]

    @property
    def configs(self) -> tuple[Config, ...]:
        """The unit's configs."""
        return tuple(self.job.configs[number] for number in self.unit.configs)

    def train(self, stack: PreparedStack) -> _Gathered:
        """Train a stack in one call."""
        stack = self._keeping(stack)
        learner, given = self.job.trainer, (stack.problem, self.configs, stack.train)

        def made() -> _Gathered:
            if not learner.access.in_one_go:
                solved = cast(StackLearner, learner).solve(*given, self.report, self.cancelled)
                return self._gathered(stack, solved)
            held_out = HeldOut(stack.valid, self.job.target.metric)
            boosted = cast(BoostedStackLearner, learner).boost_together(*given, held_out, self.cancelled)
            self.report(int(boosted.epochs[boosted.sound].sum()))
            return self._gathered(stack, boosted)

        return self._or_left(stack, made)

    def train_folds(self, stack: PreparedStack, folds: FoldOf) -> _Gathered:
        """Train every fold and the final models in one pass over the rows."""
        stack = self._keeping(stack)

        def made() -> _Gathered:
            learner, wanted = cast(MomentsLearner, self.job.trainer), self.job.measured
            solved, valid = solve_folds(learner, self.configs, stack, folds, wanted)
            found = self._gathered(stack, solved, valid)
            self.report((1 + folds[1]) * solved.epochs.size)
            return found

        return self._or_left(stack, made)

    def _keeping(self, stack: PreparedStack) -> PreparedStack:
        """Return the stack, whose learner keeps the sums over its rows if they are wanted."""
        wanted = self.job.state_bytes is not None and self.job.keeps_models(self.unit.fold)
        kept = self.job.trainer.declaration.one_pass and wanted
        return replace(stack, train=replace(stack.train, keeps_sums=True)) if kept else stack

    def result(self, parts: Sequence[_Gathered], failed: Mapping[int, GroupFailed]) -> UnitResult:
        """Return the results of stacks, and of groups that cannot be trained."""
        trials, facts = (
            [part.trials for part in parts],
            {group: each for part in parts for group, each in part.facts.items()},
        )
        for place, why in failed.items():
            group = self.unit.groups[place]
            trials.append(Trials.alike([group], self.unit.configs, FAILED, str(why)))
            facts |= {} if why.facts is None else {group: why.facts}
        return UnitResult(self.unit, Trials.joined(trials), facts)

    def _or_left(self, stack: PreparedStack, made: Callable[[], _Gathered]) -> _Gathered:
        """Return the result of ``made`` for a stack, all of whose groups must train alone if it fails."""
        if self.cancelled():
            raise Interrupted
        found = or_failed(made)
        return _Gathered(Trials.joined(()), {}, stack.members) if isinstance(found, GroupFailed) else found

    def _gathered(self, whole: PreparedStack, solved: SolvedStack, folds: Metrics | None = None) -> _Gathered:
        """Return the sound models of a stack with their metrics; with ``folds`` those of validation are these, (G, C) each."""
        stack, solved, measured = self._measure(whole, solved)
        kept = np.isin(whole.members, stack.members)
        broken = tuple(np.array(whole.members)[~kept].tolist())
        if not stack.members:
            return _Gathered(Trials.joined(()), {}, broken)
        if folds is not None:
            measured = [measured[0], {name: each[kept] for name, each in folds.items()}]
        groups, names = [self.unit.groups[place] for place in stack.members], self.job.measured
        trials = Trials.alike(groups, self.unit.configs, DONE)
        nothing = np.full(len(trials), np.nan)
        train, valid = (
            np.stack([each[name].ravel() if name in each else nothing for name in names], axis=1) for each in measured
        )
        epochs = solved.epochs.ravel().astype(np.int32)
        trials = replace(trials, epochs=epochs, train=train, valid=valid, names=names)
        return _Gathered(self._with_models(trials, stack, solved), dict(zip(groups, stack.facts, strict=True)), broken)

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
        tensors = {**whole.tensors(), **self._errors(stack, solved)}
        models = Models(np.arange(len(trials)), tensors, whole.importance)
        if stack.train.keeps_sums:
            models = replace(models, states=self._states(cast(SummedStack, solved), models))
        return replace(
            trials,
            curves=Curves(lengths.ravel().astype(np.int32), losses, judged),
            models=(models,) if self.job.keeps_models(self.unit.fold) else (),
        )

    def _errors(self, stack: PreparedStack, solved: SolvedStack) -> dict[str, Ragged]:
        """Return the standard errors of the final models, if they have any."""
        options = self.job.errors
        if options is None or not self.unit.is_final or not stack.members:
            return {}
        learner = cast(HasStandardErrors, self.job.trainer)
        found = learner.stack_errors(stack.problem, self.configs, stack.train, solved, options)
        sizes = np.tile([each.shape[1] for each in found], len(stack.members))
        return {ERRORS: Ragged.of_sizes(np.concatenate(found, axis=1).ravel(), sizes)}

    def _states(self, solved: SummedStack, models: Models) -> States | None:
        """Return the sums of each group, which its models share, if they are small enough to be kept."""
        most, states = self.job.state_bytes, solved.states
        if most is None or states is None or not len(models.places):
            return None
        is_small = states.sizes <= max(most, models.nbytes // len(models.places))
        of = np.where(is_small, np.arange(len(states)), -1)
        return States(np.repeat(of, len(self.configs)), states) if is_small.any() else None

    def _measure(self, stack: PreparedStack, solved: AnySolved) -> tuple[PreparedStack, AnySolved, Sequence[Metrics]]:
        """Return the groups that have models, and their metrics on training and held-out rows."""
        stack, solved = _taken(stack, solved, solved.sound)
        measured = self._measured(stack, solved)
        if self.job.target.label.has_classes:
            return stack, solved, measured
        kept = np.ones(len(stack.members), np.bool_)  # an overflow is no model, either
        for each in (each for found in measured for each in found.values()):
            kept &= ~np.isinf(each).any(axis=1)
        stack, solved = _taken(stack, solved, kept)
        return stack, solved, [{name: each[kept] for name, each in found.items()} for found in measured]

    def _measured(self, stack: PreparedStack, solved: SolvedStack) -> Sequence[Metrics]:
        """Return the metrics of a stack's models on training and on held-out rows, empty if not wanted."""
        learner = cast(GatheringLearner, self.job.trainer)

        def of(rows: Stack) -> Metrics:
            return learner.measure(stack.problem, self.configs, rows, solved, self.job.measured)

        measures_training_rows = self.job.split.measures_training_rows(self.unit.fold) and stack.members
        train = of(replace(stack.train, weight=stack.row_weight)) if measures_training_rows else {}
        return [train, of(stack.valid) if stack.valid is not None and stack.members else {}]


def _taken(stack: PreparedStack, solved: AnySolved, kept: npt.NDArray[np.bool_]) -> tuple[PreparedStack, AnySolved]:
    """Return the ``kept`` groups (G,) with their models."""
    return (stack, solved) if kept.all() else (stack.take(kept), solved.take(kept))
