"""TRAIN after binding: choose how to run, make the job, run it, merge what came back."""

from __future__ import annotations

import datetime
import functools
import importlib.util
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import duckdb
import numpy as np

from grouplearn.catalog.recorded import repeated_by
from grouplearn.catalog.records import RunOutcome
from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.durable import Manifest
from grouplearn.errors import Cancelled, did_you_mean
from grouplearn.learners import registry
from grouplearn.learners.base import Access
from grouplearn.learners.metrics import METRICS
from grouplearn.learners.network import Network
from grouplearn.plan import calibration, cost, legality
from grouplearn.plan import choose as choosing
from grouplearn.plan.amounts import two_digits
from grouplearn.plan.bound import BoundTrain
from grouplearn.plan.choose import Candidate, Choice
from grouplearn.plan.coefficients import DEFAULTS, UNITS, UNKNOWN, Coefficients, Machine
from grouplearn.plan.explain import unit_label
from grouplearn.plan.extract import Statistics, fits_in_memory, statistics
from grouplearn.plan.gantt import Bar
from grouplearn.plan.hopping_packs import check_exact, planned_for
from grouplearn.plan.judge import Judge
from grouplearn.plan.options import OPERATORS
from grouplearn.plan.physical import PhysicalPlan, plan
from grouplearn.plan.replaying import repeated
from grouplearn.runtime.calibrate import measure_learner, measure_machine
from grouplearn.runtime.choose import runtime
from grouplearn.runtime.job import Job, Observer, Progress, RunSummary, UnitResult
from grouplearn.runtime.ledger import Ledger, units_left
from grouplearn.runtime.outcome import merge
from grouplearn.runtime.simulated import Costs, Exchange, Timeline, simulate
from grouplearn.schedule.messages import Blocks, Step, Unit
from grouplearn.schedule.operators import operator
from grouplearn.schedule.partition import rows_in
from grouplearn.schedule.visiting import first_blocks
from grouplearn.schedule.workload import Workload
from grouplearn.searching import search
from grouplearn.steering import Steering


def planned(connection: duckdb.DuckDBPyConnection, judge: Judge, bound: BoundTrain) -> PhysicalPlan:
    """Return the physical plan of a bound statement: a new one, or that of the run that it repeats."""
    repeats = repeated_by(connection, judge, bound)
    physical = plan(bound, statistics(judge, bound), calibration.load())
    return check_exact(judge, physical) if repeats is None else repeated(judge, physical, repeats)


def choose(physical: PhysicalPlan, cancelled: Callable[[], bool], *, every: bool = False) -> Choice:
    """Run operators' schedules on the simulated runtime and choose among them; raises Cancelled.

    Only those that may be chosen are run, or ``every`` one to be shown.
    """
    ray_installed = importlib.util.find_spec("ray") is not None
    names = _operators(physical) if every else choosing.eligible(physical, ray_installed)

    def load_seconds(group: int) -> float:
        # Called for every load of every simulated worker: with 100,000 groups, the place to look up now and then.
        if cancelled():
            raise Cancelled("planning was interrupted; nothing was stored")
        return physical.load_seconds(group)

    workers = physical.workers
    while True:
        candidates = [_candidate(physical, name, workers, load_seconds, cancelled) for name in names]
        eligible = choosing.eligible(physical, ray_installed)
        fewer = choosing.affordable(physical, [each for each in candidates if each.operator in eligible], workers)
        if fewer == workers:
            return _on_threads(physical, choosing.choose(physical, candidates, ray_installed, workers))
        workers = fewer


def _estimate(physical: PhysicalPlan, choice: Choice) -> float:
    """Return the estimated seconds of the run: the simulated makespan, or all the work where one thread does it."""
    if choosing.threads(physical, choice) == choice.workers:
        return choice.chosen.makespan
    loads = sum(physical.load_seconds(unit.group) for unit in physical.units)
    return physical.serial_seconds + loads * choice.chosen.loads / max(1, choice.chosen.units)


def _on_threads(physical: PhysicalPlan, choice: Choice) -> Choice:
    """Say so where several workers are one thread."""
    if choosing.threads(physical, choice) == choice.workers:
        return choice
    return replace(choice, why_workers=f"{choice.why_workers}; in process, one thread is as fast as several here")


