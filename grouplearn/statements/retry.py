"""RETRY FAILED MODEL: trains the failed trials of a stored model again, from its own statement on the current table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grouplearn.bind.bind import bind
from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.run import compatibility
from grouplearn.bind.run.options import bind_retry_options, executor_again
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog import models
from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.checks.trust import other_name
from grouplearn.catalog.identities import Identity
from grouplearn.catalog.lookup import search_path
from grouplearn.catalog.notes import with_kept
from grouplearn.catalog.records import ModelDefinition, Outcome, RunOutcome, StoredModel
from grouplearn.catalog.views import best_sql
from grouplearn.data.dataset import Group
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.errors import Error, ParseError
from grouplearn.extract.counts.group_counts import GroupCount
from grouplearn.extract.counts.statistics import Statistics, statistics
from grouplearn.extract.database_memory import database_within
from grouplearn.extract.extract import extract
from grouplearn.learners import registry
from grouplearn.parser.parse import parse
from grouplearn.parser.statements import RetryFailed, TrainModel, sql_of
from grouplearn.plan import calibration
from grouplearn.plan.physical import PhysicalPlan, definition, plan
from grouplearn.plan.retrying import changed, cut, numbered, only, rows_of, stored_as
from grouplearn.prediction.prediction import predictor_for
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.options import REPLAY
from grouplearn.statements import result_sql
from grouplearn.statements.context import StatementContext
from grouplearn.statements.notes.notes import seen_in_groups
from grouplearn.statements.workflow import planning, refitting, training
from grouplearn.statements.workflow.replacing import refuse_failures
from grouplearn.statements.workflow.scheduled import RunControls
from grouplearn.store import combined
from grouplearn.store import retrying as kept
from grouplearn.store.keeping import KeptModels, keep_models
from grouplearn.store.retrying import FailedGroup, Record


def retry(statement: RetryFailed, checker: SqlChecker, at: StatementContext) -> str:
    """Train the failed trials of a model again and return a SELECT of their groups; all other trials stay as they are.

    Groups that are no longer in the table stay as they were. Raise if the table has changed so that old and new trials
    could not be compared, as with other features or new classes.
    """
    with at.databases.transaction():
        model = at.databases.model(statement.name, checker)
        at.databases.refuse_change(model.location.catalog, statement.name.span, checker)
        given = _given(statement, model, checker)
        failed = kept.failed_groups(at.connection, model)
        record = kept.record(at.connection, model)
    if not failed:
        return result_sql.notice(
            f"model {model.location.name} has no failed trials, and no group without a model; nothing was trained"
        )
    return _Retry(statement, given, model, checker, at, failed, record).run()


def _given(statement: RetryFailed, model: StoredModel, checker: SqlChecker) -> dict[str, Any]:
    learner = model.definition.learner
    if not registry.is_known(learner):
        hint = f"{registry.how_to_register(learner)} as before."
        raise checker.error(
            f"the model is of the learner {learner}, which is not registered", statement.name.span, hint
        )
    return bind_retry_options(checker, registry.way(learner, model.definition.configs), statement.options)


@dataclass(frozen=True, slots=True)
class _Retry:
    statement: RetryFailed
    given: Mapping[str, Any]
    model: StoredModel
    checker: SqlChecker
    at: StatementContext
    failed: tuple[FailedGroup, ...]
    record: Record

    def run(self) -> str:
        began, at, location = time.time(), self.at, self.model.location
        with RunDirectory.beside(at.databases.file(location.catalog), self.checker.outside.refusal) as directory:
            with at.databases.transaction():
                bound = self._bound()
                limit = bound.options.placement.memory_limit
                with database_within(at.connection, limit, at.settings):
                    everything = self._planned(bound)
                    failed = _whole(self.failed, len(bound.configs)) if bound.refit else self.failed
                    numbers = _numbers(failed, everything.stats)
                    if not numbers:
                        return result_sql.notice(
                            "no group with failed trials is in the table any more; nothing was trained"
                        )
                    counted = [everything.stats.groups[number] for number in numbers]
                    dataset, read = self._read(everything, counted, directory, limit)
            wanted = {number: group.configs for number, group in numbers.items()}
            part = replace(everything, units=cut(everything.units, wanted))
            choice = planning.choose(part, at.cancelled)
            settled = planning.settled(everything, choice)
            with at.databases.transaction():
                fitted = kept.fitted_on_all(at.connection, self.model)
            groups = numbered(everything.stats.groups, read)
            job = training.job_of(settled, dataset, groups, self._own_judge(), fitted or None)
            part = replace(settled, units=cut(settled.units, wanted))
            refit = refitting.without_holdout(job) if bound.refit and fitted else None
            work = training.begun(part, choice, job, at.cancelled, began, refit)
            outcome = training.run(work, RunControls(at.progress, at.cancelled))
        ids = {number: group.number for number, group in numbers.items()}
        identity, run = self._stored(_renumbered(outcome, ids), failed)
        validated = bound.holdout.kind != "none"
        stored = self.model.definition
        # TRAIN has noted what concerns the whole statement; RETRY reads the rows of some groups alone.
        notes = seen_in_groups(job, stored, outcome)
        noted = {ids[number]: notes[number] for number in ids if number in notes}
        seen = with_kept(noted, run.notes)
        place = stored, identity, location.catalog
        best = best_sql(at.connection, *place, validated=validated, groups=list(ids.values()), seen=seen)
        return result_sql.arranged(best, stored, at)

    def _own_judge(self) -> SqlChecker:
        """Return the checker of the model's own statement."""
        return SqlChecker(self.at.connection, self.model.definition.statement)

    def _bound(self) -> BoundTrain:
        """Return the model's statement bound against the current table, with RETRY's changes."""
        definition, location = self.model.definition, self.model.location
        train = self._statement()
        guard = predictor_for(self.at.connection).guard
        guard.admit(self.at.connection, definition)
        guard.admit_statement(self.at.connection, definition, train.source.text, sql_of(train))
        self._refuse_other_names(train)
        settings = {**self.at.settings, "seed": definition.seed, "durable": False, "task": _task(definition)}
        bound = bind(self._own_judge(), train, location.catalog, location.schema, settings)
        if bound.search is not None:
            message = f'the trials of model "{location.name}" were chosen in rounds, from how the others did'
            raise self._refusal(message, "TRAIN OR REPLACE MODEL searches anew.")
        given = {**self.given, **self._as_before(bound)}
        given = {**given, "executor": self._executor(bound, given.get("operator", bound.options.placement.operator))}
        return replace(bound, options=bound.options.changed({**given, "durable": False, REPLAY.name: None}))

    def _refuse_other_names(self, train: TrainModel) -> None:
        """Raise if an unqualified name in the statement means another table, view, macro or type than in training."""
        definition = self.model.definition
        found = other_name(self.at.connection, definition, train.source.text, sql_of(train))
        if found is not None:
            name, path = found
            here = self.at.databases.attachments()
            then, now = search_path.shown(path), search_path.shown(search_path.current(here))
            message = f'"{name}" is not what it was when model "{definition.name}" was trained'
            places = f"Names were looked for in {then}, and now in {now}"
            raise self._refusal(f"{message}\n{places}", search_path.advice(path, here))

    def _statement(self) -> TrainModel:
        """Return the model's statement, a TRAIN."""
        location, text = self.model.location, self.model.definition.statement
        try:
            found = list(parse(text))
        except ParseError as error:
            raise damaged(
                location.catalog, location.name, "models", f"the stored statement cannot be read: {error.message}"
            ) from None
        if len(found) != 1 or not isinstance(found[0], TrainModel):
            raise damaged(location.catalog, location.name, "models", "the statement is not one TRAIN")
        return found[0]

    def _as_before(self, bound: BoundTrain) -> dict[str, Any]:
        """Return the operator and workers of the first run, if the models of that operator depend on them."""
        operator = self.record.operator
        if not compatibility.changes_models(operator, bound.learner):
            return {}
        fixed = {"operator": operator, "workers": self.record.workers}
        for option in self.statement.options:
            name = option.name.value.casefold()
            if name in fixed and self.given[name] != fixed[name]:
                what = compatibility.depends_on(operator)
                message = (
                    f"the model was trained by operator {operator}, on {fixed['workers']} workers, and its models "
                )
                raise self.checker.error(f"{message}depend on {what}", option.value.span)
        return fixed

    def _executor(self, bound: BoundTrain, operator: str) -> str:
        """Return where the trials train, which the stored statement does not decide; raise if they cannot train there."""
        executor = executor_again(bound.options.placement.executor, self.given, self.at.settings)
        refusal = compatibility.refusal_reason(operator, bound.learner, executor)
        if refusal:
            raise self._refusal(refusal, compatibility.remedy(operator, bound.learner))
        return executor

    def _planned(self, bound: BoundTrain) -> PhysicalPlan:
        """Return the plan of the whole statement, so that a trial trains in the same way as if all were trained."""
        stored = self.model.definition
        stats = statistics(self._own_judge(), bound)
        known = replace(stats, classes=stored.classes) if set(stats.classes) <= set(stored.classes) else stats
        physical = plan(bound, known, calibration.load(self.checker.outside))
        physical = replace(physical, bound=stored_as(physical.bound, stored))
        now = definition(physical, stored.statement)
        if (now.learner, now.metric) != (stored.learner, stored.metric):
            where = self.model.location
            raise damaged(where.catalog, where.name, "models", "the statement is of another learner or metric")
        reason = changed(replace(stored, configs=stored.configs[: self.record.configs]), now)
        if reason is not None:
            raise self._refusal(f"the table is not what it was: {reason}", "TRAIN OR REPLACE MODEL trains all of it.")
        return physical

    def _refusal(self, message: str, hint: str | None) -> Error:
        return self.checker.error(message, self.statement.name.span, hint)

    def _read(
        self, physical: PhysicalPlan, groups: Sequence[GroupCount], directory: RunDirectory, limit: int | None
    ) -> tuple[Any, tuple[Group, ...]]:
        """Return only the rows of these groups."""
        checker, bound = self._own_judge(), only(physical.bound, groups)
        stats = rows_of(checker, bound, physical.stats, groups)
        return extract(self.at.connection, checker, bound, stats, directory, limit)

    def _stored(self, outcome: RunOutcome, failed: Sequence[FailedGroup]) -> tuple[str, KeptModels]:
        """Replace the failed results, and return the model's new identity and what was stored.

        Raise if the model has changed meanwhile, or a group failed under ON GROUP FAILURE ERROR.
        """
        databases, connection, location = self.at.databases, self.at.connection, self.model.location
        shown, before = databases.in_transaction(), Identity(self.model.id, location)

        with_models = {group.number for group in failed if group.others}
        lost = [group for group in outcome.found.failed_groups() if group.id not in with_models]

        def store_it() -> tuple[str, KeptModels]:
            if models.load_by_id(connection, location.catalog, self.model.id) is None:
                message = f'model "{location.name}" was trained anew or dropped meanwhile, so nothing was stored'
                raise self._refusal(message, "RETRY FAILED MODEL once more.")
            known, span = self.model.definition, self.statement.name.span
            refuse_failures(known, outcome, lost, before, span, self.checker)
            run = keep_models(connection, before, known, outcome, lost)
            with combined.changing(connection, location):
                return kept.replace_failed(connection, self.model, failed, run.outcome, shown=shown), run

        return databases.write(location.catalog, store_it, self.statement.name.span, self.checker)


