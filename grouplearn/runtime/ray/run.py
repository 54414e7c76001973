"""A run in Ray's driver: instructions become calls of actors, and their answers become news."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from grouplearn.failures import TrainingFailed
from grouplearn.runtime.ray.actors import POLL_SECONDS, START_SECONDS, ActorCall, Actors, Died
from grouplearn.runtime.ray.cluster import ClusterConnection
from grouplearn.runtime.ray.dispatcher import Dispatcher
from grouplearn.runtime.ray.gang import Members
from grouplearn.runtime.ray.job_rows import JobRows, stored
from grouplearn.runtime.ray.products import ProductStore
from grouplearn.runtime.ray.supervised.pipe import (
    Absent,
    Begin,
    Happened,
    Joined,
    Leaving,
    Lost,
    RunEvents,
    StepEnded,
    UnitEnded,
)
from grouplearn.runtime.ray.worker import EncodedResult, MissingInputs, WorkerSetup
from grouplearn.schedule.messages import Instruction
from grouplearn.train.job import Job
from grouplearn.train.sharded.steps import StepAnswer

#: A run is given up after so many failures of workers to start.
START_ATTEMPTS = 4
#: How often a shared cluster is asked which machines are to leave: they have half a minute or more.
LEAVING_SECONDS = 1.0


class ClusterLost(Exception):
    """The cluster and its driver are gone: another one must continue."""


class CoordinatorPort(Protocol):
    """Receives news of a run and returns orders."""

    def report(self, news: RunEvents) -> tuple[Instruction, ...]:
        """Report news and return orders; raises RunOver."""
        ...

    def look_up(self) -> None:
        """Raise RunOver if the end of the run was announced meanwhile."""
        ...


class RayRun:
    """One run; ``job`` has its rows. The driver passes on references to products, never their bytes."""

    def __init__(self, connection: ClusterConnection, begin: Begin, job: Job, coordinator: CoordinatorPort) -> None:
        self._connection, self._begin, self._coordinator = connection, begin, coordinator
        shared = connection.sees(begin.rows.directory) and connection.sees(begin.scratch)
        products = ProductStore(begin.scratch) if shared else None
        chunks = () if shared else stored(connection.ray, begin.job, job.dataset)
        rows = JobRows(begin.rows if shared else None, begin.in_memory, chunks)
        self._setup = connection.ray.put(WorkerSetup(begin.job, begin.code, rows, products, begin.began))
        self._actors = Actors(connection, begin.first_worker)
        self._dispatcher = Dispatcher(connection.ray, begin, job, products, self._actors)
        self._gangs = self._dispatcher.gangs
        self._happened: list[Happened] = []
        self._epochs: Counter[int] = Counter()
        self._failed_starts = 0
        self._kept = products is not None
        self._leaving: set[int] = set()
        self._asked_who_leaves = time.monotonic()

    def run(self, actors: Sequence[Any]) -> None:
        """Run on the existing ``actors`` and as many more as needed, until RunOver is raised."""
        self._actors.take_over(actors)
        for _ in range(self._begin.workers):
            self._actors.start(self._setup)
        while True:
            self._poll()

    def dismiss(self) -> None:
        """End all workers."""
        self._actors.dismiss()

    def rest(self) -> list[Any]:
        """Reset the actors; return those that can be used again."""
        return self._actors.rest()

    def _poll(self) -> None:
        """Wait at most ``POLL_SECONDS`` for answers, and act on them."""
        if not self._connection.alive:
            raise ClusterLost
        self._coordinator.look_up()
        for call, answer in self._actors.answers(0.0 if self._happened else POLL_SECONDS):
            self._take(call, answer)
        self._look_after_workers()
        self._look_who_leaves()
        if self._happened or self._epochs:
            news = RunEvents(self._begin.run, tuple(self._happened), tuple(self._epochs.items()))
            self._happened, self._epochs = [], Counter()
            failed = self._dispatcher.dispatch(self._coordinator.report(news))
            self._happened += [StepEnded(answer) for answer in failed]

    def _take(self, call: ActorCall, answer: Any) -> None:
        if isinstance(answer, Died):
            self._lose(call.worker, reason=answer.reason)
            return
        match call.kind:
            case "begin":
                self._actors.workers[call.worker].address = answer
                self._happened.append(Joined(call.worker))
            case "progress":
                self._epochs.update(dict(answer))
            case "follow":
                made, epochs = answer
                self._epochs.update(dict(epochs))
                self._answered(call, made)

    def _answered(self, call: ActorCall, answer: EncodedResult | StepAnswer | MissingInputs) -> None:
        number = call.worker
        match answer:
            case EncodedResult(result):
                self._happened.append(UnitEnded(number, result))
            case MissingInputs(makers=makers):
                # Products are lost with their worker, and a step can only be ended with its worker.
                for each in {*makers, number}:
                    if each in self._actors.workers:
                        self._lose(each, kept=False)
            case StepAnswer():
                gang = self._gangs.of(number)
                if gang is not None:
                    self._gang_answered(gang, number, answer)
                    return
                if answer.result is None:
                    self._dispatcher.note_made(answer.step, number, call.product)
                self._happened.append(StepEnded(answer))

    def _lose(self, number: int, *, kept: bool = True, reason: str = "") -> None:
        """End a worker and its gang, and start others; what they were doing is run again.

        ``kept``: their products remain, as they are in files or belong to the driver.
        """
        gang = self._gangs.of(number)
        if gang is not None:
            self._gangs.end(gang)
        members = [number] if gang is None else [each for each in gang.steps if each in self._actors.workers]
        joined = tuple(each for each in members if self._actors.end(each))
        if joined:
            self._happened.append(Lost(joined, kept))
        else:
            self._not_started(number, reason)
        for each in members:
            if each not in self._leaving:  # otherwise another was started when it was asked to leave
                self._actors.start(self._setup)

    def _not_started(self, number: int, reason: str) -> None:
        """Record a worker that did not start: no error if others work in a shared cluster that has no room for it yet."""
        if not self._connection.private and any(worker.address for worker in self._actors.workers.values()):
            self._happened.append(Absent(number))
            return
        self._failed_starts += 1
        if self._failed_starts >= START_ATTEMPTS:
            last = (reason.strip() or f"no answer within {START_SECONDS:g} s").splitlines()[-1]
            raise TrainingFailed(f"Ray workers do not start: {last}", hint="WITH (executor = 'local')")

    def _gang_answered(self, gang: Members, number: int, answer: StepAnswer) -> None:
        """Keep the first member's answer until all have answered, as it can make the unit's result only then."""
        if number in gang.made:  # the result
            self._gangs.end(gang)
            self._happened.append(StepEnded(answer))
            return
        gang.note(number, answer)
        if gang.answered and gang.failure is not None:
            self._gangs.end(gang)
            self._tell_members(gang, gang.failure)
        elif gang.answered:
            first, evaluations = gang.first, gang.evaluations
            gang.disband()
            conclude = self._actors.workers[first].actor.conclude.remote(gang.steps[first], evaluations)
            self._actors.called(first, "follow", conclude)
            self._tell_members(gang, None)

    def _tell_members(self, gang: Members, failure: StepAnswer | None) -> None:
        """Report that members are done; if none failed, the first must still make the result."""
        for member, made in gang.made.items():
            if failure is None and member in gang.steps:
                continue
            answer = replace(made, product=None)
            if failure is not None and not answer.failed:
                answer = replace(answer, result=failure.result, failed=True)
            self._happened.append(StepEnded(answer))

    def _look_after_workers(self) -> None:
        """End silent workers, and gang members that wait for a failed one; ask the others for progress."""
        silent = self._actors.silent(self._begin.cluster.worker_timeout)
        for number in silent | self._gangs.overdue:
            if number in self._actors.workers:  # else it was ended with its gang
                if number not in silent:
                    self._give_up(number)
                self._lose(number)
        self._actors.ask_for_progress()

    def _look_who_leaves(self) -> None:
        """Report workers whose machine is to leave the cluster, and start others, which Ray places elsewhere."""
        if self._connection.private or time.monotonic() - self._asked_who_leaves < LEAVING_SECONDS:
            return
        self._asked_who_leaves, machines = time.monotonic(), self._connection.leaving()
        found = tuple(
            number
            for number, worker in self._actors.workers.items()
            if number not in self._leaving and worker.address is not None and worker.address.node in machines
        )
        if not found:
            return
        self._leaving.update(found)
        self._happened.append(Leaving(found, self._kept))
        for _ in found:
            self._actors.start(self._setup)

    def _give_up(self, number: int) -> None:
        """End a unit if a gang member failed while all workers live: the other members would wait for it in vain."""
        gang = self._gangs.of(number)
        if gang is None or gang.failure is None or not all(self._actors.lives(member) for member in gang.steps):
            return
        self._gangs.end(gang)
        self._tell_members(gang, gang.failure)
