"""TRAIN and EXPLAIN TRAIN, from the bound statement to the stored model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace

from grouplearn import sqltext
from grouplearn.bind.bind import bind, options_of
from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.clauses.lags import lag_call
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog import views
from grouplearn.catalog.checks.trust import trained_here
from grouplearn.catalog.combinations import combination_at
from grouplearn.catalog.identities import Identity, identity_at
from grouplearn.catalog.lookup import search_path
from grouplearn.catalog.notes import DataNotes, with_kept
from grouplearn.catalog.records import RunOutcome
from grouplearn.catalog.schema import Location, names_of_views, table
from grouplearn.data.dataset import Dataset, Group
from grouplearn.data.files.run_directory import RunDirectory, runs_of
from grouplearn.errors import ModelExists
from grouplearn.extract.counts.statistics import refuse_nothing
from grouplearn.extract.counts.unused import unused
from grouplearn.extract.database_memory import database_within
from grouplearn.extract.extract import extract
from grouplearn.extract.latest import watermark
from grouplearn.interrupting import cancellable
from grouplearn.models.definition import ModelDefinition, Watermark
from grouplearn.parser.render import render
from grouplearn.parser.statements import ExplainTrain, ResumeModel, RetryFailed, TrainModel
from grouplearn.plan import calibration
from grouplearn.plan.calibration import keep_correction
from grouplearn.plan.explain.html import explain_html
from grouplearn.plan.explain.json import explain_json
from grouplearn.plan.explain.measured import Measured, MeasuredStep, MeasuredUnit, compare
from grouplearn.plan.explain.text import explain_text
from grouplearn.plan.operator_choice import Choice
from grouplearn.plan.physical import PhysicalPlan, definition
from grouplearn.plan.results_memory import refuse_excess
from grouplearn.search.procedures import PROCEDURES
from grouplearn.statements import result_sql
from grouplearn.statements import resume as resuming
from grouplearn.statements.again import retry as retrying
from grouplearn.statements.context import StatementContext
from grouplearn.statements.notes.notes import seen_in_plan, seen_in_rows
from grouplearn.statements.resume import RunStart
from grouplearn.statements.workflow import durable, planning, training
from grouplearn.statements.workflow.finishing import finish
from grouplearn.statements.workflow.initial import Beginning, beginning_of
from grouplearn.statements.workflow.replacing import replacing
from grouplearn.statements.workflow.scheduled import RunControls
from grouplearn.statements.workflow.streamed import Streamed, streamed
from grouplearn.statements.workflow.streams import readable, refuse
from grouplearn.statements.workflow.trial_control import IN_TRAINING
from grouplearn.store import combined, objects
from grouplearn.store import writer as store
from grouplearn.store.left_over import hint_for_occupied_place


@dataclass(frozen=True, slots=True)
class Place:
    """The model's place: database, schema, path of the database's file, and the identity of the model that it replaces."""

    catalog: str
    schema: str
    file: str | None
    replaced: Identity | None


@dataclass(frozen=True, slots=True)
class Read:
    """The plan of a statement and its rows, read in one transaction; or what was learned from rows that were not kept."""

    physical: PhysicalPlan
    dataset: Dataset
    groups: tuple[Group, ...]
    streamed: Streamed | None = None
    watermark: Watermark | None = None
    beginning: Beginning = field(default_factory=Beginning)


@dataclass(frozen=True, slots=True)
class Finished:
    """A newly trained model that is not stored: its plan, how each unit ran, and what was seen in its rows.

    ``timed``: the times of units are those of training.
    """

    physical: PhysicalPlan
    choice: Choice
    definition: ModelDefinition
    outcome: RunOutcome
    seen: DataNotes
    timed: bool = True


@dataclass(frozen=True, slots=True)
class Trained:
    """A newly trained and stored model: its plan, its identity, how each unit ran, and what was seen in its rows."""

    physical: PhysicalPlan
    choice: Choice
    definition: ModelDefinition
    model: str
    units: Mapping[int, MeasuredUnit]
    seen: DataNotes


def train(statement: TrainModel, checker: SqlChecker, at: StatementContext) -> str:
    """Carry out TRAIN, and return a query of the best trial of each group."""
    trained = Training(statement, checker, at).run()
    if trained is None:
        return nothing_trained(statement)
    with _stored(statement, at):
        calibration.note_run(trained.physical, trained.choice, trained.units, checker.outside)
    return result_sql.arranged(best_sql(trained, at), trained.definition, at)


def best_sql(trained: Trained, at: StatementContext, *, of_several: bool = False) -> str:
    """Return the query of the best trial of each group; with columns to compare it with those of other learners."""
    bound = trained.physical.bound
    validated = bound.holdout.kind != "none"
    place = trained.definition, trained.model, bound.catalog
    return views.best_sql(at.connection, *place, validated=validated, seen=trained.seen, of_several=of_several)


class Training:
    """One TRAIN; with ``every`` (EXPLAIN ANALYZE), all operators are candidates."""

    def __init__(
        self, statement: TrainModel, checker: SqlChecker, at: StatementContext, *, every: bool = False
    ) -> None:
        self._statement, self._checker, self._at, self._every = statement, checker, at, every
        self._began = time.time()

    def run(self) -> Trained | None:
        """Train and store the model; None if it exists and IF NOT EXISTS was given."""
        at, checker = self._at, self._checker
        with ExitStack() as until_stored:
            with at.databases.transaction(storing=True):
                place = self.place()
                if place is None:
                    return None
                self.refuse_read_only(place)
                directory = until_stored.enter_context(RunDirectory.beside(place.file, checker.outside.refusal))
                read = self._bound_and_read(place, directory)
            return self._trained(self.finished(read, place, directory), place, directory)

    def place(self) -> Place | None:
        """Return where the model is to be stored; None if it exists and IF NOT EXISTS was given."""
        at, name = self._at, self._statement.name
        catalog, schema = at.databases.of(name, self._checker)
        if self._exists(catalog, schema):
            return None
        if self._statement.replace:
            at.databases.refuse_member(Location(catalog, schema, name.name), name.span, self._checker)
        return self.replacing(catalog, schema)

    def replacing(self, catalog: str, schema: str) -> Place:
        """Return the place there, with the model that is replaced."""
        at, name = self._at, self._statement.name.name
        replaced = identity_at(at.connection, catalog, schema, name) if self._statement.replace else None
        return Place(catalog, schema, at.databases.file(catalog), replaced)

    def refuse_read_only(self, place: Place) -> None:
        """Raise if no model can be stored there."""
        databases, span = self._at.databases, self._statement.name.span
        reason = "a model cannot be stored in it, so nothing was trained"
        hint = "Open it without read_only, or name another one."
        databases.refuse_namesake(span, self._checker)
        databases.refuse_read_only(place.catalog, span, self._checker, reason, hint)

    def _bound_and_read(self, place: Place, directory: RunDirectory) -> Read:
        """Return the plan of the statement and its rows."""
        at, checker, views = self._at, self._checker, names_of_views(self._at.connection)

        def bound_by(statement: TrainModel) -> BoundTrain:
            return bind(checker, statement, place.catalog, place.schema, at.settings, views)

        found = None if self._every else streamed(self._statement, checker, at, bound_by)
        if isinstance(found, Streamed):
            return Read(found.physical, found.dataset, found.groups, found)
        with readable(self._statement, checker, at, bound_by, self.memory_limit, found) as source:
            return self.read(source.as_written(bound_by(source.statement)), place, directory)

    def memory_limit(self) -> int | None:
        """Return the bytes of memory that the statement may use, known before it is bound; None without a limit."""
        return options_of(self._checker, self._statement, self._at.settings).placement.memory_limit

    def read(self, bound: BoundTrain, place: Place, directory: RunDirectory, *, alone: bool = True) -> Read:
        """Return the plan and the rows; a run that is not ``alone`` cannot be resumed."""
        at, checker = self._at, self._checker
        limit = bound.options.placement.memory_limit
        with database_within(at.connection, limit, at.settings):
            physical = planning.planned(at.connection, checker, bound)
            refuse_nothing(checker, bound, physical.stats.groups)
            refuse_excess(checker, physical)
            training.prepare(physical, at.cancelled)
            directory.durable = alone and resuming.is_durable(physical, place.file, checker, directory.closed)
            kept = 0 if directory.durable else limit
            dataset, groups = extract(at.connection, checker, bound, physical.stats, directory, kept)
        beginning = beginning_of(at.connection, checker, physical, groups)
        return Read(
            physical, dataset, groups, watermark=watermark(checker, bound, physical.stats.groups), beginning=beginning
        )

    def finished(self, read: Read, place: Place, directory: RunDirectory) -> Finished:
        """Train the model."""
        at = self._at
        choice = planning.choose(read.physical, at.cancelled, every=self._every)
        physical = planning.settled(read.physical, choice)
        here = at.databases.attachments()
        stored = definition(physical, render(_as_chosen(self._statement, physical.bound)))
        stored = replace(stored, search_path=search_path.stored(here, place.catalog))
        trained_here(at.connection, stored, here.identity_of(place.catalog))
        job = training.job_of(physical, read.dataset, read.groups, self._checker, read.beginning.fitted)
        job = replace(job, earlier=read.beginning.earlier)
        replaced = place.replaced.id if place.replaced else None
        beginning = RunStart(self._began, replaced, at.cancelled, read.watermark)
        ledger = resuming.kept(physical, choice, job, stored, beginning, directory)
        control = resuming.trial_control(physical.bound.learner, physical.bound.search, ledger)
        where = at.place(place.catalog, place.schema, physical.bound.name)
        with IN_TRAINING.entered(where, control), resuming.resumable(stored, ledger):
            work = training.begun(physical, choice, job, at.cancelled, self._began)
            work = work if read.streamed is None else read.streamed.work(work)
            outcome = training.run(work, RunControls(at.progress, at.cancelled, control, ledger))
            outcome = replace(outcome, watermark=read.watermark)
        stored = stored if outcome.configs is None else replace(stored, configs=outcome.configs)
        if read.streamed is not None:
            return Finished(physical, choice, stored, outcome, seen_in_plan(physical), timed=False)
        return Finished(physical, choice, stored, outcome, seen_in_rows(job, stored, outcome, physical))

    def stored(self, finished: Finished, directory: RunDirectory) -> Trained:
        """Store the model in the transaction of the caller; raises ModelExists if the place is taken."""
        at, statement = self._at, self._statement
        kept = replacing(finished.definition, finished.outcome, statement.name.span, self._checker, at)
        run = kept.definition, kept.outcome
        at_place = at.connection, finished.physical.bound.catalog, finished.definition.schema, finished.definition.name
        if statement.replace and (before := combination_at(*at_place)) is not None:
            combined.drop(at.connection, before)
        model = store.write(at.connection, *run, replace=statement.replace, identity=directory.identity)
        units = finished.outcome.units if finished.timed else ()
        ran = {result.unit.id: MeasuredUnit(result.worked, result.epochs) for result in units}
        seen = with_kept(finished.seen, kept.notes)
        return Trained(finished.physical, finished.choice, kept.definition, model, ran, seen)

    def _trained(self, finished: Finished, place: Place, directory: RunDirectory) -> Trained | None:
        """Store the model; None if another connection stored one and IF NOT EXISTS was given."""
        at, statement = self._at, self._statement

        def store_it() -> Trained | None:
            try:
                return self.stored(finished, directory)
            except ModelExists as error:  # another connection has stored it meanwhile
                if self._exists(place.catalog, place.schema):
                    return None
                raise self._in_the_way(error.message, "Choose another name.") from None

        found = at.databases.write(place.catalog, store_it, statement.name.span, self._checker)
        finish(directory, at.databases)
        if directory.durable:
            at.leaves()
        return found

    def _exists(self, catalog: str, schema: str) -> bool:
        """Return whether the model exists and IF NOT EXISTS was given; raise if it may not be written."""
        statement = self._statement
        place = self._at.connection, catalog, schema, statement.name.name
        learner = statement.learner.value.casefold()
        suffixes, macros = views.suffixes_of(learner), views.macros_of(learner)
        if any(option.name.value.casefold() == "keep_held_out" for option in statement.options):
            suffixes = (*suffixes, views.HELD_OUT)
        conflict = objects.exists(*place, suffixes=suffixes, macros=macros)
        if conflict is not None and conflict.is_model and statement.replace:
            conflict = (
                None
                if objects.seems_untouched(*place)
                else objects.exists(*place, replace=True, suffixes=suffixes, macros=macros)
            )
        if conflict is None:
            return False
        if conflict.is_model and statement.if_not_exists:
            return True
        written = self._checker.text[statement.name.span.start : statement.name.span.end]
        where = Location(catalog, schema, statement.name.name)
        anew = f"Write TRAIN OR REPLACE MODEL {written} to train it anew."
        raise self._in_the_way(
            conflict.message,
            anew if conflict.is_model else hint_for_occupied_place(self._at.connection, where, written),
        )

    def _in_the_way(self, message: str, hint: str) -> ModelExists:
        return ModelExists(message, text=self._checker.text, span=self._statement.name.span, hint=hint)


def resume(statement: ResumeModel, checker: SqlChecker, at: StatementContext) -> str:
    """Continue a durable run."""
    at.leaves()
    return resuming.resume(statement, checker, at)


def retry(statement: RetryFailed, checker: SqlChecker, at: StatementContext) -> str:
    """Train failed trials again, or resume the unfinished run."""
    catalog, schema = at.databases.of(statement.name, checker)
    stored = identity_at(at.connection, catalog, schema, statement.name.name)
    file = at.databases.file(catalog)
    closed = file is None or checker.outside.refusal(runs_of(file)) is not None
    if stored is None and file and not closed and durable.of_model(file, schema, statement.name.name):
        at.leaves()
        unfinished = ResumeModel(statement.name, statement.options)
        return resuming.resume(unfinished, checker, at, again=True)
    return retrying.retry(statement, checker, at)


def explain(statement: ExplainTrain, checker: SqlChecker, at: StatementContext) -> str:
    """Return a query of the plan; with ANALYZE, also of the measurements."""
    train = statement.train
    if statement.analyze:
        return _analyze(statement, checker, at)
    refuse(train, checker, at)
    catalog, schema = at.databases.of(train.name, checker)
    bound = bind(checker, train, catalog, schema, at.settings)
    physical = planning.planned(at.connection, checker, bound)
    if not physical.stats.n_rows:
        refuse_nothing(checker, bound, physical.stats.groups)
    choice = planning.choose(physical, at.cancelled, every=True)
    physical = replace(planning.settled(physical, choice), unused=unused(checker, bound))
    return _explained(statement, physical, choice, None, at)


def _analyze(statement: ExplainTrain, checker: SqlChecker, at: StatementContext) -> str:
    search = statement.train.search
    if search is not None and search.method in PROCEDURES:
        hint = "EXPLAIN TRAIN shows the plan; after TRAIN, the table grouplearn.units has every unit as it ran."
        message = f"EXPLAIN ANALYZE compares one round with its plan, and OVER {search.method.upper()} runs several"
        raise checker.error(message, search.span, hint)
    trained = Training(statement.train, checker, at, every=True).run()
    if trained is None:
        return nothing_trained(statement.train)
    physical, way = trained.physical, trained.physical.bound.learner.way
    units = table(physical.bound.catalog, "units")
    query = f"SELECT unit, worker, started, ended, loaded + fetched, kind FROM {units} WHERE model = ?::UUID"
    ran = [MeasuredStep(*row) for row in at.databases.rows(query, [trained.model])]
    with _stored(statement.train, at):
        epochs = {unit: each.epochs for unit, each in trained.units.items()}
        measured = compare(physical, trained.choice, ran, physical.rates.of(way), epochs)
        kept = keep_correction(way, measured, checker.outside)
        return _explained(statement, physical, trained.choice, kept, at)


def _explained(
    statement: ExplainTrain, physical: PhysicalPlan, choice: Choice, measured: Measured | None, at: StatementContext
) -> str:
    match statement.format or at.plan_format:
        case "json":
            return f"SELECT {sqltext.string(explain_json(physical, choice, measured))} AS plan"
        case "html":
            page = explain_html(physical, choice, planning.schedule_of(physical, choice), measured)
            return f"SELECT {sqltext.string(page)} AS plan"
        case _:
            return result_sql.column("plan", explain_text(physical, choice, measured))


def _stored(statement: TrainModel, at: StatementContext) -> AbstractContextManager[None]:
    """Handle interrupts that come after training, when the model is already stored."""
    message = f'the statement was interrupted after model "{statement.name.name}" was stored'
    return cancellable(at.cancelled, message)


def _as_chosen(statement: TrainModel, bound: BoundTrain) -> TrainModel:
    """Return the statement with the features that AUTO stands for: trained again, a model has the same ones."""
    if bound.auto is None:
        return statement
    calls = [feature for feature in statement.features or () if lag_call(feature) is not None]
    return replace(statement, features=(*calls, *bound.auto.features))


def nothing_trained(statement: TrainModel) -> str:
    """Return the result of a statement whose model exists already."""
    return result_sql.notice(f"model {statement.name.name} exists already; nothing was trained")
