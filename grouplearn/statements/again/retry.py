"""RETRY FAILED MODEL: trains the failed trials of a stored model again, from its own statement on the current table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.run.options import bind_retry_options
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog import models
from grouplearn.catalog.identities import Identity
from grouplearn.catalog.notes import with_kept
from grouplearn.catalog.records import RunOutcome, StoredModel, Watermark
from grouplearn.catalog.views import best_sql
from grouplearn.data.dataset import Group
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.extract.counts.group_counts import GroupCount
from grouplearn.extract.counts.statistics import Statistics, statistics
from grouplearn.extract.database_memory import database_within
from grouplearn.extract.extract import extract
from grouplearn.extract.latest import RowTimes
from grouplearn.learners import registry
from grouplearn.parser.statements import RetryFailed, Sql
from grouplearn.plan import calibration
from grouplearn.plan.physical import PhysicalPlan, plan
from grouplearn.plan.retrying import cut, numbered, only, rows_of, stored_as
from grouplearn.statements import result_sql
from grouplearn.statements.again.stored import StoredStatement, renumbered
from grouplearn.statements.context import StatementContext
from grouplearn.statements.notes.notes import seen_in_groups
from grouplearn.statements.workflow import planning, refitting, training
from grouplearn.statements.workflow.replacing import refuse_failures
from grouplearn.statements.workflow.scheduled import RunControls
from grouplearn.store import combined
from grouplearn.store import retrying as kept
from grouplearn.store.keeping import KeptModels, keep_models
from grouplearn.store.refreshing import known_times
from grouplearn.store.retrying import FailedGroup, Record


def retry(statement: RetryFailed, checker: SqlChecker, at: StatementContext) -> str:
    """Train the failed trials of a model again and return a SELECT of their groups; all other trials stay as they are.

    Groups that are no longer in the table stay as they were. Raise if the table has changed so that old and new trials
    could not be compared, as with other features or new classes.
    """
    with at.databases.transaction():
        model = at.databases.model(statement.name, checker)
        at.databases.refuse_change(model.location.catalog, statement.name.span, checker)
        stored = StoredStatement(model, statement.name, checker, at)
        stored.refuse_unknown_learner()
        known = model.definition
        given = bind_retry_options(checker, registry.way(known.learner, known.configs), statement.options)
        failed = kept.failed_groups(at.connection, model)
        record = kept.record(at.connection, model)
    if not failed:
        return result_sql.notice(
            f"model {model.location.name} has no failed trials, and no group without a model; nothing was trained"
        )
    return _Retry(statement, given, stored, model, checker, at, failed, record).run()


@dataclass(frozen=True, slots=True)
class _Retry:
    statement: RetryFailed
    given: Mapping[str, Any]
    stored: StoredStatement
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
                    watermark = self._watermark(everything)
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
            outcome = replace(training.run(work, RunControls(at.progress, at.cancelled)), watermark=watermark)
        ids = {number: group.number for number, group in numbers.items()}
        identity, run = self._stored(renumbered(outcome, ids), failed)
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
        fixed = self.stored.as_before(self.record, self.given, self.statement.options)
        judge = self._own_judge()
        bound = self.stored.bound(judge, self.stored.parsed(), {**self.given, **fixed})
        if (known := self.stored.watermark()) is None or bound.series:
            return bound
        # REFRESH SINCE will read the later rows of groups that have learned.
        query = known_times(self.model, known.type)
        return replace(RowTimes.of(judge, bound, Sql(known.sql)), known=query).earlier_rows()

    def _planned(self, bound: BoundTrain) -> PhysicalPlan:
        """Return the plan of the whole statement, so that a trial trains in the same way as if all were trained."""
        stored = self.model.definition
        stats = statistics(self._own_judge(), bound)
        known = replace(stats, classes=stored.classes) if set(stats.classes) <= set(stored.classes) else stats
        physical = plan(bound, known, calibration.load(self.checker.outside))
        physical = replace(physical, bound=stored_as(physical.bound, stored))
        hint = "TRAIN OR REPLACE MODEL trains all of it."
        self.stored.refuse_other(physical, self.record, "the table is not what it was", hint)
        return physical

    def _read(
        self, physical: PhysicalPlan, groups: Sequence[GroupCount], directory: RunDirectory, limit: int | None
    ) -> tuple[Any, tuple[Group, ...]]:
        """Return only the rows of these groups."""
        checker, bound = self._own_judge(), only(physical.bound, groups)
        stats = rows_of(checker, bound, physical.stats, groups)
        return extract(self.at.connection, checker, bound, stats, directory, limit)

    def _watermark(self, physical: PhysicalPlan) -> Watermark | None:
        """Return the latest times of the rows, which groups that are trained again have learned from then."""
        known = self.stored.watermark()
        if known is None or len(physical.bound.sets) > 1:  # all groups have one time, which stays
            return None
        times = RowTimes.of(self._own_judge(), physical.bound, Sql(known.sql))
        return replace(times, before=known.type).latest(physical.stats.groups)

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
                raise self.stored.refusal(message, "RETRY FAILED MODEL once more.")
            known, span = self.model.definition, self.statement.name.span
            refuse_failures(known, outcome, lost, before, span, self.checker)
            run = keep_models(connection, before, known, outcome, lost)
            with combined.changing(connection, location):
                return kept.replace_failed(connection, self.model, failed, run.outcome, shown=shown), run

        return databases.write(location.catalog, store_it, self.statement.name.span, self.checker)


def _whole(failed: Sequence[FailedGroup], configs: int) -> tuple[FailedGroup, ...]:
    """Return the groups with all their trials to train again: which model is of all rows is decided by comparing all."""
    return tuple(replace(group, configs=frozenset(range(configs)), others=()) for group in failed)


def _numbers(failed: Sequence[FailedGroup], stats: Statistics) -> dict[int, FailedGroup]:
    """Return the groups with failed trials by their numbers in the current table."""
    by_key = {(group.level, group.keys): group for group in failed}
    found = ((number, by_key.get((group.level, group.keys))) for number, group in enumerate(stats.groups))
    return {number: group for number, group in found if group is not None}
