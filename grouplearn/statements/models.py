"""Statements about models and learners, and those that change existing models: SHOW, DESCRIBE, DROP, ALTER, EVALUATE."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext

from grouplearn.amounts import counted
from grouplearn.bind.alter import bind_added, bind_trial
from grouplearn.bind.bind import bind_learner
from grouplearn.bind.clauses.feature_advice import as_written
from grouplearn.bind.several import member_name
from grouplearn.bind.sql.checker import Column, SqlChecker
from grouplearn.catalog import models, views
from grouplearn.catalog.checks.fragments import one_query
from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.checks.unreadable import doubtful, unreadable
from grouplearn.catalog.combinations import Combination, combination_at
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import Location
from grouplearn.errors import BindError, ModelExists
from grouplearn.extract.counts.list_counts import list_error
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Hyperparameter
from grouplearn.models.definition import ROW
from grouplearn.models.forms.drift import endpoints_of
from grouplearn.parser.statements import (
    AddTrial,
    DescribeLearner,
    DescribeModel,
    DropModel,
    EvaluateModel,
    QualifiedName,
    RenameModel,
    ShowFunctions,
    ShowLearners,
    ShowModels,
    Sql,
    StopTrial,
)
from grouplearn.prediction.combined import columns_beside_keys, rows_of_learners
from grouplearn.prediction.evaluation import (
    asks_predict,
    evaluate_sql,
    every_level_sql,
    labels_sql,
    reading_sql,
    source_rows,
)
from grouplearn.prediction.group_models import refuse_damaged_weights
from grouplearn.prediction.macro import macro_comment, parameters_of
from grouplearn.prediction.prediction import held, predictor_for
from grouplearn.search.procedures import SearchPlan
from grouplearn.sqltext import folded, identifier, literal
from grouplearn.statements import result_sql
from grouplearn.statements.again.late import add_late_trial
from grouplearn.statements.context import StatementContext
from grouplearn.statements.workflow.trial_control import IN_TRAINING, AddCommand, StopCommand, TrialControl
from grouplearn.store import combined, objects
from grouplearn.store import writer as store
from grouplearn.store.left_over import drop_left_over, left_over

#: Rows in place of those that only DuckDB's own statements can read.
_NO_ROWS = "(SELECT NULL)"
#: Classes that an error names.
_SHOWN_CLASSES = 5


def show_models(statement: ShowModels, checker: SqlChecker, at: StatementContext) -> str:  # noqa: ARG001
    """Return a query of the models of all databases."""
    return models.show_models_sql(at.connection)


def show_functions(statement: ShowFunctions, checker: SqlChecker, at: StatementContext) -> str:
    """Return a query of the views and macros of a model: how they are called, and what they give."""
    with at.databases.transaction():
        several = at.databases.combination(statement.name)
        found = (
            [at.databases.model(statement.name, checker)]
            if several is None
            else combined.members_of(at.connection, several)
        )
    first, name = found[0].definition, statement.name.name
    kinds = views.suffixes(first) if several is None else ("",)
    endpoints = endpoints_of(first.output) if several is None else combined.endpoints_of_all(found)
    rows = [("view", as_written(f"{name}{suffix}"), views.comments()[suffix]) for suffix in kinds]
    for endpoint in endpoints:
        parameters = ", ".join(parameters_of(first, endpoint)[0])
        rows.append(
            ("macro", f"{as_written(f'{name}{endpoint.suffix}')}({parameters})", macro_comment(first, endpoint))
        )
    return result_sql.table(("kind", "call", "meaning"), rows)


def show_learners(statement: ShowLearners, checker: SqlChecker, at: StatementContext) -> str:  # noqa: ARG001
    """Return a query of all learners with their solvers, if they have several, the default first."""
    rows = [
        (
            learner.declaration.name,
            learner.declaration.solver or None,
            ", ".join(sorted(label.name for label in learner.declaration.labels)),
            learner.access.words,
            registry.is_installed(learner),
            learner.declaration.summary,
        )
        for learner in registry.every_way()
    ]
    return result_sql.table(("learner", "solver", "tasks", "access", "installed", "summary"), rows)


def describe_learner(statement: DescribeLearner, checker: SqlChecker, at: StatementContext) -> str:  # noqa: ARG001
    """Return a query of the hyperparameters of a learner."""
    ways = registry.ways(bind_learner(checker, statement.name))
    rows = [
        (way.declaration.solver or None, *_described(entry))
        for way in ways
        for entry in way.declaration.hyperparameters
    ]
    return result_sql.table(("solver", "hyperparameter", "type", "default", "allowed", "meaning", "source"), rows)


def _described(entry: Hyperparameter) -> tuple[str, ...]:
    return entry.name, entry.kind, result_sql.shown(entry.default), result_sql.allowed(entry), entry.doc, entry.source


def describe_model(statement: DescribeModel, checker: SqlChecker, at: StatementContext) -> str:
    """Return a query describing a model, or the trials of a search in training."""
    control = next(filter(None, map(IN_TRAINING.find, at.places_of(statement.name))), None)
    if control is not None and control.plan is not None:
        return _trials_sql(control, control.plan)
    with at.databases.transaction():
        if (several := at.databases.combination(statement.name)) is not None:
            return models.describe_several_sql(several, combined.members_of(at.connection, several))
        return result_sql.fixed(at.connection, models.describe_sql(at.databases.model(statement.name, checker)))


def stop_trial(statement: StopTrial, checker: SqlChecker, at: StatementContext) -> str:
    """Send a command to stop a trial in all groups; raise if there is no such trial in training."""
    control, _ = _search(statement.name, checker, at)
    trial = bind_trial(checker, statement.trial, {each.trial: each.config for each in control.standings()})
    control.send(StopCommand(trial))
    return result_sql.notice(f"trial {trial} stops at the end of this round")


def add_trial(statement: AddTrial, checker: SqlChecker, at: StatementContext) -> str:
    """Add a trial in all groups: to a search in training, or to a stored model whose states it can be made of."""
    if IN_TRAINING.find(at.place_of(statement.name, checker)) is None:
        return add_late_trial(statement, checker, at)
    control, plan = _search(statement.name, checker, at)
    standings = control.standings()
    trials = {each.trial: each.config for each in standings}
    going = frozenset(each.trial for each in standings if each.going_on)
    config, parent = bind_added(checker, statement, control.learner, plan, trials, going)
    control.send(AddCommand(config, parent))
    return result_sql.notice("the trial begins with the next round")


def _trials_sql(control: TrialControl, plan: SearchPlan) -> str:
    """Return a SELECT of the trials of a search at its last barrier."""
    rows = [
        (
            each.trial,
            ", ".join(f"{name} = {result_sql.shown(each.config[name])}" for name in plan.searched),
            each.epochs,
            each.going_on,
        )
        for each in control.standings()
    ]
    return result_sql.table(("trial", "hyperparameters", "epochs", "groups_going_on"), rows)


def _search(name: QualifiedName, checker: SqlChecker, at: StatementContext) -> tuple[TrialControl, SearchPlan]:
    control = IN_TRAINING.find(at.place_of(name, checker))
    if control is None:
        message = f'this process is not training a model "{name.name}"'
        hint = "Trials are stopped and added while TRAIN runs, from another connection of the same process."
        raise checker.error(message, name.span, hint)
    if control.plan is None:
        message = f'the trials of model "{name.name}" train in one round, so none can be stopped or added'
        raise checker.error(message, name.span, "OVER HYPERBAND, ASHA, PBT and TPE train in rounds.")
    return control, control.plan


def drop(statement: DropModel, checker: SqlChecker, at: StatementContext) -> str:
    """Drop models; all are found before the first is dropped.

    Models whose schema was dropped still have rows; those whose catalog tables were dropped still have views and a macro.
    """
    found = {name: _location(name, checker, at, statement.if_exists) for name in statement.names}
    models_of = {name: location for name, location in found.items() if location is not None}
    for name, location in models_of.items():
        at.databases.refuse_read_only(location.catalog, name.span, checker)
    told = [
        f"model {name.name} does not exist; nothing was dropped" for name in statement.names if name not in models_of
    ]
    for name, location in models_of.items():
        if not _dropped(name, location, checker, at) and not statement.if_exists:
            at.databases.identity(name, checker)  # raises: another connection has dropped it meanwhile
        told.append(f"model {name.name} is dropped")
    return result_sql.notice("; ".join(told))


def _dropped(name: QualifiedName, location: Location, checker: SqlChecker, at: StatementContext) -> bool:
    several = combination_at(at.connection, location.catalog, location.schema, location.name)

    def drop_it() -> bool:
        if several is not None:
            combined.drop(at.connection, several)
            return True
        dropped = store.drop(at.connection, location.catalog, location.schema, location.name)
        return dropped or drop_left_over(at.connection, location)

    return at.databases.write(location.catalog, drop_it, name.span, checker)


def _location(name: QualifiedName, checker: SqlChecker, at: StatementContext, if_exists: bool) -> Location | None:
    """Return where a model, or what remains of it, is; None if there is nothing, with IF EXISTS."""
    if (several := at.databases.combination(name)) is not None:
        return several.location
    try:
        found = at.databases.identity(name, checker).location
    except BindError:
        for catalog, schema in at.databases.places(name):
            location = Location(catalog, schema, name.name)
            if left_over(at.connection, location):
                return location
        if if_exists:
            return None
        raise
    at.databases.refuse_member(found, name.span, checker)
    return found


def rename(statement: RenameModel, checker: SqlChecker, at: StatementContext) -> str:
    """Give a model another name."""
    if (several := at.databases.combination(statement.name)) is not None:
        return _rename_several(several, statement, checker, at)
    model = at.databases.model(statement.name, checker)
    location = model.location
    at.databases.refuse_member(location, statement.name.span, checker)
    at.databases.refuse_change(location.catalog, statement.name.span, checker)
    new_name = statement.new_name.value
    conflict = objects.exists(
        at.connection,
        location.catalog,
        location.schema,
        new_name,
        suffixes=views.suffixes(model.definition),
        macros=views.macros_of(model.definition.learner),
    )
    if conflict is not None and new_name.casefold() != location.name.casefold():
        raise ModelExists(conflict.message, text=checker.text, span=statement.new_name.span)

    def rename_it() -> bool:
        return store.rename(at.connection, location.catalog, location.schema, location.name, new_name)

    if not at.databases.write(location.catalog, rename_it, statement.name.span, checker):
        at.databases.model(statement.name, checker)  # raises: another connection has renamed or dropped it meanwhile
    return result_sql.notice(f"model {statement.name.name} is now {new_name}")


def _rename_several(several: Combination, statement: RenameModel, checker: SqlChecker, at: StatementContext) -> str:
    location, new_name = several.location, statement.new_name
    at.databases.refuse_change(location.catalog, statement.name.span, checker)
    others = [] if folded(new_name.value) == folded(location.name) else [(new_name.value, several.learners[0])]
    others += [(member_name(new_name.value, each), each) for each in several.learners if others]
    for name, learner in others:
        suffixes, macros = views.suffixes_of(learner), views.macros_of(learner)
        place = at.connection, location.catalog, location.schema, name
        conflict = objects.exists(*place, suffixes=suffixes, macros=macros)
        if conflict is not None:
            raise ModelExists(conflict.message, text=checker.text, span=new_name.span)

    def rename_it() -> None:
        combined.rename(at.connection, several, new_name.value)

    at.databases.write(location.catalog, rename_it, statement.name.span, checker)
    return result_sql.notice(f"model {statement.name.name} is now {new_name.value}")


def evaluate(statement: EvaluateModel, checker: SqlChecker, at: StatementContext) -> str:
    """Return a query of a model's metrics on other rows: as they are now, whatever other connections train meanwhile."""
    with at.databases.transaction():
        if (several := at.databases.combination(statement.name)) is not None:
            return _evaluated_several(several, statement, checker, at)
        model = at.databases.model(statement.name, checker)
        source, where, weighted = _evaluable(model, statement, checker, at)
        if statement.every_level is not None:
            return result_sql.fixed(at.connection, every_level_sql(model, source, where, weighted=weighted))
        asked = asks_predict(model)
        with nullcontext() if asked is None else held(at.connection, model, asked):
            evaluated = result_sql.fixed(at.connection, evaluate_sql(model, source, where, weighted=weighted))
            return result_sql.arranged(evaluated, model.definition, at)