def settled(physical: PhysicalPlan, choice: Choice) -> PhysicalPlan:
    """Return the plan with the packs that the chosen operator runs."""
    return planned_for(physical, choice.operator, choice.simulated)


def _operators(physical: PhysicalPlan) -> list[str]:
    """Return the operators that run such learners anywhere."""
    return [name for name in OPERATORS[1:] if legality.runtimes(name, physical.bound.learner.access)]


def _plan_ahead(physical: PhysicalPlan, name: str, workers: int, cancelled: Callable[[], bool]) -> None:
    """Find an exact schedule, which is remembered; it takes seconds in a library that hears no interrupt.

    Raises Cancelled; the thread that searches then ends by itself.
    """
    if name != "mop" or physical.bound.options.scheduler != "exact":
        return
    search = threading.Thread(target=operator, args=(name, physical.units, physical.workload(workers)), daemon=True)
    search.start()
    while search.is_alive():
        search.join(timeout=0.1)
        if cancelled():
            raise Cancelled("planning was interrupted; nothing was stored")


def _simulated(physical: PhysicalPlan, name: str, workers: int, load_seconds: Callable[[int], float]) -> Timeline:
    scheduled = operator(name, physical.units, physical.workload(workers))
    return simulate(scheduled, workers, load_seconds, costs=costs_of(physical))


def costs_of(physical: PhysicalPlan) -> Costs:
    """Return what moving rows, states and sums takes: of one statement's packs, by the planner's coefficients."""
    learner, machine, sizes = physical.bound.learner, physical.rates.machine, physical.stats.groups
    width, outputs = physical.stored, physical.outputs

    @functools.cache
    def of_pack(numbers: tuple[int, ...]) -> tuple[int, int]:
        configs = tuple(physical.bound.configs[number] for number in numbers)
        return cost.state_bytes(learner, configs, width, outputs), cost.sums_bytes(learner, configs, width, outputs)

    def share(group: int, blocks: Blocks) -> float:
        rows = sizes[group].n_rows
        return rows_in(blocks, rows, physical.block_rows) / rows if rows else 1.0

    def exchange(step: Step) -> Exchange:
        """Kingpin 3.2: every tree's histograms leaf by leaf, or every batch's gradients, go around once per worker."""
        state, sums = of_pack(step.unit.configs)
        configs = physical.configs_of(step.unit)
        passes = max(cost.passes_of(config, physical.epochs) for config in configs)
        if learner.access is Access.SAMPLING:
            leaves = max(cost.leaves_of(config) for config in configs)
            return Exchange(float(sums * passes * leaves), float(passes * leaves * len(configs)))
        rows = sizes[step.unit.group].n_rows
        batches = max(cost.steps_per_pass(learner, config, rows) for config in configs)
        return Exchange(float(state * batches * passes), float(batches * passes * len(configs)))

    return Costs(
        share=share,
        row_bytes=lambda group: float(cost.row_bytes(width) * sizes[group].n_rows),
        most_rows_held=float(cost.row_bytes(width) * physical.block_rows) if _read_in_blocks(physical) else math.inf,
        state_bytes=lambda unit: float(of_pack(unit.configs)[0]),
        sums_bytes=lambda unit: float(of_pack(unit.configs)[1]),
        exchange=exchange,
        overhead=lambda _step: machine.local_unit,
        bandwidth=machine.network,
        latency=machine.latency,
    )


def _read_in_blocks(physical: PhysicalPlan) -> bool:
    """Whether a worker holds a block of a group at a time, as the rows are in files and the learner wants sums."""
    return physical.bound.learner.access is Access.ALGEBRAIC and not fits_in_memory(physical.bound, physical.stats)


def _candidate(
    physical: PhysicalPlan,
    name: str,
    workers: int,
    load_seconds: Callable[[int], float],
    cancelled: Callable[[], bool],
) -> Candidate:
    """Return what the planner chooses by; the one place that reads a simulated run."""
    physical = planned_for(physical, name, workers)
    _plan_ahead(physical, name, workers, cancelled)
    timeline = _simulated(physical, name, workers, load_seconds)
    return Candidate(
        operator=name,
        units=len(physical.units),
        loads=timeline.loads,
        makespan=timeline.makespan,
        idle=timeline.idle_share,
        network_bytes=int(timeline.network_bytes),
        peak_bytes=int(max(timeline.peak_bytes, default=0)),
        used=max(1, len({interval.worker for interval in timeline.intervals})),
    )


