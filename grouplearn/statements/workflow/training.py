"""TRAIN after planning: makes the job, runs or resumes it, and merges the results."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.run.class_options import texts_of
from grouplearn.bind.run.standard_errors import errors_of
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.records import RunOutcome
from grouplearn.catalog.rows.profile_rows import profile_rows
from grouplearn.data.dataset import Dataset, Group
from grouplearn.data.encoders import FittedItem
from grouplearn.extract.counts.statistics import Statistics
from grouplearn.extract.extract import carried_items
from grouplearn.failures import NotMeasured
from grouplearn.interrupting import with_checks
from grouplearn.learners import registry
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.learners.contract.learner import Learner
from grouplearn.messages import did_you_mean
from grouplearn.plan import calibration, operator_choice
from grouplearn.plan.cost.coefficients import UNITS, Machine, default
from grouplearn.plan.operator_choice import Choice
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.runtime.calibrate import measure_learner, measure_machine
from grouplearn.runtime.ray.settings import Cluster
from grouplearn.runtime.runtimes import get_ready
from grouplearn.schedule.messages import Unit
from grouplearn.statements.workflow import planning, refitting
from grouplearn.statements.workflow.held_out import (
    HeldOutPredictions,
    held_out_predictions,
    of_folds,
    units_of_folds,
)
from grouplearn.statements.workflow.manifest import Manifest
from grouplearn.statements.workflow.pooling import Pooling
from grouplearn.statements.workflow.scheduled import RunControls, Scheduled
from grouplearn.statements.workflow.search_progress import later
from grouplearn.statements.workflow.search_rounds import SearchWork, search
from grouplearn.statements.workflow.turns import FinalResults, in_turns
from grouplearn.train.job import (
    Forwarding,
    Job,
    Observer,
    RowRules,
    RunSummary,
    TrainingLimits,
    TrainingTarget,
    UnitResult,
)
from grouplearn.train.results.ledger import Ledger, units_left
from grouplearn.train.results.outcome import Outcome, merge


def job_of(
    physical: PhysicalPlan,
    dataset: Dataset,
    groups: tuple[Group, ...],
    checker: SqlChecker,
    fitted: dict[int, FittedItem] | None = None,
) -> Job:
    """Return everything a worker needs, with the encoders of ``scope := 'all'`` fitted on these rows unless they are given."""
    bound = physical.bound
    items, carried = bound.stored_items, carried_items(bound)
    return Job(
        learner=bound.learner.declaration.stored_name,
        configs=bound.configs,
        items=items,
        groups=groups,
        dataset=dataset,
        target=TrainingTarget(physical.label, physical.metric, physical.stats.mirrored),
        split=bound.holdout.split,
        rules=RowRules(
            min_rows=bound.options.rows.min_rows,
            null_label=bound.statement.null_label or "skip",
            class_weight=_class_weights(bound, physical.stats, checker),
        ),
        training=TrainingLimits(bound.options.training.seed, physical.epochs, bound.options.training.early_stopping),
        own=None if bound.learner.declaration.stored_name in registry.LEARNERS else bound.learner,
        block_rows=physical.longest_block,
        state_bytes=bound.options.training.state_bytes,
        held_out=None if bound.held_out is None else carried[: len(bound.held_out)],
        calibrate=bound.options.training.calibrate,
        profiles=bound.options.storage.profiles,
        quantiles=bound.options.storage.quantiles(sum(physical.stats.rows), len(physical.stats.rows)),
        errors=errors_of(bound, physical.label, checker),
        offset=bound.options.estimation.offset is not None,
        cluster=carried[-1] if bound.cluster else None,
        fitted=refitting.fit_on_all_groups(
            items, dataset, bound.learner.declaration.handles_missing, bound.holdout.split
        )
        if fitted is None
        else fitted,
    )


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a TRAIN, RETRY or RESUME and how it is run: the units of a grid, or the ``rounds`` of a search.

    With ``refit``, the job on all rows, the best configuration of each group is trained once more by it. ``workers`` is the
    number chosen; there may be fewer threads. ``spent`` is the number of seconds before it was interrupted. ``sets`` are the
    keys of each level.
    """

    scheduled: Scheduled
    job: Job
    units: tuple[Unit, ...]
    summary: RunSummary
    workers: int
    rounds: SearchWork | None = None
    refit: Job | None = None
    spent: float = 0.0
    sets: Sequence[Sequence[int]] = ((),)


