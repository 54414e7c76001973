"""Composition root: one of our statements in, a plain SELECT out whose rows are its result."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from grouplearn import sqltext, training
from grouplearn.catalog import functions, models, runs, store
from grouplearn.catalog.evaluation import evaluate_sql
from grouplearn.catalog.models import StoredModel
from grouplearn.catalog.schema import table
from grouplearn.catalog.views import best_sql
from grouplearn.data.run_directory import RunDirectory
from grouplearn.errors import BindError, ModelExists, ReadOnlyError, Span, did_you_mean
from grouplearn.learners import registry
from grouplearn.learners.base import Hyperparameter
from grouplearn.parser.render import render
from grouplearn.parser.statements import (
    Calibrate,
    DescribeLearner,
    DescribeModel,
    DropModel,
    EvaluateModel,
    ExplainTrain,
    OurStatement,
    Parameters,
    PlanFormat,
    QualifiedName,
    RenameModel,
    ResetCalibration,
    SetOption,
    ShowLearners,
    ShowModels,
    TrainModel,
    bind_parameters,
)
from grouplearn.plan import calibration
from grouplearn.plan.bind import bind, bind_learner
from grouplearn.plan.calibration import keep_correction
from grouplearn.plan.choose import Choice
from grouplearn.plan.definition import ModelDefinition
from grouplearn.plan.explain_html import explain_html
from grouplearn.plan.explain_json import explain_json
from grouplearn.plan.explain_text import explain_text
from grouplearn.plan.extract import extract
from grouplearn.plan.judge import Judge
from grouplearn.plan.measured import Measured, Ran, compare
from grouplearn.plan.options import check_setting, known_setting
from grouplearn.plan.physical import PhysicalPlan, definition
from grouplearn.runtime.job import Progress


@dataclass(frozen=True, slots=True)
class _Trained:
    """A model just trained and stored: how it was planned, and its identity."""

    physical: PhysicalPlan
    choice: Choice
    definition: ModelDefinition
    model: str


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
        self._progress = progress
        #: Shared between the cursors of one connection: some clients open a cursor per statement.
        self._settings = {} if settings is None else settings
        self._cancelled = threading.Event()
        #: How EXPLAIN TRAIN writes a plan where the statement does not say.
        self.plan_format: PlanFormat = "text"
        functions.register_all(connection)

    def answer(self, statement: OurStatement, text: str, parameters: Parameters = None) -> str:
        """Carry out ``statement`` (parsed from ``text``) and return a SELECT whose rows are its result."""
        self._cancelled.clear()
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
            EvaluateModel: self._evaluate,
            SetOption: self._set,
        }
        judge = Judge(self._connection, text)
        return handlers[type(statement)](bind_parameters(statement, parameters), judge)

    def interrupt(self) -> None:
        """Ask a running TRAIN to stop; it raises Cancelled within 2 s. May be called from any thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Let go of what the session registered on the connection."""
        functions.release(self._connection)

    # --- TRAIN and EXPLAIN -----------------------------------------------------------------------------------------

    def _train(self, statement: TrainModel, judge: Judge) -> str:
        trained = self._run(statement, judge)
        if trained is None:
            return _nothing_trained(statement)
        validated = trained.physical.bound.holdout.kind != "none"
        return best_sql(trained.definition, trained.model, trained.physical.bound.catalog, validated=validated)

    def _run(self, statement: TrainModel, judge: Judge) -> _Trained | None:
        """Train and store the model; None when it exists and IF NOT EXISTS was given."""
        catalog, schema = self._place(statement.name, judge)
        if self._exists(statement, catalog, schema, judge):
            return None
        reason = "a model cannot be stored in it, so nothing was trained"
        hint = "Open it without read_only, or name another one."
        self._refuse_read_only(catalog, statement.name.span, judge, reason, hint)
        with RunDirectory.beside(self._file(catalog)) as directory:
            with self._transaction():
                bound = bind(judge, statement, catalog, schema, self._settings)
                physical = training.planned(self._connection, judge, bound)
                dataset, groups = extract(
                    self._connection, judge, bound, physical.stats, directory, bound.options.memory_limit
                )
            choice = training.choose(physical, self._cancelled.is_set)
            physical = training.settled(physical, choice)
            job = training.job_of(physical, dataset, groups, judge)
            outcome = training.run(physical, choice, job, self._progress, self._cancelled.is_set)
        stored = definition(physical, render(statement))
        with self._transaction():
            model = store.write(self._connection, stored, outcome, replace=statement.replace)
        return _Trained(physical, choice, stored, model)

    def _explain(self, statement: ExplainTrain, judge: Judge) -> str:
        train = statement.train
        if statement.analyze:
            return self._analyze(statement, judge)
        catalog, schema = self._place(train.name, judge)
        bound = bind(judge, train, catalog, schema, self._settings)
        physical = training.planned(self._connection, judge, bound)
        choice = training.choose(physical, self._cancelled.is_set)
        return self._explained(statement, training.settled(physical, choice), choice, None)

    def _analyze(self, statement: ExplainTrain, judge: Judge) -> str:
        trained = self._run(statement.train, judge)
        if trained is None:
            return _nothing_trained(statement.train)
        physical, learner = trained.physical, trained.physical.bound.learner.name
        units = table(physical.bound.catalog, "units")
        query = f"SELECT unit, worker, started, ended, loaded + fetched, kind FROM {units} WHERE model = ?::UUID"
        ran = [Ran(*row) for row in self._rows(query, [trained.model])]
        measured = compare(physical, trained.choice, ran, physical.rates.of(learner))
        return self._explained(statement, physical, trained.choice, keep_correction(learner, measured))

    def _explained(
        self, statement: ExplainTrain, physical: PhysicalPlan, choice: Choice, measured: Measured | None
    ) -> str:
        match statement.format or self.plan_format:
            case "json":
                return f"SELECT {sqltext.string(explain_json(physical, choice, measured))} AS plan"
            case "html":
                page = explain_html(physical, choice, training.schedule_of(physical, choice), measured)
                return f"SELECT {sqltext.string(page)} AS plan"
            case _:
                return _column("plan", explain_text(physical, choice, measured))

    def _calibrate(self, statement: Calibrate, judge: Judge) -> str:
        learner = bind_learner(judge, statement.learner).name if statement.learner else None
        columns = ("subject", "coefficient", "default", "measured", "unit")
        return _table(columns, training.calibrate(learner, self._cancelled.is_set))

    def _reset_calibration(self, statement: ResetCalibration, judge: Judge) -> str:  # noqa: ARG002
        return _notice("calibration is reset" if calibration.forget() else "nothing was calibrated")

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

    def _refuse_read_only(self, catalog: str, span: Span, judge: Judge, reason: str, hint: str) -> None:
        query = "SELECT 1 FROM duckdb_databases() WHERE database_name = ? AND readonly"
        if self._rows(query, [catalog]):
            message = f'database "{catalog}" is read-only: {reason}'
            raise ReadOnlyError(message, text=judge.text, span=span, hint=hint)

    def _refuse_change(self, catalog: str, span: Span, judge: Judge) -> None:
        self._refuse_read_only(catalog, span, judge, "its models cannot be changed", "Open it without read_only.")

    # --- the other statements --------------------------------------------------------------------------------------

    def _show_models(self, statement: ShowModels, judge: Judge) -> str:  # noqa: ARG002
        return models.show_models_sql(self._connection)

    def _show_learners(self, statement: ShowLearners, judge: Judge) -> str:  # noqa: ARG002
        learners = [registry.learner(name) for name in registry.names()]
        rows = [
            (
                learner.name,
                ", ".join(sorted(task.value for task in learner.tasks)),
                learner.access.value,
                learner.requires is None or importlib.util.find_spec(learner.requires[0]) is not None,
                learner.summary,
            )
            for learner in learners
        ]
        return _table(("learner", "tasks", "access", "installed", "summary"), rows)

    def _describe_learner(self, statement: DescribeLearner, judge: Judge) -> str:
        learner = bind_learner(judge, statement.name)
        rows = [
            (entry.name, entry.kind, _shown(entry.default), _allowed(entry), entry.doc, entry.source)
            for entry in learner.hyperparameters
        ]
        return _table(("hyperparameter", "type", "default", "allowed", "meaning", "source"), rows)

    def _describe_model(self, statement: DescribeModel, judge: Judge) -> str:
        return models.describe_sql(self._model(statement.name, judge))

    def _drop(self, statement: DropModel, judge: Judge) -> str:
        name = statement.name.name
        if statement.if_exists and not self._is_there(statement.name, judge):
            return _notice(f"model {name} does not exist; nothing was dropped")
        location = self._model(statement.name, judge).location
        self._refuse_change(location.catalog, statement.name.span, judge)
        with self._transaction():
            store.drop(self._connection, location.catalog, location.schema, location.name)
        return _notice(f"model {name} is dropped")

    def _is_there(self, name: QualifiedName, judge: Judge) -> bool:
        try:
            place = self._place(name, judge)
        except BindError:
            return False
        return models.load_definition(self._connection, *place, name.name) is not None

    def _rename(self, statement: RenameModel, judge: Judge) -> str:
        location = self._model(statement.name, judge).location
        self._refuse_change(location.catalog, statement.name.span, judge)
        new_name = statement.new_name.value
        conflict = store.exists(self._connection, location.catalog, location.schema, new_name)
        if conflict is not None and new_name.casefold() != location.name.casefold():
            raise ModelExists(conflict.message, text=judge.text, span=statement.new_name.span)
        with self._transaction():
            store.rename(self._connection, location.catalog, location.schema, location.name, new_name)
        return _notice(f"model {statement.name.name} is now {new_name}")

    def _evaluate(self, statement: EvaluateModel, judge: Judge) -> str:
        model = self._model(statement.name, judge)
        where = ("WHERE", statement.where) if statement.where else ()
        judge.describe("SELECT * FROM", statement.source, *where)
        query = evaluate_sql(model, statement.source.text, statement.where.text if statement.where else None)
        try:
            judge.describe(query)
        except BindError as error:
            message = f'model "{model.definition.name}" cannot read these rows: {error.message}'
            raise judge.error(message, statement.source.span) from None
        return query

    def _set(self, statement: SetOption, judge: Judge) -> str:
        name = statement.name.value.casefold()
        if statement.value is None:
            self._settings.pop(known_setting(judge, statement.name), None)
            return _notice(f"{name} is reset")
        setting, value = check_setting(judge, statement.name, statement.value)
        self._settings[setting] = value
        return _notice(f"{name} is {value}")

    # --- names and transactions ------------------------------------------------------------------------------------

    def _place(self, name: QualifiedName, judge: Judge) -> tuple[str, str]:
        """Return the database and schema a model name speaks of."""
        catalog, schema = self._rows("SELECT current_database(), current_schema()")[0]
        databases = [row[0] for row in self._rows("SELECT database_name FROM duckdb_databases() WHERE NOT internal")]
        qualifiers = list(name.parts[:-1])
        if len(qualifiers) == 2:
            catalog, schema = qualifiers[0].value, qualifiers[1].value
        elif qualifiers and qualifiers[0].value.casefold() in map(str.casefold, databases):
            catalog, schema = qualifiers[0].value, "main"
        elif qualifiers:
            schema = qualifiers[0].value
        query = "SELECT database_name, schema_name FROM duckdb_schemas() WHERE lower(database_name) = lower(?)"
        places = {row[1].casefold(): row for row in self._rows(query, [catalog])}
        if not places or catalog.casefold() not in map(str.casefold, databases):
            message = f'there is no database "{catalog}" that can hold models'
            span = qualifiers[0].span if qualifiers else name.span
            raise judge.error(message, span, did_you_mean(catalog, databases))
        if schema.casefold() not in places:
            known = [row[1] for row in places.values()] + (databases if len(qualifiers) == 1 else [])
            message = f'there is no schema "{schema}" in database "{catalog}"'
            raise judge.error(message, qualifiers[-1].span, did_you_mean(schema, known))
        found: tuple[str, str] = places[schema.casefold()]
        return found

    def _file(self, catalog: str) -> str | None:
        """Return the path of a database's file, None for one in memory."""
        path: str | None = self._rows("SELECT path FROM duckdb_databases() WHERE database_name = ?", [catalog])[0][0]
        return path

    def _model(self, name: QualifiedName, judge: Judge) -> StoredModel:
        """Return an existing model, or raise with the closest name."""
        model = models.load_definition(self._connection, *self._place(name, judge), name.name)
        if model is None:
            raise runs.unknown_model(self._connection, judge, name.name, name.span)
        return model

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the body in the user's transaction if there is one, else in one of our own."""
        if self._in_transaction():
            yield
            return
        self._connection.execute("BEGIN TRANSACTION")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _in_transaction(self) -> bool:
        """Outside a transaction each statement has an id of its own (a BEGIN that fails would abort the user's)."""
        first, second = (self._rows("SELECT txid_current()") for _ in range(2))
        return first == second

    def _rows(self, query: str, values: list[str] | None = None) -> list[tuple[Any, ...]]:
        # All rows at once: DuckDB refuses some calls on a connection with a result half read.
        return self._connection.execute(query, values).fetchall()


def _shown(value: Any) -> str:
    return "none" if value is None else ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _allowed(parameter: Hyperparameter) -> str:
    if parameter.choices:
        return ", ".join(parameter.choices)
    low, high = parameter.low, parameter.high
    if low is None and high is None:
        return ""
    least = "" if low is None else f"{'>' if parameter.open_low else '>='} {low:g}"
    most = "" if high is None else f"<= {high:g}"
    return " and ".join(part for part in (least, most) if part)


def _nothing_trained(statement: TrainModel) -> str:
    return _notice(f"model {statement.name.name} exists already; nothing was trained")


def _notice(message: str) -> str:
    return f"SELECT {sqltext.string(message)} AS result"


def _column(name: str, lines: list[str]) -> str:
    """Return a SELECT of one text column, its rows in order."""
    return _table((name,), [(line,) for line in lines])


def _table(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return a SELECT of literal rows, in order."""
    values = ", ".join("(" + ", ".join(sqltext.literal(value) for value in row) + ")" for row in rows)
    columns = ", ".join(sqltext.identifier(name) for name in names)
    return f"SELECT * FROM (VALUES {values}) AS t({columns})"
