"""The part of a run on Ray that stays in the user's process: it passes events to the schedule and keeps results.

If the process that drives the workers dies, its workers die, too. The schedule learns that they are lost, and a new
process continues with what is left.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from grouplearn.data.files.plain_values import from_bytes
from grouplearn.runtime.ray.supervised.pipe import (
    WRITTEN_KINDS,
    Absent,
    Happened,
    Joined,
    Leaving,
    Lost,
    RunEvents,
    StepEnded,
    UnitEnded,
)
from grouplearn.runtime.worker import failed_step
from grouplearn.schedule.messages import (
    Discard,
    Dismiss,
    Event,
    Finish,
    Instruction,
    Operator,
    Run,
    RunStep,
    Step,
    Unit,
    UnitDone,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)
from grouplearn.train.job import LostWork, Observer, UnitResult
from grouplearn.train.sharded.steps import StepAnswer, StepLog
from grouplearn.train.unit import failed_unit

#: A unit that kills its worker this often is given up.
UNIT_ATTEMPTS = 3
#: A dying cluster takes all its workers with it, most of which did not cause that: it counts half as much as a worker.
_WORKER_LOSS, _CLUSTER_LOSS = 2, 1
_DIED = f"the worker process died {UNIT_ATTEMPTS} times while training it (out of memory?)"


@dataclass(frozen=True, slots=True)
class _Running:
    """What a worker is running: a unit, or a step of one."""

    unit: Unit
    since: float
    step: Step | None = None

    def lost(self, worker: int, now: float) -> LostWork:
        if self.step is None:
            return LostWork(worker, self.since, now)
        return LostWork(worker, self.since, now, self.step.epoch, self.step.blocks)


class Coordinator:
    """Takes news of workers and returns their next orders; ``began`` is the ``time.time()`` from which times count."""

    def __init__(self, operator: Operator, observer: Observer, began: float) -> None:
        self._operator, self._observer, self.began = operator, observer, began
        self._results: dict[int, UnitResult] = {}
        self._log = StepLog()
        self._running: dict[int, _Running] = {}
        self._units: dict[int, Unit] = {}
        self._losses: Counter[int] = Counter()
        self._lost: defaultdict[int, list[LostWork]] = defaultdict(list)
        self._workers: set[int] = set()
        self._written: list[bytes] = []
        #: The worker that made each kept product, by step.
        self.made: dict[int, int] = {}
        #: The number of the next worker to join; numbers are not reused.
        self.next_worker = 0
        self.finished = False
        #: The number of units and steps that have ended.
        self.ended = 0

    @property
    def results(self) -> tuple[UnitResult, ...]:
        """The results in unit order."""
        return tuple(self._results[number] for number in sorted(self._results))

    def take(self, news: RunEvents) -> tuple[Instruction, ...]:
        """Return the orders that follow from news; results are read later, by ``catch_up``."""
        orders: list[Instruction] = []
        for each in news.happened:
            orders += self._after(each)
        for number, epochs in news.epochs:
            if number in self._units:
                self._observer.epochs_done(self._units[number], epochs)
        return tuple(orders)

    def catch_up(self) -> None:
        """Read the results that have arrived; workers are busy meanwhile."""
        written, self._written = self._written, []
        for content in written:
            self._accept(from_bytes(content, WRITTEN_KINDS))

    def cluster_lost(self, kept: bool) -> None:
        """Record that all workers are gone; ``kept``: their products still exist."""
        self._lose(tuple(sorted(self._workers)), kept, _CLUSTER_LOSS)
        if not kept:
            self.made.clear()

    def _after(self, happened: Happened) -> list[Instruction]:
        match happened:
            case Joined(worker):
                self.next_worker = max(self.next_worker, worker + 1)
                self._workers.add(worker)
                return self._tell(WorkerReady(worker))
            case Absent(worker):
                self.next_worker = max(self.next_worker, worker + 1)
                orders = self._tell(WorkerReady(worker), WorkerLost(worker, kept=True))
                self._running.pop(worker, None)
                return orders
            case Lost(workers, kept):
                return self._lose(workers, kept, _WORKER_LOSS)
            case Leaving(workers, kept):
                there = [worker for worker in workers if worker in self._workers]
                return self._tell(*(WorkerLeaving(worker, kept, replaced=True) for worker in there))
            case UnitEnded(worker, result):
                unit = self._running.pop(worker).unit
                self._written.append(result)
                self.ended += 1
                return self._tell(UnitDone(worker, unit))
            case StepEnded(answer):
                return self._step_ended(answer)

    def _tell(self, *events: Event) -> list[Instruction]:
        """Pass events to the schedule and return its instructions; units that were tried too often are given up instead."""
        orders: list[Instruction] = []
        todo = list(events)
        while todo:
            for instruction in self._operator.on(todo.pop(0)):
                match instruction:
                    case Run(worker, unit) if self._hopeless(unit):
                        self._accept(failed_unit(unit, _DIED))
                        todo.insert(0, UnitDone(worker, unit))
                    case RunStep(worker, step) if self._hopeless(step.unit):
                        todo.insert(0, self._give_up(worker, step))
                    case _:
                        self._note(instruction)
                        orders.append(instruction)
        return orders

    def _note(self, instruction: Instruction) -> None:
        now = time.time() - self.began
        match instruction:
            case Run(worker, unit):
                self._running[worker] = _Running(unit, now)
                self._units[unit.id] = unit
            case RunStep(worker, step):
                self._running[worker] = _Running(step.unit, now, step)
                self._units[step.unit.id] = step.unit
            case Discard(steps):
                for number in steps:
                    self.made.pop(number, None)
            case Dismiss(worker):
                self._workers.discard(worker)
            case Finish():
                self.finished = True

    def _hopeless(self, unit: Unit) -> bool:
        return self._losses[unit.id] >= UNIT_ATTEMPTS * _WORKER_LOSS

    def _give_up(self, worker: int, step: Step) -> Event:
        answer = failed_step(step, failed_unit(step.unit, _DIED), worker, time.time() - self.began)
        self._log_step(answer)
        return answer.event

    def _step_ended(self, answer: StepAnswer) -> list[Instruction]:
        worker, step = answer.record.worker, answer.step
        self._running.pop(worker, None)
        self.ended += 1
        if step.size == 1 and not answer.failed and answer.result is None:
            self.made[step.id] = worker
        self._log_step(answer)
        return self._tell(answer.event)

    def _log_step(self, answer: StepAnswer) -> None:
        result = self._log.add(answer)
        if result is not None:
            self._accept(result)

    def _accept(self, result: UnitResult) -> None:
        lost = tuple(self._lost.pop(result.unit.id, ()))
        result = replace(result, lost=lost) if lost else result
        self._results[result.unit.id] = result
        self._observer.unit_done(result)

    def _lose(self, workers: Iterable[int], kept: bool, weight: int) -> list[Instruction]:
        """Record lost workers; for a unit this is one loss, however many of its workers are gone."""
        workers, now = tuple(workers), time.time() - self.began
        gone = {worker: self._running.pop(worker) for worker in workers if worker in self._running}
        for worker, running in gone.items():
            self._lost[running.unit.id].append(running.lost(worker, now))
        units = {running.unit.id: running.unit for running in gone.values()}
        self._losses.update(dict.fromkeys(units, weight))
        self._workers.difference_update(workers)
        if units:
            self._observer.units_lost(tuple(units.values()))
        orders = self._tell(*(WorkerLost(worker, kept, replaced=True) for worker in workers))
        for worker in workers:  # drop also orders that the schedule gave before it heard of the loss
            self._running.pop(worker, None)
        return orders