def schedule_of(physical: PhysicalPlan, choice: Choice) -> tuple[Bar, ...]:
    """Return the simulated schedule of the chosen operator, for a chart."""
    timeline = _simulated(physical, choice.operator, choice.simulated, physical.load_seconds)
    return tuple(
        Bar(
            interval.worker,
            interval.start,
            interval.end,
            interval.unit.group,
            unit_label(physical, interval.unit),
            interval.kind,
        )
        for interval in timeline.intervals
    )


def job_of(physical: PhysicalPlan, dataset: Dataset, groups: tuple[Group, ...], judge: Judge) -> Job:
    """Return everything a worker needs, with the encoders of ``scope := 'all'`` fitted."""
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
        class_weight=_class_weights(bound, physical.stats, judge),
        first_blocks=_first_blocks(physical),
        network=bound.learner if isinstance(bound.learner, Network) else None,
        label_length=max(1, physical.stats.label_length),
        fitted=fit_on_all_rows(items, dataset, folds=bound.holdout.folds),
    )


def _first_blocks(physical: PhysicalPlan) -> dict[int, int]:
    """Return where a sequential learner begins its passes over a group, by unit: the same whoever trains it."""
    if physical.bound.learner.access is not Access.SEQUENTIAL:
        return {}
    blocks_of = physical.workload(1).blocks_of
    return first_blocks(physical.units, lambda unit: 0 if unit.stays_whole else blocks_of(unit))