def _evaluated_several(
    several: Combination, statement: EvaluateModel, checker: SqlChecker, at: StatementContext
) -> str:
    """Return a query of the metrics of each group's best learner."""
    if statement.every_level is not None:
        message = f'model "{several.location.name}" is of several learners, and AT EVERY LEVEL judges a model of one'
        hint = f"Write {' or '.join(part.name for part in several.members)} in its place."
        raise checker.error(message, statement.every_level, hint)
    members, parts = combined.members_of(at.connection, several), []
    *keys, learner, level = columns_beside_keys(members[0].definition, "learner", "model_level")
    (source, where, weighted), *_ = [_evaluable(member, statement, checker, at) for member in members]
    with ExitStack() as until_evaluated:
        own_rows = rows_of_learners(members, source_rows(source, where))
        for name, member, rows in zip(several.learners, members, own_rows, strict=True):
            if (asked := asks_predict(member)) is not None:
                until_evaluated.enter_context(held(at.connection, member, asked))
            named = f"CASE WHEN {level} IS NOT NULL THEN {literal(name)} END AS {learner}"
            evaluated = evaluate_sql(member, f"({rows})", weighted=weighted)
            parts.append(f"SELECT *, {named} FROM ({evaluated})")
        first, order = ", ".join([*keys, learner]), ", ".join([f"{level} IS NULL", *keys])
        every = " UNION ALL BY NAME ".join(parts)
        query = f"SELECT {first}, * EXCLUDE ({first}) FROM ({every}) ORDER BY {order}"
        return result_sql.arranged(result_sql.fixed(at.connection, query), members[0].definition, at)


