"""A worker of any runtime: it keeps the rows that a schedule loads there, and runs units and steps on them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from grouplearn.data.dataset import Dataset
from grouplearn.data.shard import RowNumbers
from grouplearn.kernels.library import processor_seconds
from grouplearn.learners.contract.control import Gang, Interrupted
from grouplearn.runtime.held_rows import HeldRows
from grouplearn.schedule.messages import BlockRange, Part, Step, Unit
from grouplearn.schedule.sharded.partition import cut_evenly
from grouplearn.train.fit import fit_together
from grouplearn.train.job import GroupFacts, Job, StepRecord, UnitResult, group_of, groups_of
from grouplearn.train.pack import Pack, Training, cancellable_kernels
from grouplearn.train.reasons import or_failed, reason_of
from grouplearn.train.results.checkpoints import Checkpointer, Timer
from grouplearn.train.results.evaluation import evaluate
from grouplearn.train.rows.prepare import (
    GroupOutline,
    Prepared,
    encode_blocks,
    outline,
    prepare,
    stays_stored,
    stored_blocks,
)
from grouplearn.train.rows.sources import RowsAtHand, RowSource, dataset_bytes, row_bytes
from grouplearn.train.rows.used import GroupFailed, count
from grouplearn.train.sharded.descent import Product, RoundStep, Takes, WorkerState, cells_with_rows, own_blocks
from grouplearn.train.sharded.pushing import whole_order
from grouplearn.train.sharded.steps import StepAnswer, finish, goes_on, make
from grouplearn.train.unit import failed_unit, kept, pack_of, train_unit

#: Steps that several workers run together.
GANG_KINDS = ("boost", "descend")

#: Least seconds between two progress reports of a worker.
REPORT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Watch:
    """How a worker's run is watched: ``began`` is the ``time.time()`` when the run began."""

    worker: int
    began: float
    report: Callable[[int], None]
    cancelled: Callable[[], bool]

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.time() - self.began


class NotFetched(Exception):
    """A step's input is gone, or did not arrive in time; ``maker`` is the worker that made it."""

    def __init__(self, maker: int) -> None:
        super().__init__(maker)
        self.maker = maker


@dataclass
class InputCache:
    """The last inputs that a worker took: with several partitions of a group, it takes each model only once."""

    key: tuple[int, tuple[int, ...], Part | None] | None = None
    products: list[Product] = field(default_factory=list)

    def of(self, step: Step) -> list[Product] | None:
        """Return a step's inputs if they were taken before, else None."""
        return self.products if step.partition is not None and self.key == self._key(step) else None

    def keep(self, step: Step, products: list[Product]) -> None:
        """Keep a step's inputs if another step may take the same ones."""
        if step.partition is not None:
            self.key, self.products = self._key(step), products

    def _key(self, step: Step) -> tuple[int, tuple[int, ...], Part | None]:
        return (step.unit.id, step.inputs, step.piece)


@dataclass
class _Whole:
    """A group that is loaded as a whole: the job with its rows, and the rows prepared for the fold used last."""

    job: Job
    fold: int | None = None
    prepared: Prepared | GroupFailed | None = None