def begun(
    physical: PhysicalPlan,
    choice: Choice,
    job: Job,
    cancelled: Callable[[], bool],
    began: float | None = None,
    refit: Job | None = None,
) -> Work:
    """Return the work of a plan by the chosen operator and runtime; WITHIN counts from ``began``, a ``time.time()``.

    ``refit`` is the job on all rows, which a REFIT makes unless it is given.
    """
    within, searched = physical.bound.options.training.within, physical.bound.search
    if within is not None:
        job = _until(job, (time.time() if began is None else began) + within)
    scheduled, summary = Scheduled.of(physical, choice), _summary(physical, choice, job)
    if searched is not None:
        rounds = SearchWork(searched, scheduled, physical.stored, physical.outputs)
        return Work(scheduled, job, (), summary, choice.workers, rounds)
    planning.plan_ahead(physical, choice.operator, scheduled.workload.workers, cancelled)
    if refit is None and physical.bound.refit:
        refit = refitting.on_all_rows(job)
    units, sets = tuple(physical.units), physical.bound.sets
    return Work(scheduled, job, units, summary, choice.workers, refit=refit, sets=sets)


def _until(job: Job, deadline: float) -> Job:
    return replace(job, training=replace(job.training, deadline=deadline))


def resumed(manifest: Manifest, job: Job, scheduled: Scheduled, ledger: Ledger) -> Work:
    """Return the work of an interrupted run, including finished units."""
    if manifest.within is not None:
        job = _until(job, time.time() + max(0.0, manifest.within - ledger.seconds))
    rounds = None
    if manifest.search is not None:
        rounds = SearchWork(manifest.search, scheduled, manifest.stored, manifest.outputs)
    return Work(
        scheduled,
        job,
        manifest.units,
        _summary_of_rest(manifest, job, scheduled, ledger),
        scheduled.workload.workers,
        rounds,
        refit=refitting.on_all_rows(job) if manifest.definition.refit and not job.split.folds else None,
        spent=ledger.seconds,
        sets=manifest.definition.sets,
    )


def run(work: Work, controls: RunControls) -> RunOutcome:
    """Carry out the work and merge the results; raises StatementInterrupted when ``controls.cancelled()`` becomes true."""
    job, ledger, watching = work.job, controls.ledger, controls.progress or _Silent()
    if ledger is not None and not work.scheduled.workload.pushes:  # repeated pushes begin from the initial model
        job = replace(job, training=replace(job.training, states=str(ledger.directory)))
    watching.started(work.summary)
    started = time.perf_counter()
    try:
        if work.rounds is not None:
            found = search(work.rounds, job, watching, controls)
            outcome, units, configs = found.outcome, found.units, found.configs
            predicted = held_out_predictions(replace(job, configs=configs), outcome)
        else:
            outcome, units, predicted = _merged(work, job, watching, controls)
            configs = None
    finally:
        watching.ended()
    profiles = profile_rows(job)
    seconds = work.spent + time.perf_counter() - started
    ran = (work.scheduled.operator, work.scheduled.executor, work.workers, seconds)
    calibrated = predicted.calibrated(outcome)
    return RunOutcome(calibrated, units, *ran, configs=configs, profiles=profiles, held_out=predicted.rows)


def prepare(physical: PhysicalPlan, cancelled: Callable[[], bool]) -> None:
    """Begin to start the statement's runtime before its rows are read.

    Raises TrainingFailed when a cluster does not answer, NotInstalled without Ray, StatementInterrupted.
    """
    executor, _ = operator_choice.executor(physical, planning.finds_ray(physical))
    placement = physical.bound.options.placement
    get_ready(executor, Cluster(placement.address, placement.worker_timeout), cancelled)


