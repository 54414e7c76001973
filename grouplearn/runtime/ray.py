"""The Ray runtime: workers are actors, the job lies once in the object store, nothing is waited for without a limit."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from grouplearn.errors import Cancelled, TrainingError
from grouplearn.learners import registry
from grouplearn.learners.base import Gang, Interrupted
from grouplearn.runtime.bench import failed_step, outline_or_failed
from grouplearn.runtime.job import Job, Observer, UnitResult
from grouplearn.runtime.prepare import GroupFailed
from grouplearn.runtime.ray_cluster import CLUSTER, failures_explained
from grouplearn.runtime.ray_gang import GANG_SECONDS, Gangs, Members, free_ports
from grouplearn.runtime.ray_network import put_job
from grouplearn.runtime.ray_rows import put_rows, sent_job
from grouplearn.runtime.ray_worker import Epochs, Hired, Made, Missing, StepMade, Supplies, new_actor
from grouplearn.runtime.rows import dataset_bytes
from grouplearn.runtime.steps import StepAnswer, StepLog
from grouplearn.runtime.unit import failed_unit
from grouplearn.schedule.messages import (
    Discard,
    Finish,
    Instruction,
    Load,
    Operator,
    Release,
    Run,
    RunStep,
    Step,
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
_DIED = f"the worker process died {UNIT_ATTEMPTS} times while training it (out of memory?)"


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
        registry.check_installed(job.trainer)
        try:
            stored = 0 if job.dataset.files else dataset_bytes(job.dataset)
            with CLUSTER.serving(stored) as (ray, cluster), failures_explained(ray):
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


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that an actor has not answered yet."""

    worker: int
    kind: Literal["begin", "follow", "progress"]
    since: float