class Worker:
    """The state of one worker: the loaded groups and runs of blocks, and the rows prepared from them.

    ``shared`` holds the rows that all workers of a process share for steps of rounds.
    """

    def __init__(self, job: Job, rows: RowSource | None = None, shared: HeldRows | None = None) -> None:
        self._job = job
        self._rows: RowSource = RowsAtHand(job) if rows is None else rows
        self._wholes: dict[int, _Whole] = {}
        self._held = HeldRows()
        self._of_rounds = self._held if shared is None else shared
        self._together: dict[int, tuple[Pack, Training, int]] = {}
        self._clocks: dict[int, Timer] = {}
        self._reached: dict[int, dict[int, WorkerState]] = defaultdict(dict)  # by group and unit
        self._loaded = 0

    def load(self, group: int, blocks: BlockRange | None = None) -> None:
        """Make a group, or some of its blocks, available; rows are prepared when they are first used."""
        if blocks is None:
            self._wholes.pop(group, None)
        else:
            for held in {self._held, self._of_rounds}:
                held.load(group, blocks)

    def release(self, group: int) -> None:
        """Release the rows of a group."""
        self._wholes.pop(group, None)
        self._reached.pop(group, None)
        for held in {self._held, self._of_rounds}:
            held.release(group)
        self._forget_pages([group])

    def _forget_pages(self, groups: Sequence[int]) -> None:
        """Release the memory of rows that were read from files, which would otherwise stay mapped."""
        if self._job.dataset.files is not None:
            ranges = [run for group in groups_of(self._job, groups) for run in group.ranges]
            if ranges:
                self._job.dataset.forget_pages(min(start for start, _ in ranges), max(stop for _, stop in ranges))

    def run(self, unit: Unit, watch: Watch) -> UnitResult:
        """Train one unit on a whole group. Raises Interrupted and nothing else."""
        started, began, throttled = watch.now(), processor_seconds(), Throttle(watch.report)
        try:
            with cancellable_kernels(watch.cancelled):
                result = self._run(unit, throttled.add, watch.cancelled)
        except Interrupted:
            raise
        except Exception as error:
            result = failed_unit(unit, reason_of(error))
        self._forget_pages(unit.groups)
        throttled.flush()
        processor, loaded = processor_seconds() - began, self._take_loaded()
        return replace(
            result, worker=watch.worker, started=started, ended=watch.now(), loaded=loaded, processor=processor
        )

    def _run(self, unit: Unit, report: Callable[[int], None], cancelled: Callable[[], bool]) -> UnitResult:
        if unit.stays_whole:
            return train_unit(self._job_of(unit.groups), unit, None, report, cancelled)
        whole = self._whole(unit.group)
        if whole.prepared is None or whole.fold != unit.fold:
            whole.prepared = None  # frees the rows of one fold before those of the next are prepared
            whole.fold, whole.prepared = unit.fold, _prepared_or_failed(whole.job, unit)
        return train_unit(whole.job, unit, whole.prepared, report, cancelled)

    def _whole(self, group: int) -> _Whole:
        if group not in self._wholes:
            self._wholes[group] = _Whole(self._job_of([group]))
        return self._wholes[group]

    def _job_of(self, groups: Sequence[int]) -> Job:
        job, loaded = self._rows.job_of(groups)
        self._loaded += loaded
        return job

    def step(
        self,
        step: Step,
        decided: GroupOutline | GroupFailed,
        takes: Sequence[Product] | Takes,
        fetched: int,
        watch: Watch,
    ) -> StepAnswer:
        """Run one step of a split group on the products it takes, ``fetched`` bytes of which came from other workers.

        Raises Interrupted, and NotFetched for inputs that it ``Takes`` while it runs, and nothing else.
        """
        started, began, throttled = watch.now(), processor_seconds(), Throttle(watch.report)
        with cancellable_kernels(watch.cancelled):
            answer = self._answer(step, decided, takes, throttled.add, watch.cancelled)
        throttled.flush()
        about = step if isinstance(decided, GroupFailed) or not step.blocks else _about(step, decided)
        moved = takes.fetched if isinstance(takes, Takes) else fetched
        record = replace(self._record(about, watch, started, moved), processor=processor_seconds() - began)
        return replace(answer, record=record)

    def _answer(
        self,
        step: Step,
        decided: GroupOutline | GroupFailed,
        takes: Sequence[Product] | Takes,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> StepAnswer:
        unit, unrecorded = step.unit, _unrecorded(step)
        if isinstance(decided, GroupFailed):
            return failed_step(step, failed_unit(unit, str(decided), facts=decided.facts))
        try:
            with np.errstate(all="ignore"):
                part = self.part(step, decided)
                if step.kind in GANG_KINDS:  # a gang of one worker; ``join`` handles larger ones
                    return StepAnswer(step, unrecorded, result=train_unit(self._job, unit, part, report, cancelled))
                pack, checkpointer = (
                    pack_of(self._job, unit, unit.configs, part, report, cancelled),
                    self._checkpointer(unit),
                )
                pack = kept(pack, checkpointer) if step.kind == "init" else replace(pack, keep=checkpointer.keep)
                if isinstance(takes, Takes):
                    rounds = self._rounds(pack, step, takes, decided)
                    if step.kind != "finish":
                        product = rounds.make()
                        return StepAnswer(step, unrecorded, product, more=goes_on(pack, product))
                    takes = rounds.finished()
                if step.kind == "finish":
                    result = UnitResult(
                        unit, finish(pack, unit, takes), {unit.group: decided.facts}, pushes=whole_order(step, takes)
                    )
                    return StepAnswer(step, unrecorded, result=result, more=False)
                product = make(pack, step, takes)
                if isinstance(product, Training) and step.kind != "init" and goes_on(pack, product):
                    checkpointer.keep(lambda: product)
                return StepAnswer(step, unrecorded, product, more=goes_on(pack, product))
        except (Interrupted, NotFetched):
            raise
        except Exception as error:
            return _broken_step(step, error, decided.facts)

    def _rounds(self, pack: Pack, step: Step, takes: Takes, decided: GroupOutline) -> RoundStep:
        unit = step.unit
        cells = self._of_rounds.cells(unit.group, unit.id)
        reached = self._reached[unit.group].setdefault(unit.id, WorkerState(cells=cells))
        return RoundStep(pack, step, takes, reached, cells_with_rows(decided))

    def _checkpointer(self, unit: Unit) -> Checkpointer:
        """Return the checkpointer of a unit's steps; each worker has its own timer for it."""
        clock = self._clocks.setdefault(unit.id, Timer())
        return Checkpointer.of(self._job.training.states, unit, unit.configs, clock=clock)

    def join(self, step: Step, decided: GroupOutline, gang: Gang, watch: Watch) -> StepAnswer:
        """Train a unit as one member of a gang; the product is the evaluation of the finished models on the member's rows.

        The first member evaluates all held-out rows, and keeps the models until ``conclude``. Raises Interrupted and
        nothing else.
        """
        started, throttled = watch.now(), Throttle(watch.report)
        unit = step.unit
        try:
            with np.errstate(all="ignore"), cancellable_kernels(watch.cancelled):
                part = self.part(_with_own_blocks(step, decided), decided, BlockRange(0, decided.n_blocks))
                pack = pack_of(self._job, unit, unit.configs, part, throttled.add, watch.cancelled)
                training = fit_together(pack, gang)
                if step.rank:
                    pack = replace(pack, prepared=replace(part, valid=None))
                product = evaluate(pack, training)
            # Members have equal models, so each sends as many gradients as the first, which records them for all.
            self._together[unit.id] = (pack, training, gang.sent.n_bytes * gang.size)
            answer = StepAnswer(step, _unrecorded(step), product, more=False)
        except Interrupted:
            raise
        except Exception as error:
            answer = _broken_step(step, error, decided.facts)
        throttled.flush()
        return replace(answer, record=self._record(step, watch, started, 0))

    def conclude(self, step: Step, evaluations: Sequence[Product], fetched: int, watch: Watch) -> StepAnswer:
        """Return the result of a gang's unit, from its members' evaluations."""
        started, unit = watch.now(), step.unit
        pack, training, exchanged = self._together.pop(unit.id)
        try:
            with np.errstate(all="ignore"):
                trials = finish(pack, unit, [training, *evaluations])
            answer = StepAnswer(
                step, _unrecorded(step), result=UnitResult(unit, trials, {unit.group: pack.prepared.facts}), more=False
            )
        except Exception as error:
            answer = _broken_step(step, error, pack.prepared.facts)
        return replace(answer, record=self._record(step, watch, started, fetched + exchanged))

    def part(self, step: Step, decided: GroupOutline, held_out: BlockRange | None = None) -> Prepared:
        """Return the encoded blocks of a step, with their pieces of the held-out rows or the pieces ``held_out``."""
        unit = step.unit
        wanted = decided.blocks_of(step) if step.round is None else own_blocks(decided, step)
        held = self._held if step.round is None else self._of_rounds
        runs = [decided.clipped(run) for run in held.runs(unit.group)]
        around = [run for run in runs if run.first <= wanted.first and wanted.last <= run.last]
        run = around[0] if around and len(wanted) and held_out is None else wanted
        pieces = run if held_out is None else held_out
        key = (unit.group, unit.fold, run, pieces)
        part = held.part(key, lambda: self._encoded(unit.group, decided, run, pieces))
        return part.part(wanted) if held_out is None else part

    def _encoded(self, group: int, decided: GroupOutline, run: BlockRange, pieces: BlockRange) -> Prepared:
        if not stays_stored(self._job, group_of(self._job, group)):
            return encode_blocks(self._job, decided, run, pieces, self._counted_rows)
        part = stored_blocks(self._job, decided, run, pieces)
        n_rows = part.train.n_rows + (0 if part.valid is None else part.valid.n_rows)
        self._loaded += n_rows * row_bytes(self._job.dataset)
        return part

    def _counted_rows(self, rows: RowNumbers) -> Dataset:
        data = self._rows.take(rows)
        self._loaded += dataset_bytes(data)
        return data

    def _take_loaded(self) -> int:
        loaded, self._loaded = self._loaded, 0
        return loaded

    def _record(self, step: Step, watch: Watch, started: float, fetched: int) -> StepRecord:
        return StepRecord(
            step.id,
            step.kind,
            step.epoch,
            step.blocks,
            watch.worker,
            started,
            watch.now(),
            fetched,
            self._take_loaded(),
        )


def _about(step: Step, decided: GroupOutline) -> Step:
    """Return a step with its partition's actual blocks."""
    if step.round is not None:
        return replace(step, blocks=own_blocks(decided, step))
    return step if step.partition is None else replace(step, blocks=decided.partition(step.partition))


def _with_own_blocks(step: Step, decided: GroupOutline) -> Step:
    """Return a member's step with its part of the actual blocks: schedules also count blocks of rows that do not train."""
    if decided.n_blocks < step.size:
        blocks, workers = count(decided.n_blocks, "block"), count(step.size, "worker")
        raise ValueError(f"{workers} cannot train one model together on {blocks} of training rows; hint: fewer workers")
    return replace(step, blocks=cut_evenly(decided.n_blocks, step.size)[step.rank])


def failed_step(step: Step, result: UnitResult, worker: int = 0, at: float = 0.0) -> StepAnswer:
    """Return the answer of a failed step, by which its unit fails."""
    record = replace(_unrecorded(step), worker=worker, started=at, ended=at)
    return StepAnswer(step, record, result=result, more=False, failed=True)


def _broken_step(step: Step, error: Exception, facts: GroupFacts) -> StepAnswer:
    """Return an answer in which every config fails, as the other workers' sums include all of them."""
    return failed_step(step, failed_unit(step.unit, reason_of(error, facts.features), facts=facts))


def _unrecorded(step: Step) -> StepRecord:
    return StepRecord(step.id, step.kind, step.epoch, step.blocks, 0, 0.0, 0.0)


def _prepared_or_failed(job: Job, unit: Unit) -> Prepared | GroupFailed:
    return or_failed(lambda: prepare(job, group_of(job, unit.group), unit.fold))


def outline_or_failed(job: Job, unit: Unit) -> GroupOutline | GroupFailed:
    """Return the outline of a unit's group, or why the group cannot be trained."""
    return or_failed(lambda: outline(job, group_of(job, unit.group), unit.fold))


class Throttle:
    """Counts, and reports the sum at most every ``REPORT_SECONDS``."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self._report = report
        self._count = 0
        self._reported = time.monotonic()

    def add(self, count: int) -> None:
        """Count ``count`` more, and report if it is time."""
        self._count += count
        if time.monotonic() - self._reported >= REPORT_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Report the counts that have not been reported yet."""
        if self._count:
            self._report(self._count)
        self._count = 0
        self._reported = time.monotonic()