def _merged(
    work: Work, job: Job, watching: Observer, controls: RunControls
) -> tuple[Outcome, tuple[UnitResult, ...], HeldOutPredictions]:
    """Carry out all units and, with ``refit``, train the best configuration of each group once more on all rows.

    Return the predictions of held-out rows, too, if they are wanted; with folds, their models are trained once more for them.
    """
    searched = (
        job if work.refit is None else replace(job, state_bytes=None, errors=None)
    )  # the models are trained once more
    pooling = Pooling.of(job, work.sets, work.units)

    def run(job: Job, units: tuple[Unit, ...]) -> tuple[UnitResult, ...]:
        return _carry_out(work.scheduled, units, job, watching, controls)

    def trained(job: Job, units: tuple[Unit, ...]) -> tuple[UnitResult, ...]:
        return run(job, units) if pooling is None else pooling.run(run, job, units)

    results = trained(searched, work.units)
    found, ended = merge(job, results), max((result.ended for result in results), default=0.0)
    if job.predicts_held_out and job.split.folds:
        again = trained(of_folds(job), units_of_folds(job, work.units, found))
        return found, (*results, *(later(result, ended) for result in again)), held_out_predictions(job, found, again)
    predicted = held_out_predictions(job, found)
    if work.refit is None:
        return found, results, predicted
    again = trained(work.refit, refitting.units_of(work.units, found, spares=job.split.spares))
    models = merge(work.refit, again)
    every = (*results, *(later(result, ended) for result in again))
    return refitting.merged(found, models), every, predicted


def _carry_out(
    scheduled: Scheduled, units: tuple[Unit, ...], job: Job, watching: Observer, controls: RunControls
) -> tuple[UnitResult, ...]:
    """Return the results of all units in order; units in the ledger are not run again."""
    ledger, wanted = controls.ledger, {unit.id for unit in with_checks(units)}
    before = tuple(result for result in ledger.results if result.unit.id in wanted) if ledger else ()
    if job.training.deadline is not None:
        return _in_turns(scheduled, units, before, job, watching, controls)
    left = units_left(units, before)
    results: tuple[UnitResult, ...] = ()
    if left and ledger is None:
        results = scheduled.run(job, left, watching, controls.cancelled)
    elif left and ledger is not None:
        try:
            ran = scheduled.run(job, left, _Recording(watching, ledger), controls.cancelled)
        finally:
            ledger.flush()
        results = tuple(later(result, ledger.seconds) for result in ran)
    return tuple(sorted(with_checks((*before, *results)), key=lambda result: result.unit.id))


def _in_turns(
    scheduled: Scheduled,
    units: tuple[Unit, ...],
    before: tuple[UnitResult, ...],
    job: Job,
    watching: Observer,
    controls: RunControls,
) -> tuple[UnitResult, ...]:
    """Return what all units, in order, have reached when they are done or the time is up."""
    ledger, ending = controls.ledger, FinalResults(watching)
    recording = ending if ledger is None else _Recording(ending, ledger)

    def run(job: Job, units: tuple[Unit, ...], observer: Observer) -> None:
        scheduled.run(job, units, observer, controls.cancelled)

    try:
        ran = in_turns(run, job, units, before, scheduled.workload.workers, recording)
    finally:
        if ledger is not None:
            ledger.flush()
    ending.end()
    offset = 0.0 if ledger is None else ledger.seconds
    every = {result.unit.id: result for result in before} | {result.unit.id: later(result, offset) for result in ran}
    return tuple(every[number] for number in sorted(every))


class _Recording(Forwarding):
    """An observer that writes the ledger, too."""

    def __init__(self, observer: Observer, ledger: Ledger) -> None:
        super().__init__(observer)
        self._ledger = ledger

    def unit_done(self, result: UnitResult) -> None:
        self._ledger.add(later(result, self._ledger.seconds))
        super().unit_done(result)

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        self._ledger.flush_when_due()
        super().epochs_done(unit, epochs)


