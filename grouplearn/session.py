"""Composition root: one of our statements in, a plain SELECT out whose rows are its result."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from grouplearn import altering, answers, durable, planning, resuming, retrying, sqltext, training, transferring
from grouplearn.catalog import functions, models, store
from grouplearn.catalog.evaluation import evaluate_sql, source_rows
from grouplearn.catalog.flaws import refuse_flaws
from grouplearn.catalog.fragments import one_query
from grouplearn.catalog.identities import identity_at
from grouplearn.catalog.models import StoredModel
from grouplearn.catalog.prediction import predictor_for
from grouplearn.catalog.schema import Location, table
from grouplearn.catalog.trust import trained_here
from grouplearn.catalog.unreadable import doubtful, unreadable
from grouplearn.catalog.views import best_sql
from grouplearn.data.run_directory import RunDirectory, runs_of
from grouplearn.databases import Databases
from grouplearn.errors import BindError, ModelExists
from grouplearn.finishing import finish, tidy
from grouplearn.interrupting import heard
from grouplearn.learners import registry
from grouplearn.parser.binding import Parameters, bind_parameters
from grouplearn.parser.render import render
from grouplearn.parser.statements import (
    AddTrial,
    Calibrate,
    DescribeLearner,
    DescribeModel,
    DropModel,
    DropRun,
    EvaluateModel,
    ExplainTrain,
    Nested,
    OurStatement,
    PlanFormat,
    QualifiedName,
    RenameModel,
    ResetCalibration,
    ResumeModel,
    RetryFailed,
    SetOption,
    ShowLearners,
    ShowModels,
    ShowRuns,
    Sql,
    StopTrial,
    TrainModel,
)
from grouplearn.plan import calibration
from grouplearn.plan.bind import bind, bind_learner
from grouplearn.plan.calibration import keep_correction
from grouplearn.plan.choose import Choice
from grouplearn.plan.database_memory import database_within
from grouplearn.plan.definition import ROW, ModelDefinition
from grouplearn.plan.explain_html import explain_html
from grouplearn.plan.explain_json import explain_json
from grouplearn.plan.explain_text import explain_text
from grouplearn.plan.extract import extract, refuse_nothing
from grouplearn.plan.judge import Judge
from grouplearn.plan.measured import Measured, Ran, compare
from grouplearn.plan.options import check_setting, known_setting
from grouplearn.plan.physical import PhysicalPlan, definition
from grouplearn.plan.results_memory import refuse_excess
from grouplearn.plan.unused import unused
from grouplearn.resuming import Beginning
from grouplearn.runtime.job import Progress
from grouplearn.search.procedures import PROCEDURES
from grouplearn.steering import IN_TRAINING, Place
from grouplearn.workplace import Workplace

#: Words of the statements of DuckDB's that make a macro.
_MAKES_MACROS = re.compile(r"\b(MACRO|FUNCTION)\b", re.IGNORECASE)
#: First words of DuckDB's statements that answer with rows, and of those that may change something: these are explained, not
#: run, to see what is wrong with them.
_QUERIES = ("FROM", "SELECT")
_CHANGES = ("WITH", "CREATE", "INSERT", "COPY", "UPDATE", "DELETE", "MERGE")


@dataclass(frozen=True, slots=True)
class _Trained:
    """A model just trained and stored: how it was planned, its identity, and how long each unit took."""

    physical: PhysicalPlan
    choice: Choice
    definition: ModelDefinition
    model: str
    seconds: Mapping[int, float]


class Session:
    """Carries out our statements on one DuckDB connection.

    The database is touched only by SQL on that connection, so temporary tables, uncommitted rows, transactions and the
    search path are the user's own.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        progress: Progress | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._connection = connection
        self._databases = Databases(connection)
        self._progress = progress
        #: Shared between the cursors of one connection: some clients open a cursor per statement.
        self._settings = {} if settings is None else settings
        self._cancelled = threading.Event()
        #: How EXPLAIN TRAIN writes a plan where the statement does not say.
        self.plan_format: PlanFormat = "text"
        functions.register_all(connection)
        self._guard = predictor_for(connection).guard
        self._guard.settings = self._settings
        #: Whether a durable run may have left its directory to a transaction of the user.
        self._left = False

    def answer(self, statement: OurStatement, text: str, parameters: Parameters = None) -> str:
        """Carry out ``statement`` (parsed from ``text``) and return a SELECT whose rows are its result.

        For a statement of DuckDB's with ours inside, that is the statement with queries in their places.
        """
        begun = self._begun(statement, text, parameters)
        with heard(self._cancelled.is_set):
            return self._answer(*begun)

    def answers(self, statement: Nested, text: str, parameters: Parameters = None) -> list[str]:
        """Return ``answer``, and after it the queries that are in the places of ours."""
        begun = self._begun(statement, text, parameters)
        with heard(self._cancelled.is_set):
            pieces = self._pieces(*begun)
        return [_joined(pieces), *(piece for piece in pieces if isinstance(piece, str))]

    def _begun(self, statement: OurStatement, text: str, parameters: Parameters) -> tuple[Any, Judge]:
        self._cancelled.clear()
        if not isinstance(statement, SetOption):
            self._guard.refuse_hidden(self._connection, again=not isinstance(statement, TrainModel))
        tidy(self._connection)
        if "getvariable" in text.casefold():
            self.expect_variables()
        return bind_parameters(statement, parameters), Judge(self._connection, text)

    def _answer(self, statement: OurStatement, judge: Judge) -> str:
        handlers: Mapping[type, Callable[[Any, Judge], str]] = {
            TrainModel: self._train,
            ExplainTrain: self._explain,
            Calibrate: self._calibrate,
            ResetCalibration: self._reset_calibration,
            ShowModels: self._show_models,
            ShowLearners: self._show_learners,
            DescribeModel: self._describe_model,
            DescribeLearner: self._describe_learner,
            DropModel: self._drop,
            RenameModel: self._rename,
            ResumeModel: self._resume,
            RetryFailed: self._retry,
            ShowRuns: lambda _, judge: resuming.show(self._workplace(), judge),
            DropRun: lambda statement, judge: resuming.drop(statement, self._databases.current_file(), judge),
            StopTrial: self._stop_trial,
            AddTrial: self._add_trial,
            EvaluateModel: self._evaluate,
            **transferring.handlers(self._connection, self._databases),
            SetOption: self._set,
            Nested: self._nested,
        }
        return handlers[type(statement)](statement, judge)

    def settle(self) -> None:
        """Remove what durable runs have left in a transaction that has been committed since."""
        if self._left:
            with self._connection.cursor() as other:
                tidy(other)

    def notice(self, text: str) -> None:
        """Take note of SQL that has run on the connection: ``predict`` must know its temporary macros."""
        functions.notice(self._connection, text)
        if _MAKES_MACROS.search(text):
            self._guard.forget()

    def expect_variables(self, text: str = "") -> None:
        """Let ``predict`` know the variables of the connection, and those that SQL is about to set on it."""
        functions.expect_variables(self._connection, text)

    def interrupt(self) -> None:
        """Ask a running TRAIN to stop; it raises Cancelled within 2 s. May be called from any thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Let go of what the session registered on the connection."""
        with suppress(duckdb.Error):  # the connection may be closed already
            self.settle()
        functions.release(self._connection)

    # --- TRAIN and EXPLAIN -----------------------------------------------------------------------------------------

    def _train(self, statement: TrainModel, judge: Judge) -> str:
        trained = self._run(statement, judge)
        if trained is None:
            return _nothing_trained(statement)
        with self._stored(statement):
            calibration.note_run(trained.physical, trained.choice, trained.seconds, judge.outside)
        validated = trained.physical.bound.holdout.kind != "none"
        return best_sql(
            self._connection, trained.definition, trained.model, trained.physical.bound.catalog, validated=validated
        )

    def _run(self, statement: TrainModel, judge: Judge, *, every: bool = False) -> _Trained | None:
        """Train and store the model; None when it exists and IF NOT EXISTS was given. ``every``: as in ``planning.choose``."""
        began = time.time()
        catalog, schema = self._databases.of(statement.name, judge)
        if self._exists(statement, catalog, schema, judge):
            return None
        reason = "a model cannot be stored in it, so nothing was trained"
        hint = "Open it without read_only, or name another one."
        self._databases.refuse_read_only(catalog, statement.name.span, judge, reason, hint)
        self._databases.refuse_read_only_transaction(catalog, statement.name.span, judge)
        file = self._databases.file(catalog)
        with RunDirectory.beside(file, judge.outside.refusal) as directory:
            with self._databases.transaction():
                replaced = identity_at(self._connection, catalog, schema, statement.name.name)
                bound = bind(judge, statement, catalog, schema, self._settings)
                limit = bound.options.memory_limit
                with database_within(self._connection, limit, self._settings):
                    physical = planning.planned(self._connection, judge, bound)
                    refuse_nothing(judge, bound, physical.stats.groups)
                    refuse_excess(judge, physical)
                    training.prepare(physical, self._cancelled.is_set)
                    directory.durable = resuming.is_durable(physical, file, judge, directory.closed)
                    kept = 0 if directory.durable else limit
                    dataset, groups = extract(self._connection, judge, bound, physical.stats, directory, kept)
            choice = planning.choose(physical, self._cancelled.is_set, every=every)
            physical = planning.settled(physical, choice)
            job = training.job_of(physical, dataset, groups, judge)
            stored = definition(physical, render(statement))
            trained_here(self._connection, stored, catalog)
            beginning = Beginning(began, replaced.id if replaced else None, self._cancelled.is_set)
            ledger = resuming.kept(physical, choice, job, stored, beginning, directory)
            steering = resuming.steering(bound.learner, bound.search, ledger)
            with (
                IN_TRAINING.entered(self._key(catalog, schema, bound.name), steering),
                resuming.resumable(stored, ledger),
            ):
                outcome = training.run(
                    physical, choice, job, self._progress, self._cancelled.is_set, began, steering, ledger
                )
            stored = stored if outcome.configs is None else replace(stored, configs=outcome.configs)

            def store_it() -> str | None:
                identity, replaces = directory.identity, statement.replace
                try:
                    return store.write(self._connection, stored, outcome, replace=replaces, identity=identity)
                except ModelExists:  # since it was trained
                    if self._exists(statement, catalog, schema, judge):
                        return None
                    raise

            model = self._databases.write(catalog, store_it, statement.name.span, judge)
            finish(directory, self._databases)
            self._left = directory.durable
        seconds = {result.unit.id: result.busy for result in outcome.units}
        return None if model is None else _Trained(physical, choice, stored, model, seconds)

    def _resume(self, statement: ResumeModel, judge: Judge) -> str:
        self._left = True
        return resuming.resume(statement, judge, self._workplace())

    def _retry(self, statement: RetryFailed, judge: Judge) -> str:
        catalog, schema = self._databases.of(statement.name, judge)
        stored = identity_at(self._connection, catalog, schema, statement.name.name)
        file = self._databases.file(catalog)
        closed = file is None or judge.outside.refusal(runs_of(file)) is not None
        if stored is None and file and not closed and durable.of_model(file, schema, statement.name.name):
            self._left, unfinished = True, ResumeModel(statement.name, statement.options)
            return resuming.resume(unfinished, judge, self._workplace(), again=True)
        model = self._databases.model(statement.name, judge)
        return retrying.retry(statement, model, judge, self._workplace())

    def _workplace(self) -> Workplace:
        cancelled = self._cancelled.is_set
        return Workplace(self._connection, self._databases, self._settings, self._progress, cancelled, self._key)

    def _explain(self, statement: ExplainTrain, judge: Judge) -> str:
        train = statement.train
        if statement.analyze:
            return self._analyze(statement, judge)
        catalog, schema = self._databases.of(train.name, judge)
        bound = bind(judge, train, catalog, schema, self._settings)
        physical = planning.planned(self._connection, judge, bound)
        choice = planning.choose(physical, self._cancelled.is_set, every=True)
        physical = replace(planning.settled(physical, choice), unused=unused(judge, bound))
        return self._explained(statement, physical, choice, None)

    def _analyze(self, statement: ExplainTrain, judge: Judge) -> str:
        search = statement.train.search
        if search is not None and search.method in PROCEDURES:
            hint = "EXPLAIN TRAIN shows the plan; after TRAIN, the table grouplearn.units has every unit as it ran."
            message = f"EXPLAIN ANALYZE compares one round with its plan, and OVER {search.method.upper()} runs several"
            raise judge.error(message, search.span, hint)
        trained = self._run(statement.train, judge, every=True)
        if trained is None:
            return _nothing_trained(statement.train)
        physical, learner = trained.physical, trained.physical.bound.learner.name
        units = table(physical.bound.catalog, "units")
        query = f"SELECT unit, worker, started, ended, loaded + fetched, kind FROM {units} WHERE model = ?::UUID"
        ran = [Ran(*row) for row in self._databases.rows(query, [trained.model])]
        with self._stored(statement.train):
            measured = compare(physical, trained.choice, ran, physical.rates.of(learner))
            kept = keep_correction(learner, measured, judge.outside)
            return self._explained(statement, physical, trained.choice, kept)

    def _stored(self, statement: TrainModel) -> AbstractContextManager[None]:
        """Hear interrupts of what follows a training, whose model is stored."""
        message = f'the statement was interrupted after model "{statement.name.name}" was stored'
        return heard(self._cancelled.is_set, message)

    def _explained(
        self, statement: ExplainTrain, physical: PhysicalPlan, choice: Choice, measured: Measured | None
    ) -> str:
        match statement.format or self.plan_format:
            case "json":
                return f"SELECT {sqltext.string(explain_json(physical, choice, measured))} AS plan"
            case "html":
                page = explain_html(physical, choice, planning.schedule_of(physical, choice), measured)
                return f"SELECT {sqltext.string(page)} AS plan"
            case _:
                return answers.column("plan", explain_text(physical, choice, measured))

    def _calibrate(self, statement: Calibrate, judge: Judge) -> str:
        judge.outside.refuse(
            calibration.path().parent, judge.text, statement.learner.span if statement.learner else None
        )
        learner = bind_learner(judge, statement.learner).name if statement.learner else None
        columns = ("subject", "coefficient", "default", "measured", "unit")
        return answers.table(columns, training.calibrate(learner, self._cancelled.is_set))

    def _reset_calibration(self, statement: ResetCalibration, judge: Judge) -> str:  # noqa: ARG002
        judge.outside.refuse(calibration.path().parent, judge.text, None)
        return answers.notice("calibration is reset" if calibration.forget() else "nothing was calibrated")

    def _exists(self, statement: TrainModel, catalog: str, schema: str, judge: Judge) -> bool:
        """Return whether the model exists and IF NOT EXISTS was given; raise when it may not be written."""
        name = statement.name.name
        conflict = store.exists(self._connection, catalog, schema, name)
        if conflict is None:
            return False
        if conflict.is_model and statement.if_not_exists:
            return True
        if conflict.is_model and statement.replace:
            return False
        span = statement.name.span
        written = judge.text[span.start : span.end]
        hint = (
            f"Write TRAIN OR REPLACE MODEL {written} to train it anew." if conflict.is_model else "Choose another name."
        )
        raise ModelExists(conflict.message, text=judge.text, span=span, hint=hint)

    # --- the other statements --------------------------------------------------------------------------------------

    def _show_models(self, statement: ShowModels, judge: Judge) -> str:  # noqa: ARG002
        return models.show_models_sql(self._connection)

    def _nested(self, statement: Nested, judge: Judge) -> str:
        return _joined(self._pieces(statement, judge))

    def _pieces(self, statement: Nested, judge: Judge) -> list[str | Sql]:
        """Return the statement with queries in the places of ours; DuckDB's errors have their places in the user's text."""
        pieces = [part if isinstance(part, Sql) else f"{self._answer(part, judge)}\n" for part in statement.parts]
        begun = _joined(pieces).lstrip("( \n").upper()
        if begun.startswith(_QUERIES):
            judge.describe(*pieces)
        elif begun.startswith(_CHANGES):
            judge.rows("EXPLAIN", *pieces)
        return pieces

    def _show_learners(self, statement: ShowLearners, judge: Judge) -> str:  # noqa: ARG002
        learners = [registry.learner(name) for name in registry.names()]
        rows = [
            (
                learner.name,
                ", ".join(sorted(task.value for task in learner.tasks)),
                learner.access.words,
                registry.is_installed(learner),
                learner.summary,
            )
            for learner in learners
        ]
        return answers.table(("learner", "tasks", "access", "installed", "summary"), rows)

    def _describe_learner(self, statement: DescribeLearner, judge: Judge) -> str:
        learner = bind_learner(judge, statement.name)
        rows = [
            (entry.name, entry.kind, answers.shown(entry.default), answers.allowed(entry), entry.doc, entry.source)
            for entry in learner.hyperparameters
        ]
        return answers.table(("hyperparameter", "type", "default", "allowed", "meaning", "source"), rows)

    def _describe_model(self, statement: DescribeModel, judge: Judge) -> str:
        steering = IN_TRAINING.find(self._key(*self._databases.of(statement.name, judge), statement.name.name))
        if steering is not None and steering.plan is not None:
            return altering.trials_sql(steering, steering.plan)
        return models.describe_sql(self._databases.model(statement.name, judge))

    def _drop(self, statement: DropModel, judge: Judge) -> str:
        # All are found before the first is dropped. Of a model whose schema was dropped its rows are left.
        there = [name for name in statement.names if not statement.if_exists or self._is_there(name, judge)]
        models_of = {name: self._databases.identity(name, judge).location for name in there}
        for name, location in models_of.items():
            self._databases.refuse_change(location.catalog, name.span, judge)
        told = [
            f"model {name.name} does not exist; nothing was dropped" for name in statement.names if name not in there
        ]
        for name, location in models_of.items():
            self._drop_one(name, location, statement, judge)
            told.append(f"model {name.name} is dropped")
        return answers.notice("; ".join(told))

    def _drop_one(self, name: QualifiedName, location: Location, statement: DropModel, judge: Judge) -> None:
        def drop() -> bool:
            return store.drop(self._connection, location.catalog, location.schema, location.name)

        if not self._databases.write(location.catalog, drop, name.span, judge) and not statement.if_exists:
            self._databases.identity(name, judge)  # raises: somebody else has just dropped it

    def _is_there(self, name: QualifiedName, judge: Judge) -> bool:
        try:
            place = self._databases.of(name, judge, gone=True)
        except BindError:
            return False
        return identity_at(self._connection, *place, name.name) is not None

    def _rename(self, statement: RenameModel, judge: Judge) -> str:
        location = self._databases.model(statement.name, judge).location
        self._databases.refuse_change(location.catalog, statement.name.span, judge)
        new_name = statement.new_name.value
        conflict = store.exists(self._connection, location.catalog, location.schema, new_name)
        if conflict is not None and new_name.casefold() != location.name.casefold():
            raise ModelExists(conflict.message, text=judge.text, span=statement.new_name.span)

        def rename() -> bool:
            return store.rename(self._connection, location.catalog, location.schema, location.name, new_name)

        if not self._databases.write(location.catalog, rename, statement.name.span, judge):
            self._databases.model(statement.name, judge)  # raises: somebody else has just renamed or dropped it
        return answers.notice(f"model {statement.name.name} is now {new_name}")

    def _stop_trial(self, statement: StopTrial, judge: Judge) -> str:
        return altering.stop_trial(
            statement, judge, self._key(*self._databases.of(statement.name, judge), statement.name.name)
        )

    def _add_trial(self, statement: AddTrial, judge: Judge) -> str:
        return altering.add_trial(
            statement, judge, self._key(*self._databases.of(statement.name, judge), statement.name.name)
        )

    def _key(self, catalog: str, schema: str, name: str) -> Place:
        """Return where a model in training is found: databases in memory are told apart by the connection."""
        file = self._databases.file(catalog) or f"{id(self._settings)}/{catalog}"
        return file, schema.casefold(), name.casefold()

    def _evaluate(self, statement: EvaluateModel, judge: Judge) -> str:
        model = self._databases.model(statement.name, judge)
        if model.definition.label_length:
            message = f'EVALUATE MODEL compares single values, and model "{model.definition.name}" predicts arrays'
            hint = f"Compare them in SQL: FROM {model.definition.name}_predict(...)."
            raise judge.error(message, statement.name.span, hint)
        refuse_flaws(self._connection, model, ("models", *model.form.tables))
        self._guard.admit(self._connection, model.definition)
        where = ("WHERE", statement.where) if statement.where else ()
        columns = judge.describe("SELECT * FROM", statement.source, *where)
        condition = statement.where.text if statement.where else None
        rows = source_rows(statement.source.text, condition)
        query = evaluate_sql(model, statement.source.text, condition, weighted=_has_weight(model, statement, judge))
        try:
            one_query(self._connection, query)
            judge.describe(query)
            numbers = doubtful(self._connection, model.definition, rows, columns)
            reason = unreadable(self._connection, rows, numbers)
        except BindError as error:
            reason = error.message
        if reason is not None:
            message = f'model "{model.definition.name}" cannot read these rows: {reason}'
            raise judge.error(message, statement.source.span)
        return query

    def _set(self, statement: SetOption, judge: Judge) -> str:
        name = statement.name.value.casefold()
        if statement.value is None:
            self._settings.pop(known_setting(judge, statement.name), None)
            return answers.notice(f"{name} is reset")
        setting, value = check_setting(judge, statement.name, statement.value)
        self._settings[setting] = value
        return answers.notice(f"{name} is {value}")


def _joined(pieces: Sequence[str | Sql]) -> str:
    return "\n".join(piece if isinstance(piece, str) else piece.text for piece in pieces)


def _has_weight(model: StoredModel, statement: EvaluateModel, judge: Judge) -> bool:
    """Return whether the rows to be judged have what the model's weight is made of."""
    weight = model.definition.weight_sql
    if weight is None:
        return False
    try:
        judge.describe(f"SELECT ({weight}\n) FROM (SELECT * FROM", statement.source, f"\n) AS {ROW}")
    except BindError:
        return False
    return True


def _nothing_trained(statement: TrainModel) -> str:
    return answers.notice(f"model {statement.name.name} exists already; nothing was trained")
