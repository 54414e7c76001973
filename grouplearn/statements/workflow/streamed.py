"""TRAIN of a stream whose rows are read once and not kept: for learners that need no more, and statements that let them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial

import duckdb
import numpy as np

from grouplearn.bind.bind import learner_of
from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.clauses.features import BoundItem, all_fit_float
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.bind.sql.expressions import reads_once
from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, Group
from grouplearn.data.split import FINAL
from grouplearn.extract.counts.group_counts import GroupCount, refuse_many_groups
from grouplearn.extract.counts.statistics import Statistics, nothing_read
from grouplearn.extract.database_memory import database_within
from grouplearn.extract.streams.arrivals import arrivals
from grouplearn.extract.streams.keeping import OneTimeSources, stood_in
from grouplearn.extract.streams.stream import Stream
from grouplearn.failures import StatementInterrupted
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.pooling import pools
from grouplearn.parser.statements import TrainModel, sql_of
from grouplearn.plan import calibration
from grouplearn.plan.physical import PhysicalPlan, plan
from grouplearn.plan.results_memory import refuse_excess
from grouplearn.schedule.messages import Unit
from grouplearn.statements.context import StatementContext
from grouplearn.statements.workflow import training
from grouplearn.statements.workflow.scheduled import Scheduled
from grouplearn.statements.workflow.training import Work
from grouplearn.train.job import Job, Observer, UnitResult
from grouplearn.train.single_thread import blas_on_one_thread, import_learner, openmp_on_one_thread
from grouplearn.train.streamed.groups import StreamedGroups
from grouplearn.train.streamed.results import StreamedUnits, streamed_units
from grouplearn.train.streamed.sample import MOST_ROWS

#: The stand-in for a stream that has no rows.
_NO_ROWS = "range(0)"


@dataclass(frozen=True, slots=True)
class Streamed:
    """A stream that was read: the plan, the groups by number, a dataset without rows, what was learned, and in how long."""

    physical: PhysicalPlan
    dataset: Dataset
    groups: tuple[Group, ...]
    units: StreamedUnits
    seconds: float

    def work(self, begun: Work) -> Work:
        """Return the same work by what was learned."""
        own = begun.scheduled
        folds = begun.job.split.fits if begun.job.split.folds else (FINAL,)
        units = streamed_units(self.groups, self.units.groups.packs, folds)
        scheduled = _FromStream(own.operator, own.executor, own.workload, rates=own.rates, found=self.units)
        return replace(begun, scheduled=scheduled, units=units, workers=1, spent=self.seconds)


@dataclass(frozen=True, slots=True)
class _FromStream(Scheduled):
    """Units whose rows have passed."""

    found: StreamedUnits | None = None

    def run(
        self, job: Job, units: tuple[Unit, ...], observer: Observer, cancelled: Callable[[], bool]
    ) -> tuple[UnitResult, ...]:
        """Make the results of units, in the calling thread; raises StatementInterrupted."""
        assert self.found is not None  # noqa: S101
        results, began = [], time.perf_counter()
        try:
            with blas_on_one_thread(), openmp_on_one_thread():
                for unit in units:
                    started = time.perf_counter() - began
                    result = self.found.train(job, unit, partial(observer.epochs_done, unit), cancelled)
                    results.append(replace(result, started=started, ended=time.perf_counter() - began))
                    observer.unit_done(results[-1])
        except (Interrupted, KeyboardInterrupt):
            raise StatementInterrupted("training was interrupted; nothing was stored") from None
        return tuple(results)


def learns_once(checker: SqlChecker, statement: TrainModel, at: StatementContext) -> bool:
    """Whether the learner of a statement may learn from rows that pass once."""
    declared = learner_of(checker, statement, at.settings).declaration
    return declared.one_pass or declared.online


def streamed(
    statement: TrainModel, checker: SqlChecker, at: StatementContext, bound_by: Callable[[TrainModel], BoundTrain]
) -> Streamed | str | None:
    """Learn from a stream while it is read; return why its rows have to be kept instead, None if that needs no reason."""
    sources = OneTimeSources.of(statement, checker, at.streams)
    if not sources.streams or not learns_once(checker, statement, at):
        return None
    if sources.files or len(sources.streams) > 1:
        return "there are several sources"
    stream = sources.streams[0]
    with stood_in(checker, sources.streams, _NO_ROWS):
        bound = bound_by(statement)
    if not reads_once(checker, (f"FROM {statement.source.text}", *sql_of(statement)), stream.name):
        return "the statement reads it more than once"
    return why_kept(bound) or _read(bound, checker, at, stream)


def why_kept(bound: BoundTrain) -> str | None:
    """Return why the rows of a statement have to be kept, None if they need not be."""
    declared, options = bound.learner.declaration, bound.options
    epochs = options.training.epochs or declared.default_epochs or 1
    fitted = next((item.stored.item for item in bound.items if not _is_plain(item)), None)
    target, placement = bound.target, options.placement
    reasons = (
        (not declared.one_pass and epochs > 1, f"{declared.name} has {epochs} epochs: epochs = 1 visits each row once"),
        (declared.draws, f"{declared.name} draws rows"),
        (fitted is not None, f"feature {fitted and fitted.name} is encoded: numbers as they are need not be"),
        (target is not None and (target.classification or target.array is not None), "the label is no number"),
        (bound.series is not None, "series are put in order"),
        (bound.holdout.kind not in ("none", "where", "sample"), "VALIDATE trains several times"),
        (len(bound.sets) > 1, "there are several levels of groups"),
        (any(pools(bound.learner, config) for config in bound.configs), "groups shrink to what they have in common"),
        (bound.statement.having is not None, "HAVING looks at whole groups"),
        (bound.search is not None or options.training.within is not None, "a search trains several times"),
        (options.training.early_stopping is not None, "early_stopping looks at rows after each epoch"),
        (options.rows.class_weight is not None, "class_weight looks at all rows"),
        (options.training.initialize_from is not None, "groups begin with the states of another model"),
        (bound.cluster is not None or options.estimation.asks, "standard errors look at the rows again"),
        (options.rows.watermark is not None, "the watermark is looked up in all rows"),
        (placement.operator != "auto" or options.repeated is not None, "an operator is named"),
        (placement.executor not in ("auto", "local"), "workers share the rows"),
        (bool(placement.durable), "a durable run keeps its rows"),
    )
    return next((why for holds, why in reasons if holds), None)


def _is_plain(item: BoundItem) -> bool:
    """Whether an item is a number that no encoder has to see all of before."""
    return item.stored.item.kind == "numeric" and item.array is None and encoders.needs_no_fit(item.stored.item)


def _read(bound: BoundTrain, checker: SqlChecker, at: StatementContext, stream: Stream) -> Streamed:
    """Read the rows and learn from them."""
    began, rates, dataset = time.perf_counter(), calibration.load(checker.outside), _without_rows(bound)
    empty = plan(bound, _statistics(bound, ()), rates)
    import_learner(bound.learner)
    groups = StreamedGroups(training.job_of(empty, dataset, (), checker))
    with database_within(at.connection, bound.options.placement.memory_limit, at.settings):
        _pass(bound, checker, at, stream, groups)
    order = sorted(range(len(groups.keys)), key=lambda number: [_in_order(key) for key in groups.keys[number]])
    sizes = groups.tally.n_rows[order].tolist()
    counted = tuple(GroupCount(0, groups.keys[number], n_rows) for number, n_rows in zip(order, sizes, strict=True))
    if not counted:
        raise nothing_read(checker, bound)
    note = (
        f"{stream.name} can be read once: its {stream.n_rows:,} rows were not kept, and metrics are of at most"
        f" {MOST_ROWS:,} rows of a group"
    )
    physical = plan(replace(bound, notes=(*bound.notes, note)), _statistics(bound, counted), rates)
    refuse_excess(checker, physical)
    found = tuple(Group(place, 0, each.keys, ((0, each.n_rows),)) for place, each in enumerate(counted))
    units = StreamedUnits(groups, order, bound.holdout.drawn)
    return Streamed(physical, dataset, found, units, time.perf_counter() - began)


def _pass(bound: BoundTrain, checker: SqlChecker, at: StatementContext, stream: Stream, groups: StreamedGroups) -> None:
    at.connection.register(stream.name, stream.reader())
    try:
        with closing(arrivals(at.connection, checker, bound)) as rows, blas_on_one_thread(), openmp_on_one_thread():
            for each in rows:
                groups.take(each)
                refuse_many_groups(checker, bound, len(groups.keys))
            groups.end()
    except Exception:
        if stream.error is None:
            raise
        raise stream.failure() from stream.error
    finally:
        with suppress(duckdb.Error):
            at.connection.unregister(stream.name)


def _in_order(key: str | None) -> tuple[bool, bytes]:
    """Return what sorts the texts of a key as DuckDB does: by their bytes, NULL last."""
    return key is None, (key or "").encode()


def _statistics(bound: BoundTrain, groups: Sequence[GroupCount]) -> Statistics:
    ones = (1,) * len(bound.items)
    return Statistics(tuple(groups), (), (0,) * len(ones), sum(group.n_rows for group in groups), ones)


def _without_rows(bound: BoundTrain) -> Dataset:
    numeric = np.empty((0, len(bound.items)), np.float32 if all_fit_float(bound.items) else np.float64)
    nothing = np.empty(0)
    return Dataset(numeric, np.empty((0, 0), np.int32), nothing, nothing, np.empty(0, np.int16), ())
