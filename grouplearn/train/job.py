"""What a runtime executes and returns: plain values that any process can receive."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.registry import encoder_of, features_of, widths_of
from grouplearn.data.files.plain_values import IF_OTHER, inline
from grouplearn.data.shard import BLOCK_ROWS, Codes, RowNumbers
from grouplearn.data.split import FINAL, Split
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.refreshing import Continuation, StartsWarm
from grouplearn.learners.contract.standard_errors import ErrorOptions
from grouplearn.models.calibration import Calibration
from grouplearn.models.label import Label
from grouplearn.models.metrics.metric import Family, Metric
from grouplearn.models.state import Artifact, State
from grouplearn.schedule.messages import BlockRange, Operator, Push, StepKind, Unit
from grouplearn.train.results.trials import FAILED, TrialProgress, Trials


@dataclass(frozen=True, slots=True)
class TrainingTarget:
    """What is predicted, and the metrics of every trial: those in ``metrics``, by default the task's usual ones.

    ``metric`` decides which trial is best. ``mirrored``: of two classes the
    positive one is the lesser.
    """

    label: Label
    metric: str
    mirrored: bool = field(default=False, metadata=IF_OTHER)
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowRules:
    """Which rows of a group are used, and with which weights.

    ``min_rows``: groups with fewer rows fail. ``null_label``: rows without a label are left out (``skip``), or fail their
    group (``error``). ``class_weight``: None, ``'balanced'``, or weights by class number.
    """

    min_rows: int = 1
    null_label: Literal["skip", "error"] = "skip"
    class_weight: Literal["balanced"] | Mapping[int, float] | None = None


@dataclass(frozen=True, slots=True)
class UnitTurns:
    """A turn of every unit, so that each has had a share of the time that WITHIN gives before any has all it wants.

    By unit: if one worker trains it, it has so many ``seconds``, and at least one epoch; others have as long as they want. It
    continues from what it had ``reached`` in an earlier turn.
    """

    seconds: Mapping[int, float] = field(default_factory=dict)
    reached: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainingLimits:
    """How long trials train at most, the seed, and where checkpoints are stored.

    After ``patience`` epochs without a better validation metric a trial stops. After ``deadline`` (seconds of
    ``time.time``) no epoch begins: trials stop with what they have. ``states`` is the directory of units' checkpoints, None
    for no checkpoints. In a ``turn`` units may end earlier.
    """

    seed: int = 0
    epochs: int = 1
    patience: int | None = None
    deadline: float | None = None
    states: str | None = None
    turn: UnitTurns | None = field(default=None, metadata=IF_OTHER)

    def expired(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and time.time() >= self.deadline

    def left(self) -> float:
        """Return the seconds until the deadline."""
        return math.inf if self.deadline is None else self.deadline - time.time()

    def share_of(self, unit: Unit) -> TrainingLimits:
        """Return the limits with the end of the unit's share, which begins now, as their deadline."""
        seconds = None if self.turn is None else self.turn.seconds.get(unit.id)
        return self if seconds is None else replace(self, deadline=time.time() + min(self.left(), seconds))


