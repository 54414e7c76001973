"""The Ray runtime: workers are actors, the job lies once in the object store, nothing is waited for without a limit."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import threadpoolctl

from grouplearn.errors import Cancelled, TrainingError
from grouplearn.learners import registry
from grouplearn.learners.base import Interrupted
from grouplearn.runtime.bench import Bench
from grouplearn.runtime.job import Job, Observer, UnitResult
from grouplearn.runtime.ray_cluster import CLUSTER
from grouplearn.runtime.single_thread import import_learner
from grouplearn.runtime.unit import failed_unit
from grouplearn.schedule.messages import (
    Finish,
    Instruction,
    Load,
    Operator,
    Release,
    Run,
    Unit,
    UnitDone,
    WorkerLost,
    WorkerReady,
)

#: How often the driver looks for news, asks for progress, and looks whether it was cancelled.
POLL_SECONDS = 0.2
#: How long an answer that has arrived may take to be read.
READ_SECONDS = 60.0
#: How long a worker may take to start (importing torch on a busy machine included) or to say how far it is.
ANSWER_SECONDS = 120.0
#: How long a worker may take to forget a job.
REST_SECONDS = 2.0
#: A unit that takes its worker down this often is given up.
UNIT_ATTEMPTS = 3
#: The run is given up after this many workers that could not even start.
START_ATTEMPTS = 4

Epochs = tuple[tuple[Unit, int], ...]


class RayWorker:
    """What runs inside an actor: a bench, the orders it follows, and the epochs it has not told of yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: Counter[Unit] = Counter()

    def begin(self, job: Job, worker: int, began: float) -> None:
        """Get ready for a run that began at ``time.time()`` = ``began``."""
        import_learner(job.learner)
        self._threads = threadpoolctl.ThreadpoolController()
        self._bench, self._worker, self._began = Bench(job), worker, began

    def follow(self, orders: Sequence[Instruction]) -> tuple[UnitResult, Epochs]:
        """Follow orders, of which the last is a Run; return its result and the epochs not told of yet."""
        with self._threads.limit(limits=1):
            for order in orders:
                match order:
                    case Load(_, group):
                        self._bench.load(group)
                    case Release():
                        self._bench.release()
                    case Run(_, unit):
                        result = self._run(unit)
        return result, self.progress()

    def _run(self, unit: Unit) -> UnitResult:
        def report(epochs: int) -> None:
            with self._lock:
                self._epochs[unit] += epochs

        return self._bench.run(unit, self._worker, self._began, report, lambda: False)

    def progress(self) -> Epochs:
        """Return the epochs done since the last call; that it answers at all says that the worker lives."""
        with self._lock:
            epochs = tuple(self._epochs.items())
            self._epochs.clear()
        return epochs

    def rest(self) -> None:
        """Forget the job, so that the object store can."""
        del self._bench


class RayRuntime:
    """Runs units on actors of this machine's cores; Ray is started by the first run and kept until ``shutdown``."""

    name = "ray"

    def __init__(self) -> None:
        self._actors: list[Any] = []
        self._cluster = -1

    def run(
        self, job: Job, operator: Operator, workers: int, observer: Observer, cancelled: Callable[[], bool]
    ) -> tuple[UnitResult, ...]:
        """Run every unit and return the results in unit order.

        A lost worker is replaced and its unit run again. Raises Cancelled within 2 s of ``cancelled()`` being true or of
        Ctrl-C, MissingDependency without Ray, TrainingError when workers cannot be started.
        """
        registry.check_installed(registry.learner(job.learner))
        try:
            with CLUSTER.serving(_bytes(job)) as (ray, cluster), _failures_explained(ray):
                actors = self._actors if cluster == self._cluster else []
                self._actors, self._cluster = [], cluster
                self._actors, results = _RayRun(ray, cluster, job, operator, observer).run(workers, actors, cancelled)
        except (Interrupted, KeyboardInterrupt):
            raise Cancelled("training was interrupted; nothing was stored") from None
        return results

    def shutdown(self) -> None:
        """Stop the actors, and Ray itself unless another run of this process still uses it."""
        self._actors = []
        CLUSTER.stop()


@contextmanager
def _failures_explained(ray: Any) -> Iterator[None]:
    try:
        yield
    except ray.exceptions.RayError as error:
        raise TrainingError(f"Ray failed: {error}", hint="run the statement again") from error


def _bytes(job: Job) -> int:
    data = job.dataset
    return sum(int(array.nbytes) for array in (data.numeric, data.codes, data.y, data.weight, data.split))