def _evaluable(
    model: StoredModel, statement: EvaluateModel, checker: SqlChecker, at: StatementContext
) -> tuple[str, str | None, bool]:
    """Return FROM, the condition of WHERE and whether rows have weights; raise if the model cannot be judged by the rows."""
    if model.definition.label_length:
        message = f'EVALUATE MODEL compares single values, and model "{model.definition.name}" predicts arrays'
        hint = f"Compare them in SQL: FROM {model.definition.name}_predict(...)."
        raise checker.error(message, statement.name.span, hint)
    if statement.every_level is not None and model.form.reason:
        message = f'model "{model.definition.name}" predicts by a function, which takes the finest level that a row has'
        raise checker.error(message, statement.every_level, "Leave out AT EVERY LEVEL.")
    refuse_invalid_rows(at.connection, model, ("models", *model.form.tables))
    if "artifacts" in model.form.tables:
        refuse_damaged_weights(at.connection, model)
    predictor_for(at.connection).guard.admit(at.connection, model.definition)
    # The query does not see an enclosing WITH.
    source, predicate = (statement.seen, None) if statement.seen else (statement.source, statement.where)
    columns = checker.describe("SELECT * FROM", source, *(("WHERE", predicate) if predicate else ()))
    if (name := _read_twice(model, columns)) is not None:
        message = f'FROM has more than one column "{name}", and model "{model.definition.name}" reads one of that name'
        raise checker.error(
            message, statement.source.span, f"Choose one: ON (SELECT a.{identifier(name)}, ... FROM ...)."
        )
    weighted = _has_weight(model, source, checker)
    where = predicate.text if predicate else None
    if (reason := _unreadable(model, source, where, columns, checker, weighted=weighted)) is not None:
        message = f'model "{model.definition.name}" cannot read these rows: {reason[0]}'
        raise checker.error(message, statement.source.span, *reason[1:])
    return source.text, where, weighted


