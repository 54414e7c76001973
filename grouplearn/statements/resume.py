"""RESUME MODEL: continues an unfinished durable run, of a TRAIN or a REFRESH."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from grouplearn import sqltext
from grouplearn.bind.run import compatibility
from grouplearn.bind.run.options import bind_resume_options, executor_again
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.combinations import Combination
from grouplearn.catalog.identities import identity_at
from grouplearn.catalog.models import load_by_id
from grouplearn.catalog.notes import with_kept
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.views import best_sql
from grouplearn.data.files import checksums
from grouplearn.data.files.checksums import Damaged
from grouplearn.data.files.own_files import NotOwn
from grouplearn.data.files.run_directory import RunDirectory, runs_of
from grouplearn.data.memory import ran_out
from grouplearn.errors import ModelExists, OutOfMemory, TrainingError
from grouplearn.failures import StatementInterrupted
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.messages import did_you_mean
from grouplearn.models.definition import ModelDefinition, Watermark
from grouplearn.parser.statements import ResumeModel
from grouplearn.plan import calibration
from grouplearn.plan.operator_choice import Choice, threads
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.prediction.prediction import predictor_for
from grouplearn.runtime.ray.settings import Cluster
from grouplearn.search.procedures import SearchPlan
from grouplearn.statements import result_sql, runs
from grouplearn.statements.again.next_version import store_next_version
from grouplearn.statements.again.refreshed import answer
from grouplearn.statements.context import StatementContext
from grouplearn.statements.notes.notes import seen_in_rows
from grouplearn.statements.workflow import durable, training
from grouplearn.statements.workflow.durable import UnfinishedRun
from grouplearn.statements.workflow.finishing import finish, is_stored
from grouplearn.statements.workflow.manifest import Manifest
from grouplearn.statements.workflow.replacing import replacing
from grouplearn.statements.workflow.scheduled import RunControls, Scheduled
from grouplearn.statements.workflow.trial_control import IN_TRAINING, Journal, TrialControl
from grouplearn.store import objects
from grouplearn.store import writer as store
from grouplearn.store.copying import refuse_unsound
from grouplearn.store.keeping import KeptModels
from grouplearn.store.refreshing import RefreshRun
from grouplearn.train.job import Job
from grouplearn.train.results.ledger import Ledger
from grouplearn.train.results.result_checks import is_sound

#: Estimated training seconds above which a run is kept on disk by default.
DURABLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Resources:
    """The workers and executor with which a run continues."""

    workers: int
    executor: str
    cluster: Cluster


@dataclass(frozen=True, slots=True)
class RunStart:
    """When a TRAIN began (a ``time.time()``), the identity of the model that it replaces, and whether it is cancelled.

    ``watermark`` are the latest times of the rows that it has read.
    """

    at: float
    replaced: str | None
    cancelled: Callable[[], bool]
    watermark: Watermark | None = None


def is_durable(physical: PhysicalPlan, database: str | None, checker: SqlChecker, closed: str | None) -> bool:
    """Whether the run has a directory beside its database; raise if that was asked for and is impossible.

    ``closed``: why that directory may not be used, None if it may.
    """
    asked = physical.bound.options.placement.durable
    options = physical.bound.statement.options
    span = next((option.value.span for option in options if option.name.value.casefold() == "durable"), None)
    if asked and database is None:
        raise checker.error("a run of a database in memory cannot outlive it", span, "Open a file.")
    if database is not None and closed is not None:
        if asked:
            checker.outside.refuse(runs_of(database), checker.text, span)
        return False
    long = physical.serial_seconds / max(1, physical.workers) >= DURABLE_SECONDS
    return database is not None and (long if asked is None else asked)


def kept(
    physical: PhysicalPlan,
    choice: Choice,
    job: Job,
    definition: ModelDefinition,
    beginning: RunStart,
    directory: RunDirectory,
    refresh: RefreshRun | None = None,
) -> Ledger | None:
    """Make a run resumable and return its ledger; None if it is not durable. Raises StatementInterrupted."""
    if not directory.durable:
        return None

    def go_on() -> None:
        if beginning.cancelled():
            raise StatementInterrupted("training was interrupted; nothing was stored")

    manifest = _manifest(physical, choice, job, definition, beginning)
    if refresh is not None:
        manifest = replace(manifest, replaces=True, refresh=refresh)
    durable.keep(directory, manifest, go_on)
    return Ledger(directory.path)


def trial_control(learner: Learner, search: SearchPlan | None, ledger: Ledger | None) -> TrialControl:
    """Return the control of a model in training; commands to a durable search are kept on disk."""
    return TrialControl(learner, search, None if ledger is None or search is None else Journal(ledger.directory))


def _manifest(
    physical: PhysicalPlan, choice: Choice, job: Job, definition: ModelDefinition, beginning: RunStart
) -> Manifest:
    """Return what the run needs to continue without its statement."""
    rows = job.dataset.files
    if rows is None:
        raise ValueError("the rows of a durable run are in files")
    return Manifest(
        definition=definition,
        job=job,
        rows=rows,
        units=() if physical.bound.search else tuple(physical.units),
        workload=physical.workload(threads(physical, choice), choice.workers),
        operator=choice.operator,
        executor=choice.executor,
        replaces=physical.bound.statement.replace,
        replaced=beginning.replaced,
        validated=physical.bound.holdout.kind != "none",
        within=physical.bound.options.training.within,
        began=beginning.at,
        search=physical.bound.search,
        sums=(),
        stored=physical.stored,
        outputs=physical.outputs,
        watermark=beginning.watermark,
    )


def find(
    statement: ResumeModel, database: str | None, schema: str, checker: SqlChecker, several: Combination | None
) -> UnfinishedRun:
    """Return the newest unfinished run of a model; raise if there is none, or a process is working on it."""
    name = statement.name
    database = runs.looked_in(database, checker, name.span)
    found = durable.of_model(database, schema, name.name) if database else []
    waiting = [run for run in found if not run.alive]
    if waiting:
        return waiting[-1]
    if found:
        raise checker.error(
            f'the run of model "{name.name}" is still going on', name.span, "SHOW RUNS says how far it is."
        )
    if several is not None:
        message = f'model "{name.name}" is of several learners, whose runs are not kept on disk to be resumed'
        hint = f"RETRY FAILED MODEL {' or '.join(part.name for part in several.members)} trains groups that failed."
        raise checker.error(message, name.span, hint)
    others = sorted({run.manifest.definition.name for run in durable.runs(database)}) if database else []
    listed = f"\nUnfinished runs: {', '.join(others)}" if others else "\nThere is no unfinished run."
    lost = [f"{run.id} ({run.reason})" for run in durable.unreadable(database)] if database else []
    listed += f"\nRuns that cannot be resumed: {', '.join(lost)}" if lost else ""
    hint = did_you_mean(name.name, others) or "A run is kept WITH (durable = true), or when it is estimated to be long."
    raise checker.error(f'there is no unfinished run of a model "{name.name}"{listed}', name.span, hint)


def resources(
    statement: ResumeModel, run: UnfinishedRun, settings: Mapping[str, Any], checker: SqlChecker
) -> Resources:
    """Return the resources with which the run continues: as at its beginning, unless the statement or a setting differs."""
    given = bind_resume_options(checker, statement.options, settings)
    began, operator = run.manifest, run.manifest.operator
    learner = registry.way(began.job.learner, began.job.configs)
    workers = given.get("workers", began.workload.workers)
    if not compatibility.is_movable(operator, learner) and workers != began.workload.workers:
        message = f"models of {operator} depend on the number of workers, which was {began.workload.workers}"
        raise checker.error(message, statement.name.span)
    executor = executor_again(began.executor, given, settings)
    refusal = compatibility.refusal_reason(operator, learner, executor)
    if refusal:
        raise checker.error(refusal, statement.name.span, compatibility.remedy(operator, learner))
    return Resources(workers, executor, Cluster.by_settings(settings))


def resume(statement: ResumeModel, checker: SqlChecker, at: StatementContext, *, again: bool = False) -> str:
    """Continue the newest unfinished run of a model and store it; return a SELECT of each group's best trial.

    With ``again``, units with failed trials are trained again.
    """
    catalog, schema = at.databases.of(statement.name, checker)
    at.databases.refuse_change(catalog, statement.name.span, checker)
    run = find(statement, at.databases.file(catalog), schema, checker, at.databases.combination(statement.name))
    began, stored = run.manifest, replace(run.manifest.definition, catalog=catalog)
    _refuse_unknown(began.job.learner, statement, checker)
    predictor_for(at.connection).guard.admit(at.connection, stored)  # its macro evaluates expressions unchecked
    if is_stored(at.connection, catalog, run.path):  # in an open transaction
        if began.refresh is not None:
            return answer(refuse_unsound(at.connection, catalog, run.identity), trained=True)
        best = best_sql(at.connection, stored, run.identity, catalog, validated=began.validated)
        return result_sql.arranged(best, stored, at)
    where = resources(statement, run, at.settings, checker)
    _refuse_newer(statement, run, stored, checker, at)
    with _reopened(run, statement, checker) as directory:
        ledger = Ledger(run.path, again=again, sound=partial(is_sound, _without_rows(began)))
        job = _with_rows(run, statement, checker, ledger, at.cancelled)
        workload = replace(began.workload, workers=where.workers)
        scheduled = Scheduled(
            began.operator, where.executor, workload, where.cluster, calibration.load(checker.outside)
        )
        acting = trial_control(job.trainer, began.search, ledger)
        with IN_TRAINING.entered(at.place(catalog, schema, stored.name), acting), resumable(stored, ledger):
            work = training.resumed(began, job, scheduled, ledger)
            outcome = training.run(work, RunControls(at.progress, at.cancelled, acting, ledger))
            outcome = replace(outcome, watermark=began.watermark)
        stored = stored if outcome.configs is None else replace(stored, configs=outcome.configs)
        seen = seen_in_rows(job, stored, outcome)

        if (refresh := began.refresh) is not None:

            def store_next() -> StoredModel:
                model = load_by_id(at.connection, catalog, refresh.model)
                if model is None:
                    message = f'model "{statement.name.name}" was trained anew or dropped since its REFRESH began'
                    hint = f"DROP RUN '{run.id}', and REFRESH MODEL once more."
                    raise checker.error(message, statement.name.span, hint)
                next_one = store_next_version(at.connection, model, refresh, job, outcome, run.identity)
                return refuse_unsound(at.connection, catalog, next_one.id)  # the run's file may claim anything

            model = at.databases.write(catalog, store_next, statement.name.span, checker)
            finish(directory, at.databases)
            return answer(model, trained=True)

        def store_it() -> KeptModels:
            _refuse_newer(statement, run, stored, checker, at)
            kept = replacing(stored, outcome, statement.name.span, checker, at)
            store.write(at.connection, kept.definition, kept.outcome, replace=True, identity=run.identity)
            refuse_unsound(at.connection, catalog, run.identity)  # the run's file may claim anything
            return kept

        kept = at.databases.write(catalog, store_it, statement.name.span, checker)
        finish(directory, at.databases)
    seen = with_kept(seen, kept.notes)
    best = best_sql(at.connection, kept.definition, run.identity, catalog, validated=began.validated, seen=seen)
    return result_sql.arranged(best, kept.definition, at)


def _refuse_unknown(learner: str, statement: ResumeModel, checker: SqlChecker) -> None:
    if not registry.is_known(learner):
        hint = f"{registry.how_to_register(learner)} as before, and resume then."
        raise checker.error(f"the run trains the learner {learner}, which is not registered", statement.name.span, hint)


def _without_rows(began: Manifest) -> Job:
    """Return a run's job without rows, against which its results are checked."""
    return replace(began.job, own=registry.other(began.job.learner, began.job.configs))