def run(
    physical: PhysicalPlan,
    choice: Choice,
    job: Job,
    progress: Progress | None,
    cancelled: Callable[[], bool],
    began: float | None = None,
    steering: Steering | None = None,
    ledger: Ledger | None = None,
) -> RunOutcome:
    """Train every unit of the chosen operator on the chosen runtime; raises Cancelled when ``cancelled()`` became true.

    WITHIN counts from ``began``, a ``time.time()``; a search hears at its barriers what ``steering`` was told. With a
    ``ledger`` every unit that is done is on disk soon after.
    """
    within = physical.bound.options.within
    if within is not None:
        job = replace(job, deadline=(time.time() if began is None else began) + within)
    greater_is_better = METRICS[physical.metric].greater_is_better
    watching = progress or _Silent()
    watching.started(_summary(physical, choice, job))
    started = time.perf_counter()
    try:
        if physical.bound.search is not None:
            found = search(physical, choice, job, watching, cancelled, steering)
            seconds = time.perf_counter() - started
            ran = (choice.operator, choice.executor, choice.workers, seconds)
            return RunOutcome(found.groups, found.units, *ran, configs=found.configs)
        workers = choosing.threads(physical, choice)
        _plan_ahead(physical, choice.operator, workers, cancelled)
        workload = physical.workload(workers)
        scheduled = Scheduled(choice.operator, choice.executor, physical.units, workload)
        results = carry_out(scheduled, job, watching, cancelled, ledger)
    finally:
        watching.ended()
    seconds = time.perf_counter() - started
    alone, packs = merge(job, results, greater_is_better)
    return RunOutcome(alone, results, choice.operator, choice.executor, choice.workers, seconds, packs)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What is run where: the operator and the runtime by name, the units, and what the operator must know of the work."""

    operator: str
    executor: str
    units: tuple[Unit, ...]
    workload: Workload


def carry_out(
    scheduled: Scheduled, job: Job, watching: Observer, cancelled: Callable[[], bool], ledger: Ledger | None = None
) -> tuple[UnitResult, ...]:
    """Return the results of all units in order; those that the ledger has are not run again."""
    before = ledger.results if ledger else ()
    left = units_left(scheduled.units, before)
    if not left:
        return before
    observer = watching if ledger is None else _Recording(watching, ledger)
    units = operator(scheduled.operator, left, scheduled.workload)
    try:
        results = runtime(scheduled.executor).run(job, units, scheduled.workload.workers, observer, cancelled)
    finally:
        if ledger is not None:
            ledger.flush()
    return tuple(sorted((*before, *results), key=lambda result: result.unit.id))


def resume(
    manifest: Manifest,
    job: Job,
    scheduled: Scheduled,
    ledger: Ledger,
    progress: Progress | None,
    cancelled: Callable[[], bool],
) -> RunOutcome:
    """Go on with a run from its ledger; raises Cancelled when ``cancelled()`` became true."""
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
    started = time.perf_counter()
    try:
        results = carry_out(scheduled, job, watching, cancelled, ledger)
    finally:
        watching.ended()
    seconds = ledger.seconds + time.perf_counter() - started
    alone, packs = merge(job, results, definition.greater_is_better)
    ran = (scheduled.operator, scheduled.executor, scheduled.workload.workers, seconds)
    return RunOutcome(alone, results, *ran, packs=packs)


class _Recording:
    """An observer that also writes the ledger."""

    def __init__(self, watching: Observer, ledger: Ledger) -> None:
        self._watching, self._ledger = watching, ledger

    def unit_done(self, result: UnitResult) -> None:
        self._ledger.add(result)
        self._watching.unit_done(result)

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        self._ledger.flush_when_due()
        self._watching.epochs_done(unit, epochs)


def _summary(physical: PhysicalPlan, choice: Choice, job: Job) -> RunSummary:
    """Return what can be said before the first unit; of a search about how much it will be."""
    configs, planned = len(job.configs), physical.bound.search
    epochs = sum(physical.epochs * len(unit.configs) * len(unit.groups) for unit in physical.units)
    per_group, seconds = configs, _estimate(physical, choice)
    if planned is not None:
        per_group, searched = planned.most_trials(configs), len(job.groups) * planned.most_epochs(configs)
        seconds *= searched / max(1, epochs)
        epochs = searched
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
        rows += _coefficient_rows("machine", Machine(), machine, skipped=("ray_unit", "ray_start"))
    for name, coefficients in measured.items():
        default = DEFAULTS.get(name, UNKNOWN)
        rows += _coefficient_rows(name, default, coefficients, skipped=("typical_epochs", "correction"))
    return rows


def installed(learner: str) -> bool:
    """Return whether what the learner needs can be imported."""
    requires = registry.learner(learner).requires
    return requires is None or importlib.util.find_spec(requires[0]) is not None


def _coefficient_rows(
    subject: str, default: Machine | Coefficients, measured: Machine | Coefficients, skipped: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    return [
        (
            subject,
            field.name,
            getattr(default, field.name),
            two_digits(getattr(measured, field.name)),
            UNITS[field.name],
        )
        for field in fields(measured)
        if field.name not in skipped
    ]


def fit_on_all_rows(items: tuple[Item, ...], dataset: Dataset, folds: int) -> dict[int, FittedItem]:
    """Return the items with ``scope := 'all'`` fitted on the training rows of every group.

    Under VALIDATE FOLDS all rows train the model that is kept, so all rows fit the encoder.
    """
    fitted: dict[int, FittedItem] = {}
    if all(item.scope != "all" for item in items):
        return fitted
    rows = slice(None) if folds else np.flatnonzero(dataset.split == 0)
    for number, item in enumerate(items):
        if item.scope == "all":
            column = dataset.column("numeric" if item.kind == "numeric" else "codes", item.column, rows)
            texts = () if item.kind == "numeric" else dataset.dictionaries[item.column]
            fitted[number] = encoders.fit(item, column, texts)
    return fitted


def _class_weights(bound: BoundTrain, stats: Statistics, judge: Judge) -> Any:
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
        raise judge.error(message, span, did_you_mean(unknown[0], stats.classes))
    return {number: given.get(name, 1.0) for number, name in enumerate(stats.classes)}


class _Silent:
    """Progress that nobody watches."""

    def started(self, summary: RunSummary) -> None: ...

    def unit_done(self, result: Any) -> None: ...

    def epochs_done(self, unit: Any, epochs: int) -> None: ...

    def ended(self) -> None: ...