@dataclass
class _Worker:
    """The driver's view of one actor."""

    actor: Any
    ready: bool = False
    running: Unit | None = None
    orders: list[Instruction] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that an actor has not answered yet."""

    worker: int
    kind: Literal["begin", "follow", "progress"]
    since: float


class _RayRun:
    """One run: translates instructions into calls of actors, and their answers into events."""

    def __init__(self, ray: Any, cluster: int, job: Job, operator: Operator, observer: Observer) -> None:
        self._ray, self._cluster, self._operator, self._observer = ray, cluster, operator, observer
        self._began = time.time()
        self._job = ray.put(job)
        self._numbers = itertools.count()
        self._workers: dict[int, _Worker] = {}
        self._calls: dict[Any, _Call] = {}
        self._results: dict[int, UnitResult] = {}
        self._attempts: Counter[int] = Counter()
        self._failed_starts = 0
        self._finished = False
        self._spare: deque[Any] = deque()

    def run(
        self, workers: int, actors: Sequence[Any], cancelled: Callable[[], bool]
    ) -> tuple[list[Any], tuple[UnitResult, ...]]:
        """Run to the end on ``workers`` workers, some of them on the existing ``actors``.

        Return the actors that can be used again, and the results. Raises Interrupted when cancelled; whatever it raises,
        all actors are killed.
        """
        self._spare.extend(actors)
        try:
            for _ in range(max(1, workers)):
                self._hire()
            while not self._finished:
                self._turn(cancelled)
            results = tuple(self._results[number] for number in sorted(self._results))
            return self._rest(), results
        except BaseException:
            self._kill()
            raise

    def _turn(self, cancelled: Callable[[], bool]) -> None:
        """Wait for an answer, at most ``POLL_SECONDS``, and act on it."""
        if cancelled():
            raise Interrupted
        if not CLUSTER.serves(self._cluster):
            raise TrainingError("Ray stopped working during the run", hint="run the statement again")
        ready, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=POLL_SECONDS)
        for reference in ready:
            self._take(self._calls.pop(reference), reference)
        self._look_after_workers()

    def _kill(self) -> None:
        if CLUSTER.serves(self._cluster):
            for actor in [*self._spare, *(worker.actor for worker in self._workers.values())]:
                self._ray.kill(actor)

    def _rest(self) -> list[Any]:
        """Have the actors forget the job; return those that did and can be used again, the others are killed."""
        ready = [worker.actor for worker in self._workers.values() if worker.ready]
        starting = [worker.actor for worker in self._workers.values() if not worker.ready]
        resting = {actor.rest.remote(): actor for actor in ready}
        done, late = (
            self._ray.wait(list(resting), num_returns=len(resting), timeout=REST_SECONDS) if resting else ([], [])
        )
        for actor in [*starting, *(resting[reference] for reference in late)]:
            self._ray.kill(actor)
        return [*self._spare, *(resting[reference] for reference in done)]

    def _hire(self) -> None:
        number = next(self._numbers)
        actor = self._spare.popleft() if self._spare else _new_actor(self._ray)
        self._workers[number] = _Worker(actor)
        self._call(number, "begin", actor.begin.remote(self._job, number, self._began))

    def _call(self, number: int, kind: Literal["begin", "follow", "progress"], reference: Any) -> None:
        self._calls[reference] = _Call(number, kind, time.monotonic())

    def _take(self, call: _Call, reference: Any) -> None:
        exceptions = self._ray.exceptions
        try:
            answer = self._ray.get(reference, timeout=READ_SECONDS)
        except exceptions.RayTaskError as error:
            raise TrainingError(f"a worker failed: {error.cause!r}") from error
        except exceptions.RayError:
            self._lose(call.worker)
            return
        match call.kind:
            case "begin":
                self._workers[call.worker].ready = True
                self._execute(self._operator.on(WorkerReady(call.worker)))
            case "progress":
                self._tell(answer)
            case "follow":
                result, epochs = answer
                self._tell(epochs)
                self._workers[call.worker].running = None
                self._accept(call.worker, result)

    def _tell(self, epochs: Epochs) -> None:
        for unit, count in epochs:
            self._observer.epochs_done(unit, count)

    def _accept(self, number: int, result: UnitResult) -> None:
        self._results[result.unit.id] = result
        self._observer.unit_done(result)
        self._execute(self._operator.on(UnitDone(number, result.unit)))

    def _lose(self, number: int) -> None:
        """Make sure that the worker is dead, run its unit elsewhere and hire another."""
        worker = self._workers.pop(number)
        self._ray.kill(worker.actor)
        self._calls = {reference: call for reference, call in self._calls.items() if call.worker != number}
        if worker.running is not None:
            self._attempts[worker.running.id] += 1
        if worker.ready:
            self._execute(self._operator.on(WorkerLost(number)))
        else:
            self._failed_starts += 1
            if self._failed_starts >= START_ATTEMPTS:
                raise TrainingError("Ray workers die as they start", hint="WITH (executor = 'local')")
        self._hire()

    def _execute(self, instructions: Iterable[Instruction]) -> None:
        """Orders are sent with the next Run, so that a unit costs one call."""
        for instruction in instructions:
            match instruction:
                case Finish():
                    self._finished = True
                case Run(number, unit):
                    self._workers[number].orders.append(instruction)
                    self._run(number, unit)
                case Load(number, _) | Release(number, _):
                    self._workers[number].orders.append(instruction)

    def _run(self, number: int, unit: Unit) -> None:
        worker = self._workers[number]
        if self._attempts[unit.id] >= UNIT_ATTEMPTS:
            reason = f"the worker process died {UNIT_ATTEMPTS} times while training it (out of memory?)"
            worker.orders.pop()
            self._accept(number, failed_unit(unit, reason))
            return
        worker.running = unit
        orders, worker.orders = worker.orders, []
        self._call(number, "follow", worker.actor.follow.remote(orders))

    def _look_after_workers(self) -> None:
        """Ask busy workers how far they are; lose those that no longer answer."""
        now = time.monotonic()
        asked = {call.worker for call in self._calls.values() if call.kind == "progress"}
        silent = {
            call.worker for call in self._calls.values() if call.kind != "follow" and now - call.since > ANSWER_SECONDS
        }
        for number in silent:
            self._lose(number)
        busy = [
            call.worker for call in self._calls.values() if call.kind == "follow" and now - call.since > POLL_SECONDS
        ]
        for number in busy:
            if number not in asked:
                self._call(number, "progress", self._workers[number].actor.progress.remote())


def _new_actor(ray: Any) -> Any:
    """Return a new actor, which asks for no share of a core: how many there are is the user's choice."""
    return ray.remote(RayWorker).options(num_cpus=0, max_concurrency=2, max_restarts=0).remote()