def _refuse_newer(
    statement: ResumeModel, run: UnfinishedRun, stored: ModelDefinition, checker: SqlChecker, at: StatementContext
) -> None:
    """Raise ModelExists if there is a model that the run may not replace, because it is newer."""
    place = (at.connection, stored.catalog or "", stored.schema, stored.name)
    model = identity_at(*place)
    expected = model is None or statement.replace or (run.manifest.replaces and model.id == run.manifest.replaced)
    conflict = objects.exists(*place, replace=expected)
    if conflict is None:
        return
    hint, message = f"DROP RUN '{run.id}' gives up the run", conflict.message
    if conflict.is_model:
        message = f'model "{conflict.name}" is newer than its unfinished run, which began {_time(run.manifest.began)}'
        written = checker.text[statement.name.span.start : statement.name.span.end]
        hint = f"RESUME OR REPLACE MODEL {written} overwrites it; {hint}."
    else:
        hint = f"Rename that, or {hint}."
    raise ModelExists(message, text=checker.text, span=statement.name.span, hint=hint)


def _time(began: float) -> str:
    return datetime.datetime.fromtimestamp(began).isoformat(" ", "seconds")


def _reopened(run: UnfinishedRun, statement: ResumeModel, checker: SqlChecker) -> RunDirectory:
    try:
        return RunDirectory.reopened(run.path)
    except NotOwn as error:
        message = f"run {run.id} cannot be held: {error.strerror}\nFile: {run.path / str(error.filename)}"
        raise TrainingError(message, text=checker.text, span=statement.name.span, hint=f"DROP RUN '{run.id}'") from None
    except (BlockingIOError, FileNotFoundError):  # a process took or finished it meanwhile
        message = f'somebody else has begun to resume the run of model "{statement.name.name}"'
        raise checker.error(message, statement.name.span, "SHOW RUNS says how far it is.") from None


