"""TRAIN after planning: make the job, run it or go on with it, merge what came back."""

from __future__ import annotations

import datetime
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.records import RunOutcome
from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.errors import did_you_mean
from grouplearn.extract.extract import Statistics
from grouplearn.interrupting import apart, watched
from grouplearn.learners import registry
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.learners.metrics.sums import METRICS
from grouplearn.plan import calibration
from grouplearn.plan import choose as choosing
from grouplearn.plan.choose import Choice
from grouplearn.plan.cost.coefficients import UNITS, Machine, Rates, default
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.runtime.calibrate import measure_learner, measure_machine
from grouplearn.runtime.choose import get_ready, runtime
from grouplearn.runtime.ray.settings import Cluster
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.operators import most_workers, operator
from grouplearn.schedule.workload import Workload
from grouplearn.statements.workflow import planning, refitting
from grouplearn.statements.workflow.durable import Manifest
from grouplearn.statements.workflow.search_progress import later
from grouplearn.statements.workflow.searching import Rounds, rounds, search
from grouplearn.statements.workflow.trial_control import TrialControl
from grouplearn.train.job import Job, Observer, Progress, RunSummary, UnitResult
from grouplearn.train.results.ledger import Ledger, units_left
from grouplearn.train.results.outcome import GroupOutcome, PackedOutcome, merge
from grouplearn.train.rows.counted import with_training_rows

#: Estimated seconds of work that is done in the calling thread, unless it is in code of the user's, which no estimate knows.
_SMALL_SECONDS = 0.05


def job_of(
    physical: PhysicalPlan,
    dataset: Dataset,
    groups: tuple[Group, ...],
    checker: SqlChecker,
    fitted: dict[int, FittedItem] | None = None,
) -> Job:
    """Return everything a worker needs, with the encoders of ``scope := 'all'`` fitted on these rows if not given."""
    bound = physical.bound
    items = tuple(item.stored.item for item in bound.items)
    return Job(
        learner=bound.learner.name,
        task=physical.task,
        configs=bound.configs,
        items=items,
        groups=groups,
        dataset=dataset,
        metric=physical.metric,
        seed=bound.options.seed,
        epochs=physical.epochs,
        patience=bound.options.early_stopping,
        folds=bound.holdout.folds,
        min_rows=bound.options.min_rows,
        null_label=bound.statement.null_label or "skip",
        class_weight=_class_weights(bound, physical.stats, checker),
        own=None if bound.learner.name in registry.LEARNERS else bound.learner,
        label_length=max(1, physical.stats.label_length),
        fitted=fit_on_all_rows(items, dataset, bound.holdout.folds, bound.learner.handles_missing)
        if fitted is None
        else fitted,
    )


def run(
    physical: PhysicalPlan,
    choice: Choice,
    job: Job,
    progress: Progress | None,
    cancelled: Callable[[], bool],
    began: float | None = None,
    steering: TrialControl | None = None,
    ledger: Ledger | None = None,
) -> RunOutcome:
    """Train every unit of the chosen operator on the chosen runtime; raises Cancelled when ``cancelled()`` became true.

    WITHIN counts from ``began``, a ``time.time()``; a search hears at its barriers what ``steering`` was told. With a
    ``ledger`` every unit that is done is on disk soon after.
    """
    job = job if ledger is None else replace(job, states=str(ledger.directory))
    within = physical.bound.options.within
    if within is not None:
        job = replace(job, deadline=(time.time() if began is None else began) + within)
    watching = progress or _Silent()
    watching.started(_summary(physical, choice, job))
    started = time.perf_counter()
    try:
        if physical.bound.search is not None:
            found = search(rounds(physical, choice), job, watching, cancelled, steering, ledger)
            seconds = time.perf_counter() - started
            ran = (choice.operator, choice.executor, choice.workers, seconds)
            return RunOutcome(found.groups, found.units, *ran, configs=found.configs)
        workers = choosing.threads(physical, choice)
        planning.plan_ahead(physical, choice.operator, workers, cancelled)
        workload = physical.workload(workers, choice.workers)
        scheduled = Scheduled(
            choice.operator, choice.executor, tuple(physical.units), workload, Cluster.of(physical.bound.options)
        )
        merged = _merged(scheduled, job, physical.bound.refit, watching, cancelled, ledger)
    finally:
        watching.ended()
    seconds = time.perf_counter() - started
    return RunOutcome(
        merged.alone, merged.results, choice.operator, choice.executor, choice.workers, seconds, merged.packs
    )