def _unreadable(
    model: StoredModel,
    source: Sql,
    where: str | None,
    columns: Sequence[Column],
    checker: SqlChecker,
    *,
    weighted: bool,
) -> tuple[str, ...] | None:
    """Return why a model cannot read these rows, and maybe a hint; None if it can."""
    rows = source_rows(source.text, where)
    try:
        # What the model's expressions are in is one query, whatever the rows are: DuckDB makes several of a PIVOT without IN.
        one_query(checker.connection, evaluate_sql(model, _NO_ROWS, weighted=weighted))
        checker.describe(reading_sql(model, source.text, where, weighted=weighted))
        numbers = doubtful(checker.connection, model.definition, rows, columns)
        reason = unreadable(checker.connection, rows, numbers)
        reason = _knows_no_label(model, source.text, where, checker) if reason is None else reason
    except BindError as error:
        reason = error.message
    return _list_flaw(model, rows, checker) if reason is None else (reason,)


def _list_flaw(model: StoredModel, rows: str, checker: SqlChecker) -> tuple[str, ...] | None:
    for entry in model.definition.items:
        lists = f"FROM (SELECT ({entry.sql}\n) AS entries FROM {rows} AS {ROW})"
        if entry.item.is_list and (flaw := list_error(checker, entry.item, lists)):
            return flaw
    return None


def _knows_no_label(model: StoredModel, source: str, where: str | None, checker: SqlChecker) -> str | None:
    """Return that none of the labels could be a class of the model, as where they are written otherwise; None if one could, or
    there is none."""
    definition = model.definition
    if not definition.label.has_classes or not definition.classes or definition.label_type is None:
        return None
    (label,) = checker.describe(f"SELECT ({definition.target_sql}\n) FROM {source_rows(source, where)} AS {ROW}")
    if label.type == definition.label_type:
        return None
    labels, known, one = checker.rows(labels_sql(definition, source, where))[0]
    if known or not labels:
        return None
    listed = ", ".join(definition.classes[:_SHOWN_CLASSES]) + (
        ", ..." if len(definition.classes) > _SHOWN_CLASSES else ""
    )
    return f'no label of {counted(labels, "row")} is of type {definition.label_type}, as classes are ({listed}): there is "{one}"'


def _read_twice(model: StoredModel, columns: Sequence[Column]) -> str | None:
    """Return a duplicate column name that the model's expressions use; None if there is none."""
    count = Counter(folded(column.name) for column in columns)
    several = [name for name, times in count.items() if times > 1]
    if not several:
        return None
    read = model.definition
    texts = [
        read.target_sql or "",
        read.weight_sql or "",
        *(key.sql for key in read.keys),
        *(entry.sql for entry in read.items),
    ]
    text = folded("\n".join(texts))
    return next((name for name in several if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)), None)


def _has_weight(model: StoredModel, source: Sql, checker: SqlChecker) -> bool:
    """Return whether the rows have the columns of the model's weight."""
    weight = model.definition.weight_sql
    if weight is None:
        return False
    _, refused = checker.tried(f"SELECT ({weight}\n) FROM (SELECT * FROM", source, f"\n) AS {ROW}")
    return not refused