def _task(definition: ModelDefinition) -> str | None:
    """Return how the model's label was taken, as its values may be others now."""
    if definition.target_name is None:
        return None
    return "classification" if definition.label.has_classes else "regression"


def _whole(failed: Sequence[FailedGroup], configs: int) -> tuple[FailedGroup, ...]:
    """Return the groups with all their trials to train again: which model is of all rows is decided by comparing all."""
    return tuple(replace(group, configs=frozenset(range(configs)), others=()) for group in failed)


def _numbers(failed: Sequence[FailedGroup], stats: Statistics) -> dict[int, FailedGroup]:
    """Return the groups with failed trials by their numbers in the current table."""
    by_key = {(group.level, group.keys): group for group in failed}
    found = ((number, by_key.get((group.level, group.keys))) for number, group in enumerate(stats.groups))
    return {number: group for number, group in found if group is not None}


def _renumbered(outcome: RunOutcome, numbers: Mapping[int, int]) -> RunOutcome:
    """Return the outcome with the catalog's numbers of groups."""
    found = outcome.found
    new = np.array([numbers[number] for number in found.ids.tolist()], np.int32)
    order, trials = np.argsort(new), replace(found.trials, group=new[found.place])
    found = Outcome(
        groups=tuple(replace(found.groups[place], id=int(new[place])) for place in order.tolist()),
        facts=tuple(found.facts[place] for place in order.tolist()),
        trials=trials.ordered(),
        best=found.best[order],
    )

    def unit(each: Unit) -> Unit:
        return replace(each, group=numbers[each.group], others=tuple(numbers[other] for other in each.others))

    return replace(outcome, found=found, units=tuple(replace(each, unit=unit(each.unit)) for each in outcome.units))