def prepare(physical: PhysicalPlan, cancelled: Callable[[], bool]) -> None:
    """Begin to start what the statement will run on, before its rows are read.

    Raises TrainingError when a cluster does not answer, MissingDependency without Ray, Cancelled.
    """
    executor, _ = choosing.executor(physical, importlib.util.find_spec("ray") is not None)
    get_ready(executor, Cluster.of(physical.bound.options), cancelled)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What is run where: the operator and the runtime by name, the units, and what the operator must know of the work."""

    operator: str
    executor: str
    units: tuple[Unit, ...]
    workload: Workload
    cluster: Cluster | None = None
    rates: Rates = field(default_factory=Rates)


@dataclass(frozen=True, slots=True)
class _Merged:
    """What units gave: the outcomes of groups that trained alone and side by side, and the results themselves."""

    alone: tuple[GroupOutcome, ...]
    packs: tuple[PackedOutcome, ...]
    results: tuple[UnitResult, ...]


def _merged(
    scheduled: Scheduled,
    job: Job,
    refit: bool,
    watching: Observer,
    cancelled: Callable[[], bool],
    ledger: Ledger | None,
) -> _Merged:
    """Carry out all units, and with ``refit`` the best configuration of each group once more, on all rows."""
    greater_is_better = METRICS[job.metric].greater_is_better
    results = carry_out(scheduled, job, watching, cancelled, ledger)
    alone, packs = merge(job, results, greater_is_better)
    if not refit:
        return _Merged(alone, packs, results)
    found = _every(alone, packs, job.metric)
    units, everything = refitting.units_of(scheduled.units, found), refitting.on_all_rows(job)
    again = carry_out(replace(scheduled, units=units), everything, watching, cancelled, ledger)
    models = _every(*merge(everything, again, greater_is_better), job.metric)
    ended = max((result.ended for result in results), default=0.0)
    return _Merged(refitting.merged(found, models), (), (*results, *(later(result, ended) for result in again)))


def _every(alone: tuple[GroupOutcome, ...], packs: tuple[PackedOutcome, ...], metric: str) -> tuple[GroupOutcome, ...]:
    side_by_side = (outcome for pack in packs for outcome in pack.outcomes(metric))
    return tuple(sorted((*alone, *side_by_side), key=lambda outcome: outcome.group.id))


def carry_out(
    scheduled: Scheduled, job: Job, watching: Observer, cancelled: Callable[[], bool], ledger: Ledger | None = None
) -> tuple[UnitResult, ...]:
    """Return the results of all units in order; those that the ledger has are not run again."""
    wanted = {unit.id for unit in watched(scheduled.units)}
    before = tuple(result for result in ledger.results if result.unit.id in wanted) if ledger else ()
    left = units_left(scheduled.units, before)
    results = _run_units(scheduled, left, job, watching, cancelled, ledger) if left else ()
    return tuple(sorted(watched((*before, *results)), key=lambda result: result.unit.id))


def _run_units(
    scheduled: Scheduled,
    units: tuple[Unit, ...],
    job: Job,
    watching: Observer,
    cancelled: Callable[[], bool],
    ledger: Ledger | None,
) -> tuple[UnitResult, ...]:
    observer = watching if ledger is None else _Recording(watching, ledger)
    workload = with_training_rows(scheduled.workload, job)
    schedule = apart(lambda: operator(scheduled.operator, units, workload), len(units))
    workers = most_workers(scheduled.operator, units, scheduled.workload.workers)
    try:
        small = job.own is None and sum(unit.cost for unit in units) <= _SMALL_SECONDS
        there = runtime(scheduled.executor, scheduled.cluster, here=small)
        results = there.run(job, schedule, workers, observer, cancelled)
    finally:
        if ledger is not None:
            ledger.flush()
    return results if ledger is None else tuple(later(result, ledger.seconds) for result in results)


def resume(
    manifest: Manifest,
    job: Job,
    scheduled: Scheduled,
    ledger: Ledger,
    progress: Progress | None,
    cancelled: Callable[[], bool],
    steering: TrialControl | None = None,
) -> RunOutcome:
    """Go on with a run from its ledger; raises Cancelled when ``cancelled()`` became true."""
    job = replace(job, states=str(ledger.directory))
    if manifest.within is not None:
        job = replace(job, deadline=time.time() + max(0.0, manifest.within - ledger.seconds))
    watching, definition = progress or _Silent(), manifest.definition
    left = units_left(scheduled.units, ledger.results)
    watching.started(
        RunSummary(
            model=definition.name,
            groups=len({group for unit in left for group in unit.groups}),
            trials=sum(len(unit.groups) * len(unit.configs) for unit in left if unit.fold < 0),
            epochs=sum(job.epochs * len(unit.configs) * len(unit.groups) for unit in left),
            metric=definition.metric,
            greater_is_better=definition.greater_is_better,
            operator=scheduled.operator,
            executor=scheduled.executor,
            workers=scheduled.workload.workers,
            seconds=sum(unit.cost for unit in left) / scheduled.workload.workers,
        )
    )
    started, found = time.perf_counter(), None
    merged = _Merged((), (), ())
    try:
        if manifest.search is not None:
            found = search(_rounds_of(manifest, scheduled), job, watching, cancelled, steering, ledger)
        else:
            refit = definition.refit and not job.folds
            merged = _merged(scheduled, job, refit, watching, cancelled, ledger)
    finally:
        watching.ended()
    seconds = ledger.seconds + time.perf_counter() - started
    ran = (scheduled.operator, scheduled.executor, scheduled.workload.workers, seconds)
    if found is not None:
        return RunOutcome(found.groups, found.units, *ran, configs=found.configs)
    return RunOutcome(merged.alone, merged.results, *ran, packs=merged.packs)


def _rounds_of(manifest: Manifest, scheduled: Scheduled) -> Rounds:
    """Return the rounds of a search that goes on."""
    if manifest.search is None:
        raise ValueError("the run does not search in rounds")
    where = (scheduled.operator, scheduled.executor, scheduled.workload, scheduled.cluster)
    return Rounds(manifest.search, *where, manifest.stored, manifest.outputs, scheduled.rates)


class _Recording:
    """An observer that also writes the ledger."""

    def __init__(self, watching: Observer, ledger: Ledger) -> None:
        self._watching, self._ledger = watching, ledger

    def unit_done(self, result: UnitResult) -> None:
        self._ledger.add(later(result, self._ledger.seconds))
        self._watching.unit_done(result)

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        self._ledger.flush_when_due()
        self._watching.epochs_done(unit, epochs)

    def units_lost(self, units: tuple[Unit, ...]) -> None:
        self._watching.units_lost(units)


def _summary(physical: PhysicalPlan, choice: Choice, job: Job) -> RunSummary:
    """Return what can be said before the first unit; of a search about how much it will be."""
    configs, planned = len(job.configs), physical.bound.search
    epochs = sum(physical.epochs * len(unit.configs) * len(unit.groups) for unit in physical.units)
    per_group, seconds = configs, planning.estimate(physical, choice)
    if planned is not None:
        per_group, spent = planned.most_trials(configs), planned.most_budget(configs)
        seconds *= spent / max(1, configs * planned.budget)
        trained = planned.most_trainings(configs) * physical.epochs if planned.resource == "rows" else spent
        epochs = len(job.groups) * trained
    return RunSummary(
        model=physical.bound.name,
        groups=len(job.groups),
        trials=len(job.groups) * per_group,
        epochs=epochs,
        metric=physical.metric,
        greater_is_better=METRICS[physical.metric].greater_is_better,
        operator=choice.operator,
        executor=choice.executor,
        workers=choice.workers,
        seconds=seconds,
    )


def calibrate(learner: str | None, cancelled: Callable[[], bool]) -> list[tuple[Any, ...]]:
    """Measure and keep coefficients: of one learner, or of the machine and every learner that is installed.

    Return rows of subject, coefficient, default, measured and unit. Everything is measured before anything is kept.
    """
    names = [learner] if learner else [name for name in registry.LEARNERS if installed(name)]
    measured = {name: measure_learner(name, cancelled) for name in names}
    machine = None if learner else measure_machine()
    today = datetime.date.today().isoformat()
    for name, coefficients in measured.items():
        calibration.store_learner(name, coefficients, today)
    rows: list[tuple[Any, ...]] = []
    if machine is not None:
        calibration.store_machine(machine)
        rows += _coefficient_rows("machine", Machine(), machine, skipped=("exchange", "ray_unit", "ray_start"))
    for name, coefficients in measured.items():
        rows += _coefficient_rows(name, default(name), coefficients, skipped=("typical_epochs", "correction"))
    return rows


def installed(learner: str) -> bool:
    """Return whether what the learner needs can be imported."""
    return registry.is_installed(registry.learner(learner))


def _coefficient_rows(
    subject: str, default: Machine | Coefficients, measured: Machine | Coefficients, skipped: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    return [
        (
            subject,
            field.name,
            getattr(default, field.name),
            getattr(measured, field.name),
            UNITS[field.name],
        )
        for field in fields(measured)
        if field.name not in skipped
    ]


def fit_on_all_rows(
    items: tuple[Item, ...], dataset: Dataset, folds: int, handles_missing: bool
) -> dict[int, FittedItem]:
    """Return the items with ``scope := 'all'`` fitted on the training rows of every group that the learner will see.

    Under VALIDATE FOLDS all rows train the model that is kept, so all rows fit the encoder.
    """
    fitted: dict[int, FittedItem] = {}
    if all(item.scope != "all" for item in items):
        return fitted
    train = dataset.has_label() & (dataset.weight > 0)
    if not folds:
        train &= dataset.split == 0
    if not handles_missing:
        train &= encoders.complete(items, dataset, slice(None))
    rows = slice(None) if train.all() else np.flatnonzero(train)
    for number, item in enumerate(items):
        if item.scope == "all":
            column = dataset.column("numeric" if item.kind == "numeric" else "codes", item.column, rows)
            texts = () if item.kind == "numeric" else dataset.dictionaries[item.column]
            fitted[number] = encoders.fit(item, column, texts)
    return fitted


def _class_weights(bound: BoundTrain, stats: Statistics, checker: SqlChecker) -> Any:
    """Return class weights by class number."""
    given = bound.options.class_weight
    if given is None or given == "balanced":
        return given
    span = next(
        option.value.span for option in bound.statement.options if option.name.value.casefold() == "class_weight"
    )
    unknown = [name for name in given if name not in stats.classes]
    if unknown:
        message = (
            f'class_weight names "{unknown[0]}", which is no class of the label\nClasses: {", ".join(stats.classes)}'
        )
        raise checker.error(message, span, did_you_mean(unknown[0], stats.classes))
    return {number: given.get(name, 1.0) for number, name in enumerate(stats.classes)}


class _Silent:
    """Progress that nobody watches."""

    def started(self, summary: RunSummary) -> None: ...

    def unit_done(self, result: Any) -> None: ...

    def epochs_done(self, unit: Any, epochs: int) -> None: ...

    def units_lost(self, units: Any) -> None: ...

    def ended(self) -> None: ...
