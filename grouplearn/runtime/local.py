"""The local runtime: workers are threads of this process, instructed by the calling thread."""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from grouplearn.failures import StatementInterrupted, TrainingFailed
from grouplearn.kernels.library import on_threads
from grouplearn.learners.contract.control import Interrupted
from grouplearn.runtime.held_rows import HeldRows
from grouplearn.runtime.worker import InputCache, Watch, Worker, outline_or_failed
from grouplearn.schedule.messages import (
    Discard,
    Finish,
    Instruction,
    Load,
    Operator,
    Part,
    Release,
    Run,
    RunStep,
    Step,
    Unit,
    UnitDone,
    WorkerReady,
)
from grouplearn.train.job import Job, Observer, UnitResult
from grouplearn.train.rows.prepare import GroupOutline
from grouplearn.train.rows.used import GroupFailed
from grouplearn.train.sharded.descent import Product, Takes
from grouplearn.train.sharded.steps import StepAnswer, StepLog, product_bytes, taken_of
from grouplearn.train.single_thread import blas_on_one_thread, import_learner, openmp_on_one_thread

#: How often the calling thread checks for cancellation.
POLL_SECONDS = 0.1
#: How long threads may take to notice a cancellation, and then to stop after they were interrupted.
NOTICE_SECONDS, STOP_SECONDS = 0.7, 1.0


class LocalRuntime:
    """Runs units in this process; models do not depend on the number of workers.

    With ``here`` they run in the calling thread: starting another takes longer than a small TRAIN. Of ``cores`` those that no
    worker uses are lent to the kernels of the others.
    """

    name = "local"

    def __init__(self, *, here: bool = False, cores: int = 1) -> None:
        self._here, self._cores = here, cores

    def run(
        self, job: Job, operator: Operator, workers: int, observer: Observer, cancelled: Callable[[], bool]
    ) -> tuple[UnitResult, ...]:
        """Run every unit and return the results in unit order.

        Raises StatementInterrupted within 2 s of ``cancelled()`` being true or of Ctrl-C, and leaves no thread running.
        """
        import_learner(job.trainer)
        try:
            with blas_on_one_thread():
                run = (_Here if self._here else _Workers)(job, operator, max(1, workers), observer, self._cores)
                return run.run(cancelled)
        except (Interrupted, KeyboardInterrupt):
            raise StatementInterrupted("training was interrupted; nothing was stored") from None


@dataclass(frozen=True, slots=True)
class _Epochs:
    unit: Unit
    epochs: int


@dataclass(frozen=True, slots=True)
class _Broken:
    error: BaseException


class _Workers:
    """Worker threads, instructed by the calling thread, which also calls all observers.

    A worker's thread starts with its first order: with many workers and little work, most never need one.
    """

    def __init__(self, job: Job, operator: Operator, workers: int, observer: Observer, cores: int) -> None:
        self._job, self._operator, self._observer, self._cores = job, operator, observer, cores
        self._began = time.time()
        self._stop = threading.Event()
        self._news: queue.SimpleQueue[UnitResult | StepAnswer | _Epochs | _Broken] = queue.SimpleQueue()
        self._orders: list[queue.SimpleQueue[Instruction]] = [queue.SimpleQueue() for _ in range(workers)]
        self._threads: dict[int, threading.Thread] = {}
        self._held = HeldRows()
        self._results: dict[int, UnitResult] = {}
        self._outlines, self._products, self._log = _Outlines(job), _Products(), StepLog()
        self._finished = False
        self._running = 0

    def run(self, cancelled: Callable[[], bool]) -> tuple[UnitResult, ...]:
        try:
            for worker in range(len(self._orders)):
                self._execute(self._operator.on(WorkerReady(worker)))
            while not self._finished:
                if cancelled():
                    raise Interrupted
                if not self._running:
                    workers = len(self._orders)
                    raise RuntimeError(
                        f"operator {self._operator.name} waits, but no worker of {workers} does anything"
                    )
                with suppress(queue.Empty):
                    self._take(self._receive())
        finally:
            self._stop_threads()
        return tuple(self._results[number] for number in sorted(self._results))

    def _receive(self) -> UnitResult | StepAnswer | _Epochs | _Broken:
        return self._news.get(timeout=POLL_SECONDS)

    def _take(self, news: UnitResult | StepAnswer | _Epochs | _Broken) -> None:
        match news:
            case _Epochs(unit, epochs):
                self._observer.epochs_done(unit, epochs)
            case _Broken(error):
                raise error
            case StepAnswer():
                self._running -= 1
                result = self._log.add(news)
                self._execute(self._operator.on(news.event))
                if result is not None:
                    self._accept(result)
            case UnitResult(unit=unit, worker=worker):
                self._running -= 1
                self._execute(self._operator.on(UnitDone(worker, unit)))
                self._accept(news)

    def _accept(self, result: UnitResult) -> None:
        self._results[result.unit.id] = result
        self._observer.unit_done(result)

    def _execute(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Finish):
                self._finished = True
                for orders in self._orders:
                    orders.put(instruction)
            elif isinstance(instruction, Discard):
                self._products.discard(instruction.steps)
            else:
                _refuse_gangs(instruction)
                self._running += isinstance(instruction, Run | RunStep)
                self._order(instruction.worker, instruction)

    def _order(self, worker: int, instruction: Instruction) -> None:
        self._orders[worker].put(instruction)
        if worker not in self._threads:
            name = f"grouplearn-{worker}"
            self._threads[worker] = threading.Thread(target=self._work, args=(worker,), name=name, daemon=True)
            self._threads[worker].start()

    def _work(self, worker: int) -> None:
        """Carry out orders until told to stop; errors here are raised again in the calling thread."""
        try:
            with suppress(Interrupted), openmp_on_one_thread(), on_threads(self._share):
                self._follow_orders(worker)
        except BaseException as error:
            self._news.put(_Broken(error))

    def _share(self) -> int:
        """Return how many cores a worker may use now: its share among those that have something to do."""
        return self._cores // max(1, min(self._running, len(self._orders)))

    def _follow_orders(self, worker: int) -> None:
        own, taken = Worker(self._job, shared=self._held), InputCache()
        while not isinstance(order := self._orders[worker].get(), Finish) and not self._stop.is_set():
            self._follow(order, own, worker, taken)

    def _follow(self, order: Instruction, own: Worker, worker: int, taken: InputCache) -> None:
        match order:
            case Load(_, group, blocks):
                own.load(group, blocks)
            case Release(_, group):
                own.release(group)
            case Run(_, unit):
                self._news.put(own.run(unit, self._watch(worker, unit)))
            case RunStep(_, step):
                self._news.put(self._step(own, worker, step, taken))

    def _step(self, own: Worker, worker: int, step: Step, taken: InputCache) -> StepAnswer:
        takes: Takes | list[Product]
        if step.round is not None:
            takes, fetched = Takes(lambda number, piece: self._products.one(worker, step.takes[number], piece)), 0
        else:
            here = taken.of(step)
            takes, fetched = self._products.take(worker, step) if here is None else (here, 0)
            taken.keep(step, takes)
        answer = own.step(step, self._outlines.of(step.unit), takes, fetched, self._watch(worker, step.unit))
        if answer.product is not None:
            self._products.keep(worker, step.id, answer.product)
        return replace(answer, product=None)

    def _watch(self, worker: int, unit: Unit) -> Watch:
        return Watch(worker, self._began, self._reporter(unit), self._stop.is_set)

    def _reporter(self, unit: Unit) -> Callable[[int], None]:
        return lambda epochs: self._news.put(_Epochs(unit, epochs))

    def _stop_threads(self) -> None:
        """Ask all threads to stop; raise Interrupted inside those that do not check for it (such as in a long epoch)."""
        self._stop.set()
        for orders in self._orders:
            orders.put(Finish())
        threads = tuple(self._threads.values())
        _join(threads, NOTICE_SECONDS)
        for thread in threads:
            if thread.is_alive() and thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupted))
        _join(threads, STOP_SECONDS)


