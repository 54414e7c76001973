"""A run, as Ray's driver sees it: instructions become calls of actors, and their answers become news."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from grouplearn.failures import TrainingFailed
from grouplearn.learners.contract.control import Gang
from grouplearn.runtime.ray.cluster import ClusterConnection
from grouplearn.runtime.ray.gang import GANG_SECONDS, Gangs, Members
from grouplearn.runtime.ray.products import Made, ProductStore
from grouplearn.runtime.ray.rows import JobRows, stored
from grouplearn.runtime.ray.supervised.pipe import Absent, Begin, Happened, Joined, Lost, News, StepEnded, UnitEnded
from grouplearn.runtime.ray.worker import (
    Address,
    Epochs,
    Missing,
    Supplies,
    WorkerHandle,
    WorkerSetup,
    Written,
    new_actor,
)
from grouplearn.runtime.worker import failed_step, outline_or_failed
from grouplearn.schedule.messages import (
    Discard,
    Finish,
    Instruction,
    Load,
    Release,
    Run,
    RunStep,
    Step,
    Unit,
)
from grouplearn.train.job import Job
from grouplearn.train.rows.prepare import GroupFailed
from grouplearn.train.steps import StepAnswer
from grouplearn.train.unit import failed_unit

#: How often the driver looks for answers, asks for progress, and looks whether it is to stop.
POLL_SECONDS = 0.2
#: How long an answer that has arrived may take to be read.
READ_SECONDS = 60.0
#: How long a worker may take to start: it imports a user's torch, on a busy machine.
START_SECONDS = 120.0
#: How long a worker may take to forget a job.
REST_SECONDS = 2.0
#: The run is given up after this many workers that could not even start.
START_ATTEMPTS = 4


class ClusterLost(Exception):
    """The cluster is gone, and the driver with it: another one must go on."""


class CoordinatorPort(Protocol):
    """Who is told what happens, and says what to do."""

    def report(self, news: News) -> tuple[Instruction, ...]:
        """Tell, and return orders; raises RunOver."""
        ...

    def look_up(self) -> None:
        """Raise RunOver if that was said meanwhile."""
        ...


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that an actor has not answered yet; ``product`` is a second value that comes with the answer."""

    worker: int
    kind: Literal["begin", "follow", "progress"]
    since: float
    product: Any = None