@dataclass(frozen=True, slots=True)
class SearchRound:
    """A round of a search: trials (group, config) in ``starts`` continue from there.

    A unit in ``goals`` trains until its configs have had that many epochs, and with ``carries`` results contain what trials
    continue from; or trials train on the ``share`` of their training rows.
    """

    starts: Mapping[tuple[int, int], TrialProgress] = field(default_factory=dict)
    goals: Mapping[int, int] = field(default_factory=dict)
    carries: bool = False
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a group's model is refreshed with: its encoders, and what it goes on from, a ``state`` as a safetensors file, or the
    ``model`` itself.

    Without encoders they are those of the job. Without a state and a model its rows train a model anew: one that has the same
    ``classes`` starts from the model ``before``, if its learner can. One that goes on has the ``classes`` that it had.
    """

    fitted: tuple[FittedItem, ...]
    classes: tuple[int, ...] = ()
    state: bytes | None = None
    model: Artifact | None = None
    before: Artifact | None = None

    @property
    def goes_on(self) -> bool:
        """Whether there is something to go on from."""
        return self.state is not None or self.model is not None

    def kept(self, number: int) -> FittedItem | None:
        """Return an item that stays as it was fitted; None for one that is fitted again, as its rows would know their own
        labels."""
        if not self.fitted:
            return None
        fitted = self.fitted[number]
        return fitted if self.goes_on or not encoder_of(fitted.item).learns_labels else None


@dataclass(frozen=True, slots=True)
class Job:
    """Everything a worker needs to train any unit of one TRAIN: it never sees the database.

    ``fitted`` are the items with ``scope = 'all'``, fitted before the run. ``own`` is the statement's learner if it is not
    built in. A block of a group has ``block_rows`` rows, or fewer if they are wide. A model's state is kept if it has at most
    ``state_bytes`` or is no larger than the model; None keeps none. Groups in ``earlier`` go on from there,
    those with a model in the way that ``continuation`` says. ``profiles``: what features are
    like in each group is kept, with ``quantiles`` also these. ``held_out`` are the columns of ``Dataset.codes`` that tell rows
    apart whose held-out predictions are kept, None if they are not. ``calibrate``: how probabilities are calibrated.
    ``keeps_folds``: the models of folds are kept, too, and their states. ``errors`` says which standard errors models have, None
    if none. ``offset``: the last item is one. ``cluster`` is the column of ``Dataset.codes`` with the clusters of
    standard errors.
    """

    learner: str
    configs: tuple[Config, ...]
    items: tuple[Item, ...]
    groups: tuple[Group, ...]
    dataset: Dataset
    target: TrainingTarget = field(metadata=inline(TrainingTarget))
    split: Split = field(default=Split(), metadata=inline(Split))
    rules: RowRules = field(default=RowRules(), metadata=inline(RowRules))
    training: TrainingLimits = field(default=TrainingLimits(), metadata=inline(TrainingLimits))
    round: SearchRound = field(default_factory=SearchRound, metadata=inline(SearchRound))
    fitted: Mapping[int, FittedItem] = field(default_factory=dict)
    own: Learner | None = None
    block_rows: int = field(default=BLOCK_ROWS, metadata=IF_OTHER)
    state_bytes: int | None = field(default=None, metadata=IF_OTHER)
    earlier: Mapping[int, Earlier] = field(default_factory=dict, metadata=IF_OTHER)
    continuation: Continuation | None = field(default=None, metadata=IF_OTHER)
    profiles: bool = field(default=True, metadata=IF_OTHER)
    quantiles: bool = field(default=True, metadata=IF_OTHER)
    held_out: tuple[Item, ...] | None = field(default=None, metadata=IF_OTHER)
    calibrate: str | None = field(default=None, metadata=IF_OTHER)
    keeps_folds: bool = field(default=False, metadata=IF_OTHER)
    errors: ErrorOptions | None = field(default=None, metadata=IF_OTHER)
    offset: bool = field(default=False, metadata=IF_OTHER)
    cluster: Item | None = field(default=None, metadata=IF_OTHER)

    @property
    def trainer(self) -> Learner:
        """The learner: another process may not have registered it."""
        return registry.way(self.learner, self.configs) if self.own is None else self.own

    @property
    def family(self) -> Family:
        """The metrics of its models."""
        return registry.output_class(self.trainer, self.target.label).metrics

    def clusters(self, data: Dataset, rows: RowNumbers | slice) -> Codes | None:
        """Return the clusters of rows, None unless standard errors are by cluster."""
        return None if self.cluster is None else data.column("codes", self.cluster.column, rows)

    @property
    def predicts_held_out(self) -> bool:
        """Whether held-out rows are predicted once the best configurations are known."""
        return self.held_out is not None or self.calibrate is not None

    def keeps_models(self, fold: int) -> bool:
        """Return whether the models of a fit are kept."""
        return self.keeps_folds or fold == FINAL

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of the metrics of every trial."""
        target = self.target
        return target.metrics or self.family.usual(self.dataset.label_length > 1, target.metric)

    @property
    def choosing(self) -> tuple[Metric, ...]:
        """The metrics that choose the best trial: the first that is known of any trial of a group."""
        return self.family.choosing(self.target.metric)


def warm_start(
    job: Job, group: int, problem: Problem, classes: Sequence[int], configs: Sequence[Config]
) -> State | None:
    """Return the state in which a group's configs start from its model before; None without one, or of others."""
    earlier, learner = job.earlier.get(group), job.trainer
    if earlier is None or earlier.before is None or earlier.classes != tuple(classes):
        return None
    if not isinstance(learner, StartsWarm) or not learner.starts_warm(configs):
        return None
    return learner.warm(problem, configs, earlier.before)


def group_of(job: Job, number: int) -> Group:
    """Return the group with this id."""
    if number < len(job.groups) and job.groups[number].id == number:
        return job.groups[number]
    return next(group for group in job.groups if group.id == number)


def groups_of(job: Job, numbers: Sequence[int]) -> list[Group]:
    """Return the groups with these ids."""
    found = [job.groups[number] for number in numbers if number < len(job.groups)]
    return found if [group.id for group in found] == [*numbers] else [group_of(job, number) for number in numbers]


