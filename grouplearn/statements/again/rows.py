"""What REFRESH reads: which rows are new or have changed, and what the models of their groups go on from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grouplearn.amounts import counted
from grouplearn.bind.bound import BoundTrain, Holdout
from grouplearn.bind.retyped import as_stored
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.rows.state_rows import load_states
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.data.split import Split
from grouplearn.extract.counts.group_counts import group_counts
from grouplearn.extract.counts.statistics import statistics
from grouplearn.extract.extract import checksums, extract
from grouplearn.extract.latest import Key, RowTimes
from grouplearn.learners import registry
from grouplearn.learners.contract.refreshing import Continuation, Source, StartsWarm, refresh_ways, source_of
from grouplearn.models.definition import Watermark
from grouplearn.models.forms.form import GroupModel
from grouplearn.parser.parse import parse
from grouplearn.parser.render import render
from grouplearn.parser.statements import RefreshModel, Sql, TrainModel
from grouplearn.plan import calibration
from grouplearn.plan.physical import PhysicalPlan, definition, plan
from grouplearn.plan.retrying import cut, differences, differing, numbered, only, rows_of, stored_as
from grouplearn.prediction.group_models import load_groups
from grouplearn.sqltext import written
from grouplearn.statements.again.since import LatestTimes
from grouplearn.statements.again.stored import StoredStatement
from grouplearn.statements.context import StatementContext
from grouplearn.statements.workflow import training
from grouplearn.store import refreshing
from grouplearn.store import retrying as kept
from grouplearn.store.refreshing import KnownGroup, Refreshed, RefreshRun, Status
from grouplearn.store.retrying import Record
from grouplearn.train.job import Earlier, Job

_NO_STATE = "no state of it is kept; hint: TRAIN ... WITH (keep_state = true)"
#: Share of new rows held out in place of folds.
_HELD_OUT = 0.1


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of what is trained: the groups by their numbers in it, those ``known`` and the ``new`` ones.

    ``earlier`` is what the known ones go on from, and ``without_state`` cannot go on. ``left`` are other groups that are not
    trained, and the reasons. ``unread`` says of those that are which of their rows are not read. ``judge`` checks the
    statement's SQL, and ``times`` are those of the rows.
    """

    judge: SqlChecker
    physical: PhysicalPlan
    known: Mapping[int, KnownGroup]
    new: tuple[int, ...]
    earlier: Mapping[int, Earlier]
    without_state: tuple[Refreshed, ...]
    left: tuple[Refreshed, ...]
    unread: Mapping[int, str]
    times: RowTimes | None

    @property
    def numbers(self) -> tuple[int, ...]:
        """The groups that are trained."""
        return tuple(sorted((*self.known, *self.new)))