class _Here(_Workers):
    """Workers that run in the calling thread, one at a time, each until it waits for orders."""

    def __init__(self, job: Job, operator: Operator, workers: int, observer: Observer, cores: int) -> None:
        super().__init__(job, operator, workers, observer, cores)
        self._own = [(Worker(job, shared=self._held), InputCache()) for _ in range(workers)]
        self._cancelled: Callable[[], bool] = self._stop.is_set

    def run(self, cancelled: Callable[[], bool]) -> tuple[UnitResult, ...]:
        self._cancelled = cancelled
        with openmp_on_one_thread(), on_threads(lambda: self._cores):
            return super().run(cancelled)

    def _order(self, worker: int, instruction: Instruction) -> None:
        self._orders[worker].put(instruction)

    def _receive(self) -> UnitResult | StepAnswer | _Epochs | _Broken:
        for worker, (orders, (own, taken)) in enumerate(zip(self._orders, self._own, strict=True)):
            while self._news.empty() and not orders.empty():
                self._follow(orders.get(), own, worker, taken)
        return self._news.get_nowait()

    def _watch(self, worker: int, unit: Unit) -> Watch:
        return Watch(worker, self._began, self._reporter(unit), self._cancelled)


class _Outlines:
    """The outlines of split groups, each made once for all workers."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._known: dict[tuple[int, int], GroupOutline | GroupFailed] = {}

    def of(self, unit: Unit) -> GroupOutline | GroupFailed:
        """Return the outline of a unit's group under its fold."""
        key = (unit.group, unit.fold)
        with self._lock:
            if key not in self._known:
                self._known[key] = outline_or_failed(self._job, unit)
            return self._known[key]


class _Products:
    """The products of steps, and which worker made each, in the memory that all workers share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[int, tuple[int, Product]] = {}

    def keep(self, worker: int, step: int, product: Product) -> None:
        """Keep what a step made."""
        with self._lock:
            self._made[step] = (worker, product)

    def take(self, worker: int, step: Step) -> tuple[list[Product], int]:
        """Return the products that a step takes, and the bytes of those made by other workers."""
        with self._lock:
            made = [self._made[each] for each in step.inputs]
        taken = [(maker, taken_of(product, step.piece)) for maker, product in made]
        fetched = sum(product_bytes(product) for maker, product in taken if maker != worker)
        return [product for _, product in taken], fetched

    def one(self, worker: int, step: int, piece: Part | None) -> tuple[Product, int]:
        """Return a step's product, or a piece of it, and its bytes if another worker made it."""
        with self._lock:
            maker, product = self._made[step]
        taken = taken_of(product, piece)
        return taken, product_bytes(taken) if maker != worker else 0

    def discard(self, steps: Sequence[int]) -> None:
        """Forget what these steps made."""
        with self._lock:
            for step in steps:
                self._made.pop(step, None)


def _refuse_gangs(instruction: Instruction) -> None:
    if isinstance(instruction, RunStep) and instruction.step.size > 1:
        message = (
            f"a group cannot be split between threads for a step that {instruction.step.size} workers run together"
        )
        raise TrainingFailed(message, hint="WITH (executor = 'ray')")


def _join(threads: Sequence[threading.Thread], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, deadline - time.monotonic()))