def _summary_of_rest(manifest: Manifest, job: Job, scheduled: Scheduled, ledger: Ledger) -> RunSummary:
    """Return the progress summary of a resumed run."""
    definition, left = manifest.definition, units_left(manifest.units, ledger.results)
    return RunSummary(
        model=definition.name,
        groups=len({group for unit in left for group in unit.groups}),
        trials=sum(len(unit.groups) * len(unit.configs) for unit in left if unit.is_final),
        epochs=sum(job.training.epochs * len(unit.configs) * len(unit.groups) for unit in left),
        metric=definition.metric,
        greater_is_better=definition.greater_is_better,
        operator=scheduled.operator,
        executor=scheduled.executor,
        workers=scheduled.workload.workers,
        seconds=sum(unit.cost for unit in left) / scheduled.workload.workers,
    )


def _summary(physical: PhysicalPlan, choice: Choice, job: Job) -> RunSummary:
    """Return the progress summary before the first unit; for a search its amount of work is estimated."""
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
        greater_is_better=physical.family.named(physical.metric).greater_is_better,
        operator=choice.operator,
        executor=choice.executor,
        workers=choice.workers,
        seconds=seconds,
    )


def calibrate(learner: str | None, cancelled: Callable[[], bool]) -> list[tuple[Any, ...]]:
    """Measure and store coefficients: of one learner, or of the machine and every installed learner.

    Return rows of subject, coefficient, default, measured, unit and error. Nothing is stored before everything is measured;
    a way that cannot be measured is a row with the reason. Raises NotMeasured if no way can be measured.
    """
    names = [learner] if learner else [name for name in registry.LEARNERS if installed(name)]
    ways = [way for name in names for way in registry.ways(registry.learner(name))]
    measured, failed = _measured(ways, cancelled)
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
    return rows + [(way, None, None, None, None, str(error)) for way, error in failed.items()]


def _measured(
    ways: Sequence[Learner], cancelled: Callable[[], bool]
) -> tuple[dict[str, Coefficients], dict[str, NotMeasured]]:
    """Return the coefficients of ways, and the reasons why others have none; raises NotMeasured if none has."""
    measured, failed = {}, {}
    for way in ways:
        try:
            measured[way.way] = measure_learner(way, cancelled)
        except NotMeasured as error:
            failed[way.way] = error
    if failed and not measured:
        raise next(iter(failed.values()))
    return measured, failed


def installed(learner: str) -> bool:
    """Return whether the packages that the learner needs can be imported."""
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
            None,
        )
        for field in fields(measured)
        if field.name not in skipped
    ]


def _class_weights(bound: BoundTrain, stats: Statistics, checker: SqlChecker) -> Any:
    """Return the weight of each class, by its number."""
    given = bound.options.rows.class_weight
    if given is None or given == "balanced":
        return given
    span = next(
        option.value.span for option in bound.statement.options if option.name.value.casefold() == "class_weight"
    )
    assert bound.target is not None  # noqa: S101  (refused without a label)
    named = texts_of(checker, given.classes, bound.target.type)
    unknown = next((name for name, text in named if text not in stats.classes), None)
    if unknown is not None:
        message = f'class_weight names "{unknown}", which is no class of the label\nClasses: {", ".join(stats.classes)}'
        raise checker.error(message, span, did_you_mean(unknown, stats.classes))
    weights = {text: weight for (_, text), weight in zip(named, given.weights, strict=True)}
    if len(weights) < len(named):
        twice = next(name for name, text in named if sum(text == other for _, other in named) > 1)
        raise checker.error(f'class_weight names the class of "{twice}" twice', span)
    return {number: weights.get(name, 1.0) for number, name in enumerate(stats.classes)}


class _Silent:
    """Progress that is not shown."""

    def started(self, summary: RunSummary) -> None: ...

    def unit_done(self, result: Any) -> None: ...

    def epochs_done(self, unit: Any, epochs: int) -> None: ...

    def units_lost(self, units: Any) -> None: ...

    def ended(self) -> None: ...