class RayRun:
    """One run; ``job`` has its rows. The driver routes references of products and never their bytes."""

    def __init__(self, connection: ClusterConnection, begin: Begin, job: Job, coordinator: CoordinatorPort) -> None:
        self._ray, self._connection, self._coordinator = connection.ray, connection, coordinator
        self._begin, self._job = begin, job
        shared = connection.sees(begin.rows.directory) and connection.sees(begin.scratch)
        self._products = ProductStore(begin.scratch) if shared else None
        chunks = () if shared else stored(self._ray, begin.job, job.dataset)
        rows = JobRows(begin.rows if shared else None, begin.in_memory, chunks)
        setup = WorkerSetup(begin.job, begin.code, rows, self._products, begin.began)
        self._setup = self._ray.put(setup)
        self._outlines: dict[tuple[int, int], Any] = {}
        self._made = {step: Made(step, worker) for step, worker in begin.made.items()} if shared else {}
        self._gangs = Gangs()
        self._numbers = itertools.count(begin.first_worker)
        self._workers: dict[int, WorkerHandle] = {}
        self._calls: dict[Any, _Call] = {}
        self._happened: list[Happened] = []
        self._epochs: Counter[int] = Counter()
        self._failed_starts = 0
        self._spare: deque[Any] = deque()

    def run(self, actors: Sequence[Any]) -> None:
        """Run on the existing ``actors`` and as many more as it takes, until RunOver is raised."""
        self._spare.extend(actors)
        for _ in range(self._begin.workers):
            self._hire()
        while True:
            self._turn()

    def _turn(self) -> None:
        """Wait for answers, at most ``POLL_SECONDS``, and act on them."""
        if not self._connection.alive:
            raise ClusterLost
        self._coordinator.look_up()
        wait = 0.0 if self._happened else POLL_SECONDS
        ready, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=wait)
        if ready:  # and what else is there by now
            ready, _ = self._ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        for reference in ready:
            if reference in self._calls:
                self._take(self._calls.pop(reference), reference)
        self._look_after_workers()
        if self._happened or self._epochs:
            news = News(self._begin.run, tuple(self._happened), tuple(self._epochs.items()))
            self._happened, self._epochs = [], Counter()
            self._execute(self._coordinator.report(news))

    def dismiss(self) -> None:
        """End all workers."""
        for actor in [*self._spare, *(worker.actor for worker in self._workers.values())]:
            self._ray.kill(actor)

    def rest(self) -> list[Any]:
        """Have the actors forget the job; return those that did and can be used again, the others are killed."""
        busy = {call.worker for call in self._calls.values()}
        free = [worker.actor for number, worker in self._workers.items() if worker.address and number not in busy]
        for number, worker in self._workers.items():
            if not worker.address or number in busy:
                self._ray.kill(worker.actor)
        resting = {actor.rest.remote(): actor for actor in free}
        if not resting:
            return list(self._spare)
        done, late = self._ray.wait(list(resting), num_returns=len(resting), timeout=REST_SECONDS)
        for reference in late:
            self._ray.kill(resting[reference])
        return [*self._spare, *(resting[reference] for reference in done)]

    def _hire(self) -> None:
        number = next(self._numbers)
        actor = self._spare.popleft() if self._spare else new_actor(self._ray, self._connection.actor_options)
        self._workers[number] = WorkerHandle(actor)
        self._call(number, "begin", actor.begin.remote(self._setup, number))

    def _call(
        self, number: int, kind: Literal["begin", "follow", "progress"], reference: Any, also: Any = None
    ) -> None:
        self._calls[reference] = _Call(number, kind, time.monotonic(), also)

    def _take(self, call: _Call, reference: Any) -> None:
        exceptions = self._ray.exceptions
        try:
            answer = self._ray.get(reference, timeout=READ_SECONDS)
        except exceptions.RayTaskError as error:
            raise TrainingFailed(f"a worker failed: {error.cause!r}") from error
        except exceptions.RayError as error:
            self._lose(call.worker, reason=str(error))
            return
        match call.kind:
            case "begin":
                self._workers[call.worker].address = answer
                self._happened.append(Joined(call.worker))
            case "progress":
                self._tell(answer)
            case "follow":
                made, epochs = answer
                self._tell(epochs)
                self._answered(call, made)

    def _answered(self, call: _Call, answer: Written | StepAnswer | Missing) -> None:
        number = call.worker
        match answer:
            case Written(result):
                self._workers[number].running = None
                self._happened.append(UnitEnded(number, result))
            case Missing(makers=makers):
                # Products are gone with their worker; and the only way to end a step is to end the worker that runs it.
                for each in {*makers, number}:
                    if each in self._workers:
                        self._lose(each, kept=False)
            case StepAnswer():
                gang = self._gangs.of(number)
                if gang is not None:
                    self._gang_answered(gang, number, answer)
                    return
                self._workers[number].running = None
                if answer.result is None:
                    self._made[answer.step.id] = Made(answer.step.id, number, call.product)
                self._happened.append(StepEnded(answer))

    def _tell(self, epochs: Epochs) -> None:
        self._epochs.update(dict(epochs))

    def _lose(self, number: int, *, kept: bool = True, reason: str = "") -> None:
        """Make sure that the worker is dead, with its gang; others are started. What they did is run again.

        What they made is in files, or the driver owns it.
        """
        gang = self._gangs.of(number)
        if gang is not None:
            self._gangs.end(gang)
        members = [number] if gang is None else [each for each in gang.steps if each in self._workers]
        joined = tuple(each for each in members if self._end(each))
        if joined:
            self._happened.append(Lost(joined, kept))
        else:
            self._not_started(number, reason)
        for _ in members:
            self._hire()

    def _not_started(self, number: int, reason: str) -> None:
        """Where others work, a worker that a shared cluster has no room for is no error: it may come later."""
        if not self._connection.private and any(worker.address for worker in self._workers.values()):
            self._happened.append(Absent(number))
            return
        self._failed_starts += 1
        if self._failed_starts >= START_ATTEMPTS:
            last = (reason.strip() or f"no answer within {START_SECONDS:g} s").splitlines()[-1]
            raise TrainingFailed(f"Ray workers do not start: {last}", hint="WITH (executor = 'local')")

    def _end(self, number: int) -> bool:
        """End a worker; return whether it had joined."""
        worker = self._workers.pop(number)
        self._ray.kill(worker.actor)
        if worker.address is not None and self._connection.private:
            with suppress(ProcessLookupError):  # one that is stopped does not hear Ray
                os.kill(worker.address.process, signal.SIGKILL)
        self._calls = {reference: call for reference, call in self._calls.items() if call.worker != number}
        return worker.address is not None

    def _execute(self, instructions: Iterable[Instruction]) -> None:
        """Orders are sent with the next Run or RunStep, so that a unit costs one call."""
        for instruction in instructions:
            match instruction:
                case Discard(steps):
                    self._discard(steps)
                case Run() | RunStep() | Load() | Release():
                    self._order(instruction)
                case Finish():
                    pass  # Stop comes next

    def _discard(self, steps: Iterable[int]) -> None:
        for step in steps:
            if self._made.pop(step, None) is not None and self._products is not None:
                self._products.discard(step)

    def _order(self, instruction: Run | RunStep | Load | Release) -> None:
        worker = self._workers.get(instruction.worker)
        if worker is None:  # lost just now, as the schedule has been told
            return
        worker.orders.append(instruction)
        match instruction:
            case Run(number, unit):
                worker.running = unit
                self._send(number)
            case RunStep(number, step):
                self._run_step(number, step)

    def _run_step(self, number: int, step: Step) -> None:
        worker, unit = self._workers[number], step.unit
        outline = self._outline(unit)
        if isinstance(outline, GroupFailed):
            worker.orders.pop()
            now = time.time() - self._begin.began
            failed = failed_unit(unit, str(outline), facts=outline.facts)
            self._happened.append(StepEnded(failed_step(step, failed, number, now)))
            return
        worker.running = unit
        if step.size > 1:
            self._gather(number, step)
            return
        lost = [taken for taken in step.inputs if taken not in self._made]
        if lost:
            raise TrainingFailed(f"step {step.id} takes products of steps {lost}, which are not there any more")
        piece = step.piece if step.round is None else None  # the worker says what is new to it
        takes = tuple(self._made[taken].taken(piece) for taken in step.inputs)
        self._send(number, Supplies(outline, takes), step.pieces)

    def _send(self, number: int, supplies: Supplies | None = None, pieces: int = 1) -> None:
        worker = self._workers[number]
        orders, worker.orders = worker.orders, []
        if self._products is not None or supplies is None or supplies.gang is not None:
            self._call(number, "follow", worker.actor.follow.remote(orders, supplies))
            return
        answer, *product = worker.actor.follow.options(num_returns=1 + pieces).remote(orders, supplies)
        self._call(number, "follow", answer, tuple(product) if pieces > 1 else product[0])

    def _outline(self, unit: Unit) -> Any:
        """Return a reference of what is decided about a unit's whole group, or why it cannot be trained."""
        key = (unit.group, unit.fold)
        if key not in self._outlines:
            outline = outline_or_failed(self._job, unit)
            self._outlines[key] = outline if isinstance(outline, GroupFailed) else self._ray.put(outline)
        return self._outlines[key]

    def _gather(self, number: int, step: Step) -> None:
        """Note a member of a gang; when all are there, they start."""
        gang = self._gangs.add(number, step)
        if not gang.gathered:
            return
        self._refuse_distance([self._workers[member].address for member in gang.steps])
        directory = tempfile.mkdtemp(prefix="gang-", dir=self._begin.scratch)
        outline = self._outline(step.unit)
        for member, own in gang.steps.items():
            place = Gang(own.rank, own.size, directory, GANG_SECONDS)
            self._send(member, Supplies(outline, gang=place))

    def _refuse_distance(self, addresses: Sequence[Address | None]) -> None:
        """Members of a gang talk over the loopback interface, and share a directory."""
        if self._products is None or len({address.node for address in addresses if address is not None}) > 1:
            message = "workers that train one model together must be on one machine, and the cluster has several"
            raise TrainingFailed(message, hint="WITH (operator = 'group_task_parallel')")

    def _gang_answered(self, gang: Members, number: int, answer: StepAnswer) -> None:
        """Hold the first member's answer until all have theirs: only then the unit's result can be made."""
        if number in gang.made:  # the result
            self._gangs.end(gang)
            self._workers[number].running = None
            self._happened.append(StepEnded(answer))
            return
        gang.note(number, answer)
        if gang.answered and gang.failure is not None:
            self._gangs.end(gang)
            self._tell_members(gang, gang.failure)
        elif gang.answered:
            first, evaluations = gang.first, gang.evaluations
            gang.disband()
            conclude = self._workers[first].actor.conclude.remote(gang.steps[first], evaluations)
            self._call(first, "follow", conclude)
            self._tell_members(gang, None)

    def _give_up(self, number: int) -> None:
        """Where a worker waits for a member of its gang that failed by itself, nobody having died, that is the unit's end."""
        gang = self._gangs.of(number)
        if gang is None or gang.failure is None or not all(self._lives(member) for member in gang.steps):
            return
        self._gangs.end(gang)
        self._tell_members(gang, gang.failure)

    def _lives(self, number: int) -> bool:
        """Whether the process of a worker is there; on other machines Ray tells soon enough."""
        worker = self._workers.get(number)
        if worker is None or worker.address is None or not self._connection.private:
            return worker is not None
        try:
            return "Z" not in Path(f"/proc/{worker.address.process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return not Path("/proc/self/stat").exists()

    def _tell_members(self, gang: Members, failure: StepAnswer | None) -> None:
        """Tell that members are done; unless one failed, the first one still has the result to make."""
        for member, made in gang.made.items():
            if failure is None and member in gang.steps:
                continue
            self._workers[member].running = None
            answer = replace(made, product=None)
            if failure is not None and not answer.failed:
                answer = replace(answer, result=failure.result, failed=True)
            self._happened.append(StepEnded(answer))

    def _look_after_workers(self) -> None:
        """Ask busy workers how far they are; lose those that give no sign of life."""
        now, timeout = time.monotonic(), self._begin.cluster.worker_timeout
        limits = {"begin": max(START_SECONDS, timeout), "progress": timeout}
        silent = {
            call.worker for call in self._calls.values() if call.kind in limits and now - call.since > limits[call.kind]
        }
        for number in silent | self._gangs.overdue:
            if number in self._workers:  # it may have been ended with its gang
                if number not in silent:
                    self._give_up(number)
                self._lose(number)
        asked = {call.worker for call in self._calls.values() if call.kind == "progress"}
        busy = [
            call.worker for call in self._calls.values() if call.kind == "follow" and now - call.since > POLL_SECONDS
        ]
        for number in busy:
            worker = self._workers.get(number)
            # An answer comes within a millisecond: asked again at once, driver and workers would do little else.
            if worker is not None and number not in asked and now - worker.asked >= POLL_SECONDS:
                worker.asked = now
                self._call(number, "progress", worker.actor.progress.remote())