@dataclass(frozen=True, slots=True)
class RowsToRefresh:
    """The rows that a REFRESH reads; ``given`` are its options, ``groups`` those of the model, ``latest`` their watermark."""

    statement: RefreshModel
    given: Mapping[str, Any]
    stored: StoredStatement
    record: Record
    groups: Sequence[KnownGroup]
    source: Source | None
    latest: Watermark | None

    @property
    def model(self) -> StoredModel:
        """The model."""
        return self.stored.model

    @property
    def at(self) -> StatementContext:
        """The statement's context."""
        return self.stored.at

    @property
    def times(self) -> LatestTimes:
        """The latest times that groups have learned from."""
        return LatestTimes(self.statement, self.stored, self.latest)

    @property
    def has_new_rows(self) -> bool:
        """Whether all rows that are read are new."""
        return self.statement.source is not None or self.statement.since is not None

    @property
    def goes_on(self) -> bool:
        """Whether models go on from what they were."""
        return self.has_new_rows or self.source == "passes" or "refresh" in self.given

    @property
    def starts_warm(self) -> bool:
        """Whether groups that are trained anew start from the weights of their models."""
        configs = self.model.definition.configs
        learner = registry.way(self.model.definition.learner, configs)
        anew = not (self.goes_on or self.given.get("refit_features"))
        return anew and isinstance(learner, StartsWarm) and learner.starts_warm(configs)

    def refuse_unable(self) -> None:
        """Raise if there are new rows, and the models cannot go on from these alone."""
        known = self.model.definition
        if not self.has_new_rows:
            return
        if known.calibrate is not None:
            message = "the probabilities are calibrated on held-out rows, and those of a model that goes on are others"
            raise self.stored.refusal(
                message, "REFRESH MODEL without FROM and SINCE reads all rows, and calibrates anew."
            )
        if self.source is not None:
            return
        message = (
            f"{known.shown_learner} does not go on from new rows alone: it is trained again on all rows of a group"
        )
        others = [way.declaration.solver for way in registry.ways(registry.learner(known.learner)) if source_of(way)]
        solver = f"; models trained WITH (solver = '{others[0]}') go on" if others else ""
        hint = f"REFRESH MODEL without FROM and SINCE reads the table that the model was trained from{solver}."
        raise self.stored.refusal(message, hint)

    def planned(self, judge: SqlChecker, bound: BoundTrain) -> Planned:
        """Return the plan of what is trained."""
        times = self.times.of(judge, bound)
        read = bound
        if self.has_new_rows:
            read = times.new_rows() if times is not None and self.statement.since is not None else bound
            read = replace(read, holdout=self._holdout(judge, read))
        physical = self._planned(judge, read)
        if not any(group.n_rows for group in physical.stats.groups):
            self._refuse_own_filter()
        known, new = self._chosen(judge, physical)
        earlier = self._earlier(known)
        without_state = self._without_state(physical, known, earlier)
        known = {number: group for number, group in known.items() if group.number not in without_state}
        wanted = {number: self._configs(known.get(number)) for number in (*known, *new)}
        physical = replace(physical, units=cut(physical.units, wanted))
        earlier = {number: each for number, each in earlier.items() if number in known}
        of_keys = self.times.unread(times, self.groups)
        left = self._left(physical, {*(group.number for group in known.values()), *without_state}, of_keys)
        unread = {number: of_keys[key] for number, key in _keys(physical) if key in of_keys}
        times = None if times is None else replace(times, bound=read)
        return Planned(judge, physical, known, new, earlier, tuple(without_state.values()), left, unread, times)

    def read(self, planned: Planned, directory: RunDirectory, limit: int | None) -> tuple[Job, RefreshRun]:
        """Read the rows of groups to train; return the job, and what is needed to store its results."""
        judge, bound, stats = planned.judge, planned.physical.bound, planned.physical.stats
        chosen = [stats.groups[number] for number in planned.numbers]
        if len(chosen) < len(stats.groups):
            bound = only(bound, chosen)
            stats = rows_of(judge, bound, stats, chosen)
        dataset, groups = extract(self.at.connection, judge, bound, stats, directory, limit)
        fitted = kept.fitted_on_all(self.at.connection, self.model)
        every = numbered(planned.physical.stats.groups, groups)
        job = training.job_of(planned.physical, dataset, every, judge, fitted or None)
        job = replace(job, earlier=planned.earlier, continuation=self._continuation())
        going_on = (number for number, each in planned.earlier.items() if each.goes_on)
        run = RefreshRun(
            self.model.id,
            planned.known,
            planned.new,
            tuple(going_on),
            planned.unread,
            (*planned.without_state, *planned.left),
            None if planned.times is None else planned.times.latest(planned.physical.stats.groups),
            self.has_new_rows,
            self.statement.keeps_better,
        )
        return job, run

    def _refuse_own_filter(self) -> None:
        """Raise if there are rows, and the condition of the model's own WHERE leaves out all."""
        source, own = self.statement.source, self.stored.parsed().where
        if source is None or own is None:
            return
        checker = self.stored.checker
        passing = f"count(*) FILTER (({own.text}\n))"
        ((count, passed),) = checker.rows(f"SELECT count(*), {passing}", *_source(source, self.statement.where))
        if count and not passed:
            message = f"none of {counted(count, 'row')} passes WHERE {own.text.strip()} of the model's TRAIN"
            raise checker.error(message, source.span, "Rows must pass the WHERE of TRAIN, and that of REFRESH.")

    def _without_state(
        self, physical: PhysicalPlan, known: Mapping[int, KnownGroup], earlier: Mapping[int, Earlier]
    ) -> dict[int, Refreshed]:
        """Return the groups with a model and new rows that have nothing to go on from; raise if none has."""
        if not self.has_new_rows:
            return {}
        lacking = {
            group.number: Refreshed(group.number, "failed", rows, reason=_NO_STATE, is_stored=False)
            for number, group in known.items()
            if number in earlier and not earlier[number].goes_on
            for rows in (physical.stats.groups[number].n_rows,)
        }
        if lacking and len(lacking) == len(earlier):
            hint = "TRAIN OR REPLACE it WITH (keep_state = true); REFRESH MODEL without FROM and SINCE needs no state."
            raise self.stored.refusal(f'model "{self.model.location.name}" keeps no state to go on from', hint)
        return lacking

    def bound(self) -> tuple[SqlChecker, BoundTrain]:
        """Return the model's statement over the rows to read, bound; and a checker with its text."""
        train = self._train()
        text = render(train)
        (parsed,) = parse(text)
        if not isinstance(parsed, TrainModel):
            raise TypeError("a TRAIN is rendered as something else")
        judge = SqlChecker(self.at.connection, text)
        fixed = self.stored.as_before(self.record, self.given, self.statement.options)
        bound = self.stored.bound(judge, parsed, {"durable": None, **self.given, **fixed})
        bound = replace(as_stored(judge, bound, self.model.definition), configs=self.model.definition.configs)
        if self.has_new_rows:
            # A class may be missing among few rows, and be the positive one.
            bound = replace(bound, options=bound.options.changed({"positive_class": None}))
        return judge, bound

    def _train(self) -> TrainModel:
        """Return the model's statement over the rows to read."""
        train = self.stored.parsed()
        if train.search is not None and train.search.method not in ("grid", "random"):
            train = replace(train, search=None)
        train = replace(
            train, options=tuple(each for each in train.options if each.name.value.casefold() != "frequency")
        )
        if not self.has_new_rows:
            return train
        source = self.statement.source or train.source
        self.times.check()
        if self.statement.source is not None:
            since = (",", self.statement.since) if self.statement.since is not None else ()
            self.stored.checker.describe("SELECT *", *since, *_source(source, self.statement.where))
        conditions = [each.text for each in (train.where, self.statement.where) if each is not None]
        where = Sql(" AND ".join(f"({each}\n)" for each in conditions)) if conditions else None
        return replace(train, source=source, where=where, having=None)

    def _left(
        self, physical: PhysicalPlan, trained: Collection[int], unread: Mapping[Key, str]
    ) -> tuple[Refreshed, ...]:
        """Return groups that are not trained, and why where that is not told by their status."""
        there = {key for _, key in _keys(physical)}
        found = []
        for group in self.groups:
            if group.number in trained:
                continue
            key = group.level, group.keys
            gone = None if self.has_new_rows or key in there else self._gone
            reasons = [each for each in (group.failure, gone, unread.get(key)) if each]
            if group.failure is not None:
                reasons += [] if gone else ["it has no new rows" if self.has_new_rows else "its rows are the same"]
                reasons.append(f"hint: RETRY FAILED MODEL {written(self.model.location.name)}")
            if reasons:
                status: Status = "unchanged" if group.failure is None else "failed"
                found.append(Refreshed(group.number, status, 0, reason="; ".join(reasons), is_stored=False))
        return tuple(found)

    @property
    def _gone(self) -> str:
        having = ", or HAVING leaves it out" if self.stored.parsed().having is not None else ""
        return f"FROM has no row of it{having}: it stays as it is"

    def _holdout(self, judge: SqlChecker, bound: BoundTrain) -> Holdout:
        """Return how new rows are held out: as in TRAIN, a tenth in place of folds, none if VALIDATE WHERE has no say.

        The last steps of series judge once.
        """
        if bound.series is not None:
            horizon = bound.holdout.split.horizon
            return replace(bound.holdout, split=Split(1, horizon=horizon, step=horizon)) if horizon else bound.holdout
        if bound.holdout.kind == "folds":
            return Holdout("sample", share=_HELD_OUT, split=Split(1, spares=True))
        if bound.holdout.predicate is None:
            return bound.holdout
        holds = ("count(*) FILTER (coalesce(CAST((", bound.holdout.predicate, ") AS BOOLEAN), false))")
        ((held, every),) = judge.rows("SELECT", *holds, ", count(*)", *bound.source)
        return Holdout("none") if held in (0, every) else bound.holdout

    def _planned(self, judge: SqlChecker, bound: BoundTrain) -> PhysicalPlan:
        stored = self.model.definition
        stats = statistics(judge, bound)
        others = "REFRESH MODEL without FROM and SINCE, or " if self.has_new_rows else ""
        hint = (
            f"{others}TRAIN OR REPLACE MODEL, trains on all rows." if others else "TRAIN OR REPLACE MODEL trains anew."
        )
        if unknown := sorted(set(stats.classes) - set(stored.classes)):
            named = ", ".join(unknown[:3])
            raise self.stored.refusal(f"the label has classes that the model does not know: {named}", hint)
        known = replace(stats, classes=stored.classes)
        physical = plan(bound, known, calibration.load(self.stored.checker.outside))
        physical = replace(physical, bound=stored_as(physical.bound, stored))
        now = definition(physical, stored.statement)
        what = differing(stored, now)
        if what is not None:
            details = differences(stored, now)
            raise self.stored.refusal(f"the {what} of these rows differ from those of the model{details}", hint)
        return physical

    def _chosen(self, judge: SqlChecker, physical: PhysicalPlan) -> tuple[dict[int, KnownGroup], tuple[int, ...]]:
        """Return the groups to train by their numbers in the plan: those with a model that has new rows, and new ones."""
        by_key = refreshing.by_key(self.groups)
        # The group of all rows is one even if there are none.
        every = {number: key for number, key in _keys(physical) if physical.stats.groups[number].n_rows}
        known = {number: by_key[key] for number, key in every.items() if key in by_key}
        admitted = self._admitted(judge, physical)
        new = tuple(number for number, key in every.items() if key not in by_key and key in admitted)
        if not self.has_new_rows:
            now = checksums(judge, physical.bound)
            known = {
                number: group
                for number, group in known.items()
                if now.get(every[number]) != (group.n_rows, group.checksum)
            }
        return known, new

    def _admitted(self, judge: SqlChecker, physical: PhysicalPlan) -> frozenset[tuple[int, tuple[str | None, ...]]]:
        """Return the keys of groups that pass the statement's HAVING."""
        having = self.stored.parsed().having
        if not self.has_new_rows or having is None:
            return frozenset((group.level, group.keys) for group in physical.stats.groups)
        statement = replace(physical.bound.statement, having=Sql(having.text))
        passing = group_counts(judge, replace(physical.bound, statement=statement)).groups
        return frozenset((group.level, group.keys) for group in passing)

    def _configs(self, group: KnownGroup | None) -> tuple[int, ...]:
        """Return the configurations to train: the best one of a model that goes on, all of others."""
        if group is not None and group.best is not None and self.goes_on:
            return (group.best,)
        return tuple(range(self.record.configs))

    def _earlier(self, known: Mapping[int, KnownGroup]) -> dict[int, Earlier]:
        """Return what groups with a model go on from, or their encoders alone where they are trained anew."""
        if self.given.get("refit_features") and not self.has_new_rows:
            return {}
        with_models = {number: group for number, group in known.items() if group.best is not None}
        numbers = [group.number for group in with_models.values()]
        before = (
            {each.id: each for each in load_groups(self.at.connection, self.model, only=numbers)} if numbers else {}
        )
        states = load_states(self.at.connection, self.model) if self.goes_on and self.source != "models" else {}
        return {
            number: self._of_group(before[group.number], states.get(group.number))
            for number, group in with_models.items()
            if group.number in before
        }

    def _of_group(self, model: GroupModel, state: bytes | None) -> Earlier:
        if self.goes_on and self.source == "models":
            return Earlier(model.fitted, model.classes, model=model.artifact)
        if state is None:
            return Earlier(model.fitted, model.classes, before=model.artifact if self.starts_warm else None)
        return Earlier(model.fitted, model.classes, state)

    def _continuation(self) -> Continuation | None:
        """Return how finished models are trained further."""
        ways = refresh_ways(registry.way(self.model.definition.learner, self.model.definition.configs))
        if not ways:
            return None
        decay = self.given.get("refit_decay_rate", 0.9)
        return Continuation(self.given.get("refresh", ways[0]), self.given.get("num_iterations"), decay)


def _keys(physical: PhysicalPlan) -> Iterator[tuple[int, Key]]:
    """Yield the numbers and the keys of the groups of a plan."""
    return ((number, (group.level, group.keys)) for number, group in enumerate(physical.stats.groups))


def _source(source: Sql, where: Sql | None) -> tuple[str | Sql, ...]:
    return ("FROM", source, *(("WHERE", where) if where is not None else ()))