def _with_rows(
    run: UnfinishedRun, statement: ResumeModel, checker: SqlChecker, ledger: Ledger, cancelled: Callable[[], bool]
) -> Job:
    """Return a run's job with its rows; raise TrainingError if these have changed."""

    def go_on() -> None:
        if cancelled():
            raise StatementInterrupted("")

    try:
        with resumable(run.manifest.definition, ledger):
            checksums.check(run.path, run.manifest.sums, go_on)
            return run.manifest.job_with_rows(run.path)
    except Damaged as damage:
        message = f"the rows of run {run.id} are damaged, so nothing was trained\nFile: {damage.path}: {damage.how}"
        hint = f"DROP RUN '{run.id}', and TRAIN again."
        raise TrainingError(message, text=checker.text, span=statement.name.span, hint=hint) from None


@contextmanager
def resumable(stored: ModelDefinition, ledger: Ledger | None) -> Iterator[None]:
    """Tell in errors of interrupts and exhausted memory how to resume the run."""
    name = sqltext.written(stored.name)
    try:
        yield
    except StatementInterrupted:
        if ledger is None:
            raise
        message = f"training was interrupted; {ledger.done} of its units are kept"
        raise StatementInterrupted(message, hint=f"RESUME MODEL {name} goes on from there.") from None
    except (MemoryError, RuntimeError, OSError) as error:
        if not ran_out(error):
            raise
        if ledger is None:
            hint = "Train WITH (workers = 1), or with a memory_limit, which keeps rows in files."
            raise OutOfMemory("the process ran out of memory; nothing was stored", hint=hint) from None
        message = f"the process ran out of memory; {ledger.done} of the run's units are kept"
        raise OutOfMemory(message, hint=f"RESUME MODEL {name} WITH (workers = 1) goes on with less.") from None
