"""ALTER MODEL ... ADD TRIAL of a stored model: a trial made of the states of its groups, without reading rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import duckdb

from grouplearn.bind.late import bind_late
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog import views
from grouplearn.catalog.checks.trust import trust_as
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.rows.state_rows import load_states
from grouplearn.data.tensors import named_tensors
from grouplearn.interrupting import with_checks
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.ways import AlgebraicLearner
from grouplearn.models.definition import SQL_TYPES, HyperparameterColumn
from grouplearn.models.forms.form import GroupModel
from grouplearn.parser.statements import AddTrial
from grouplearn.prediction import prediction
from grouplearn.prediction.group_models import load_groups, problem_of_model
from grouplearn.statements import result_sql
from grouplearn.statements.again.stored import StoredStatement
from grouplearn.statements.context import StatementContext
from grouplearn.store import late, versions
from grouplearn.store.late import LateTrial


def add_late_trial(statement: AddTrial, checker: SqlChecker, at: StatementContext) -> str:
    """Store a version of a model in which a trial with other late hyperparameters predicts; return a SELECT of its groups."""
    stored = StoredStatement.to_change(statement.name, checker, at)
    model, definition = stored.model, stored.model.definition
    learner = registry.way(definition.learner, definition.configs)
    shown = at.databases.in_transaction()
    config = bind_late(checker, statement, learner, definition.configs)

    def store_it() -> StoredModel:
        began = time.perf_counter()
        states = load_states(at.connection, model)
        if not states:
            hint = "TRAIN OR REPLACE it WITH (keep_state = true)."
            raise stored.refusal(f'model "{model.location.name}" keeps no state of which a trial could be made', hint)
        groups = load_groups(at.connection, model, only=states)
        trials = [*_trials(learner, model, config, groups, states)]
        added = _stored(at.connection, model, learner, config, trials, time.perf_counter() - began)
        if shown:
            prediction.remember_stored(at.connection, added)
        return added

    added = at.databases.write(model.location.catalog, store_it, stored.span, checker)
    best = views.best_sql(at.connection, added.definition, added.id, model.location.catalog, validated=False)
    return result_sql.arranged(best, added.definition, at)


def _trials(
    learner: Learner, model: StoredModel, config: Config, groups: Sequence[GroupModel], states: dict[int, bytes]
) -> Iterator[LateTrial]:
    """Yield the trial of each group with a state."""
    summing = cast(AlgebraicLearner, learner)
    for group in with_checks(groups):
        problem = replace(problem_of_model(model.definition, group.fitted, group.classes), seed=model.definition.seed)
        try:
            begun = learner.init(problem, [config])
            state = summing.step(problem, [config], begun, named_tensors(states[group.id]))
            yield LateTrial(group.id, learner.finalize(problem, [config], state, 0), float(learner.losses(state)[0]))
        except Diverged as error:
            yield LateTrial(group.id, None, reason=str(error))


def _stored(
    con: duckdb.DuckDBPyConnection,
    model: StoredModel,
    learner: Learner,
    config: Config,
    trials: Sequence[LateTrial],
    seconds: float,
) -> StoredModel:
    """Store the next version of the model."""
    definition = model.definition
    kinds = {each.name: each.kind for each in learner.declaration.hyperparameters}
    shown = {column.name for column in definition.hyperparameters}
    changed = [name for name in config if name not in shown and config[name] != definition.configs[0].get(name)]
    columns = tuple(HyperparameterColumn(name, SQL_TYPES[kinds[name]]) for name in changed)
    hyperparameters = (*definition.hyperparameters, *columns)
    definition = replace(definition, configs=(*definition.configs, config), hyperparameters=hyperparameters)
    trust_as(con, model.definition, definition)
    stored = late.write_trials(con, versions.fork(con, model, action="ALTER"), definition, trials)
    versions.record(con, stored, versions.Event("ALTER", seconds, 0, len(trials), 0))
    return stored