#: Reasons of stopped trials without a model, or without one that was compared.
NOT_BEGUN = "the time that WITHIN gives was up before its first epoch ended"
NOT_VALIDATED = "the time that WITHIN gives was up before it was validated on any fold"


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What a unit found out about its group: fitted items, classes, rows used and skipped.

    Groups that cannot be trained have row counts only. ``n_ahead`` are rows of the steps after the last label of series.
    ``calibration`` says what its model's probabilities become, None if they stay.
    """

    fitted: tuple[FittedItem, ...]
    classes: tuple[int, ...]
    n_train: int
    n_valid: int
    n_skipped: int
    n_ahead: int = 0
    calibration: Calibration | None = field(default=None, kw_only=True, metadata=IF_OTHER)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the feature columns, which may be many."""
        return tuple(features_of(self.fitted))

    @property
    def n_features(self) -> int:
        """Number of feature columns."""
        return sum(widths_of(self.fitted))


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step as it ran: times in seconds since the run began, ``fetched`` the bytes of products from other workers,
    ``loaded`` the bytes of rows that its worker loaded for it, ``processor`` the processor seconds of its thread, and of
    others that helped."""

    step: int
    kind: StepKind
    epoch: int
    blocks: BlockRange | None
    worker: int
    started: float
    ended: float
    fetched: int = 0
    loaded: int = 0
    processor: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class LostWork:
    """A unit or step that was lost with its worker: it ran from ``started`` and was given up at ``ended``."""

    worker: int
    started: float
    ended: float
    epoch: int | None = None
    blocks: BlockRange | None = None


@dataclass(frozen=True, slots=True)
class UnitResult:
    """A finished unit; times are seconds since the run began. ``facts`` are those of the groups of which some are known.

    One of a split group has records of its ``steps`` in the order in which they ended; ``worker`` is the last one's.
    ``loaded`` are the bytes of rows that workers loaded for the unit (rows that stay loaded count for the first unit).
    ``lost`` is work that had to be run again. ``pushes`` made its models, in this order, with a parameter server.
    ``processor`` are the processor seconds of a whole unit's thread, and of others that helped. From what it ``reached`` a
    unit continues whose turn was over.
    """

    unit: Unit
    trials: Trials
    facts: Mapping[int, GroupFacts] = field(default_factory=dict)
    worker: int = 0
    started: float = 0.0
    ended: float = 0.0
    steps: tuple[StepRecord, ...] = ()
    loaded: int = 0
    lost: tuple[LostWork, ...] = ()
    pushes: tuple[Push, ...] = ()
    processor: float = field(default=0.0, compare=False)
    reached: bytes | None = None

    @property
    def fetched(self) -> int:
        """Bytes of states and sums that workers fetched from each other."""
        return sum(step.fetched for step in self.steps)

    @property
    def busy(self) -> float:
        """Seconds that workers spent on it."""
        if not self.steps:
            return self.ended - self.started
        return sum(step.ended - step.started for step in self.steps)

    @property
    def worked(self) -> float:
        """Processor seconds that it took, however busy the machine was with other work; ``busy`` where they are not known."""
        return self.processor or sum(step.processor for step in self.steps) or self.busy

    @property
    def epochs(self) -> float:
        """Mean number of epochs of its trials; 0 without any."""
        return float(np.mean(self.trials.epochs)) if len(self.trials) else 0.0

    @property
    def failed(self) -> int:
        """Number of trials without a model."""
        return int((self.trials.status == FAILED).sum())

    def best(self, metric: str, greater_is_better: bool) -> float:
        """Return the best validation metric of the unit's trials, NaN if there is none."""
        values = self.trials.metric("valid", metric)
        values = values[~np.isnan(values)]
        return float(values.max() if greater_is_better else values.min()) if values.size else math.nan


class Observer(Protocol):
    """Watches a run, in the thread that called ``Runtime.run``."""

    def unit_done(self, result: UnitResult) -> None:
        """A unit ended."""
        ...

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        """``epochs`` more epochs of a unit (counted per config) were run."""
        ...

    def units_lost(self, units: tuple[Unit, ...]) -> None:
        """Workers were lost while running ``units`` or their steps, which will run again."""
        ...


class Forwarding:
    """An observer that tells another one everything; subclasses add what else they do."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def unit_done(self, result: UnitResult) -> None:
        """Forward a unit that ended."""
        self.observer.unit_done(result)

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        """Forward them."""
        self.observer.epochs_done(unit, epochs)

    def units_lost(self, units: tuple[Unit, ...]) -> None:
        """Forward them."""
        self.observer.units_lost(units)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a progress display shows before the first unit: ``epochs`` is the most epochs, summed over trials.

    ``seconds`` is the estimated makespan, which displays correct by the first units; 0 without an estimate.
    """

    model: str
    groups: int
    trials: int
    epochs: int
    metric: str
    greater_is_better: bool
    operator: str
    executor: str
    workers: int
    seconds: float = 0.0


class Progress(Observer, Protocol):
    """An observer with a beginning and an end, for frontends."""

    def started(self, summary: RunSummary) -> None:
        """Training begins."""
        ...

    def ended(self) -> None:
        """Training has ended, successfully or not."""
        ...


class Runtime(Protocol):
    """Executes an operator's instructions on workers."""

    name: str

    def run(
        self, job: Job, operator: Operator, workers: int, observer: Observer, cancelled: Callable[[], bool]
    ) -> tuple[UnitResult, ...]:
        """Run every unit and return the results in unit order; raises StatementInterrupted within 2 s of ``cancelled()``."""
        ...