class _RayRun:
    """One run: translates instructions into calls of actors, and their answers into events.

    The driver routes references of products and never their bytes.
    """

    def __init__(self, ray: Any, cluster: int, job: Job, operator: Operator, observer: Observer) -> None:
        self._ray, self._cluster, self._operator, self._observer = ray, cluster, operator, observer
        self._began = time.time()
        self._whole_job = job
        self._job = put_job(ray, sent_job(ray, job))
        self._chunks = put_rows(ray, job)
        self._outlines: dict[tuple[int, int], Any] = {}
        self._made: dict[int, Made] = {}
        self._gangs = Gangs()
        self._owed: deque[StepAnswer] = deque()
        self._log = StepLog()
        self._directory = tempfile.TemporaryDirectory(prefix="gl-gang-")
        self._numbers = itertools.count()
        self._workers: dict[int, Hired] = {}
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
        finally:
            self._directory.cleanup()

    def _turn(self, cancelled: Callable[[], bool]) -> None:
        """Wait for an answer, at most ``POLL_SECONDS``, and act on it."""
        if cancelled():
            raise Interrupted
        if not CLUSTER.serves(self._cluster):
            raise TrainingError("Ray stopped working during the run", hint="run the statement again")
        while self._owed:
            self._step_done(self._owed.popleft())
        if self._finished:
            return
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
        actor = self._spare.popleft() if self._spare else new_actor(self._ray)
        self._workers[number] = Hired(actor)
        self._call(number, "begin", actor.begin.remote(self._job, self._chunks, number, self._began))

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
                made, epochs = answer
                self._tell(epochs)
                self._answered(call.worker, made)

    def _answered(self, number: int, answer: UnitResult | StepMade | Missing) -> None:
        match answer:
            case UnitResult():
                self._idle(number)
                self._accept(number, answer)
            case Missing(makers=makers):
                # Products are gone with their worker; and the only way to end a step is to end the worker that runs it.
                for each in {*makers, number}:
                    if each in self._workers:
                        self._lose(each)
            case StepMade():
                gang = self._gangs.of(number)
                if gang is not None:
                    self._gang_answered(gang, number, answer)
                    return
                self._idle(number)
                if answer.product is not None:
                    step = answer.answer.step.id
                    self._made[step] = Made(step, number, answer.product)
                self._step_done(answer.answer)

    def _idle(self, number: int) -> None:
        self._workers[number].running = None

    def _tell(self, epochs: Epochs) -> None:
        for unit, count in epochs:
            self._observer.epochs_done(unit, count)

    def _accept(self, number: int, result: UnitResult) -> None:
        self._results[result.unit.id] = result
        self._observer.unit_done(result)
        self._execute(self._operator.on(UnitDone(number, result.unit)))

    def _step_done(self, answer: StepAnswer) -> None:
        result = self._log.add(answer)
        if result is not None:
            self._results[result.unit.id] = result
            self._observer.unit_done(result)
        self._execute(self._operator.on(answer.event))

    def _lose(self, number: int) -> None:
        """Make sure that the worker is dead, with its gang; run its unit elsewhere and hire another."""
        worker = self._workers.pop(number)
        gang = self._gangs.of(number)
        if gang is not None:
            self._gangs.end(gang)
            self._part_with(number, gang)
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
        """Orders are sent with the next Run or RunStep, so that a unit costs one call."""
        for instruction in instructions:
            match instruction:
                case Finish():
                    self._finished = True
                case Discard(steps):
                    for step_number in steps:
                        self._made.pop(step_number, None)
                case Run() | RunStep() | Load() | Release():
                    self._order(instruction)

    def _order(self, instruction: Run | RunStep | Load | Release) -> None:
        worker = self._workers.get(instruction.worker)
        if worker is None:  # lost just now, as the schedule is about to be told
            return
        worker.orders.append(instruction)
        match instruction:
            case Run(number, unit):
                self._run(number, unit)
            case RunStep(number, step):
                self._run_step(number, step)

    def _run_step(self, number: int, step: Step) -> None:
        worker, unit = self._workers[number], step.unit
        outline = self._outline(unit)
        if isinstance(outline, GroupFailed) or self._attempts[unit.id] >= UNIT_ATTEMPTS:
            reason = str(outline) if isinstance(outline, GroupFailed) else _DIED
            worker.orders.pop()
            self._owed.append(failed_step(step, failed_unit(unit, reason), number, time.time() - self._began))
            return
        worker.running = unit
        if step.size > 1:
            self._gather(number, step)
            return
        lost = [taken for taken in step.takes if taken not in self._made]
        if lost:
            raise TrainingError(f"step {step.id} takes products of steps {lost}, which are not there any more")
        self._send(number, Supplies(outline, tuple(self._made[taken] for taken in step.takes)))

    def _send(self, number: int, supplies: Supplies | None = None) -> None:
        worker = self._workers[number]
        orders, worker.orders = worker.orders, []
        self._call(number, "follow", worker.actor.follow.remote(orders, supplies))

    def _outline(self, unit: Unit) -> Any:
        """Return a reference of what is decided about a unit's whole group, or why it cannot be trained."""
        key = (unit.group, unit.fold)
        if key not in self._outlines:
            outline = outline_or_failed(self._whole_job, unit)
            self._outlines[key] = outline if isinstance(outline, GroupFailed) else self._ray.put(outline)
        return self._outlines[key]

    def _gather(self, number: int, step: Step) -> None:
        """Note a member of a gang; when all are there, they start."""
        gang = self._gangs.add(number, step)
        if not gang.gathered:
            return
        directory = tempfile.mkdtemp(dir=self._directory.name)
        ports, outline = free_ports(step.size), self._outline(step.unit)
        for member, own in gang.steps.items():
            place = Gang(own.rank, own.size, ports, directory, GANG_SECONDS)
            self._send(member, Supplies(outline, gang=place))

    def _gang_answered(self, gang: Members, number: int, made: StepMade) -> None:
        """Hold the first member's answer until all have theirs: only then the unit's result can be made."""
        if number in gang.made:  # the result
            self._gangs.end(gang)
            self._idle(number)
            self._step_done(made.answer)
            return
        gang.note(number, made)
        if gang.answered and gang.failure is not None:
            self._gangs.end(gang)
            self._tell_members(gang, gang.failure)
        elif gang.answered:
            first, evaluations = gang.first, gang.evaluations
            gang.disband()
            self._call(first, "follow", self._workers[first].actor.conclude.remote(gang.steps[first], evaluations))
            self._tell_members(gang, None)

    def _tell_members(self, gang: Members, failure: StepAnswer | None) -> None:
        """Tell the schedule that members are done; unless one failed, the first one still has the result to make."""
        for member, made in gang.made.items():
            if failure is None and member in gang.steps:
                continue
            self._idle(member)
            answer = made.answer
            if failure is not None and not answer.failed:
                answer = replace(answer, result=failure.result, failed=True)
            self._step_done(answer)

    def _part_with(self, number: int, gang: Members) -> None:
        """End the other members of a gang that lost one: they may wait for it inside a library."""
        for member, step in gang.steps.items():
            if member != number and member in self._workers:
                self._attempts[step.unit.id] -= 1  # one loss is one attempt, whatever the gang's size
                self._lose(member)

    def _run(self, number: int, unit: Unit) -> None:
        worker = self._workers[number]
        if self._attempts[unit.id] >= UNIT_ATTEMPTS:
            worker.orders.pop()
            self._accept(number, failed_unit(unit, _DIED))
            return
        worker.running = unit
        self._send(number)

    def _look_after_workers(self) -> None:
        """Ask busy workers how far they are; lose those that no longer answer."""
        now = time.monotonic()
        asked = {call.worker for call in self._calls.values() if call.kind == "progress"}
        silent = {
            call.worker for call in self._calls.values() if call.kind != "follow" and now - call.since > ANSWER_SECONDS
        }
        silent |= self._gangs.overdue
        for number in silent:
            if number in self._workers:  # it may have been ended with its gang
                self._lose(number)
        busy = [
            call.worker for call in self._calls.values() if call.kind == "follow" and now - call.since > POLL_SECONDS
        ]
        for number in busy:
            worker = self._workers.get(number)
            # An answer comes within a millisecond: asked again at once, driver and workers would do little else.
            if worker is not None and number not in asked and now - worker.asked >= POLL_SECONDS:
                worker.asked = now
                self._call(number, "progress", worker.actor.progress.remote())
