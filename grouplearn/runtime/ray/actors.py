"""The actors of a run, in Ray's driver: starts, calls, supervises and ends them."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grouplearn.failures import TrainingFailed
from grouplearn.runtime.ray.cluster import ClusterConnection
from grouplearn.runtime.ray.worker import WorkerHandle, new_actor

#: How often the driver checks for answers, asks for progress, and checks whether to stop.
POLL_SECONDS = 0.2
#: How long reading an answer that has arrived may take.
READ_SECONDS = 60.0
#: How long a worker may take to start: it may import a user's torch on a busy machine.
START_SECONDS = 120.0
#: How long a worker may take to release a job.
REST_SECONDS = 2.0

CallKind = Literal["begin", "follow", "progress"]


@dataclass(frozen=True, slots=True)
class ActorCall:
    """An unanswered call of an actor; ``product`` is a second value that comes with the answer."""

    worker: int
    kind: CallKind
    since: float
    product: Any = None


@dataclass(frozen=True, slots=True)
class Died:
    """Stands for the answer of a worker that is gone, with the reason."""

    reason: str


class Actors:
    """The workers of a run, numbered from ``first`` on, and their unanswered calls."""

    def __init__(self, connection: ClusterConnection, first: int = 0) -> None:
        self._ray, self._connection = connection.ray, connection
        self._numbers = itertools.count(first)
        self._spare: deque[Any] = deque()
        self._calls: dict[Any, ActorCall] = {}
        self.workers: dict[int, WorkerHandle] = {}

    def take_over(self, actors: Sequence[Any]) -> None:
        """Use the actors of an earlier run, which were reset, before new ones are made."""
        self._spare.extend(actors)

    def start(self, setup: Any) -> None:
        """Start a worker; its answer to "begin" is its address. ``setup`` is the reference of a WorkerSetup."""
        number = next(self._numbers)
        actor = self._spare.popleft() if self._spare else new_actor(self._ray, self._connection.actor_options)
        self.workers[number] = WorkerHandle(actor)
        self.called(number, "begin", actor.begin.remote(setup, number))

    def called(self, number: int, kind: CallKind, reference: Any, product: Any = None) -> None:
        """Record a call."""
        self._calls[reference] = ActorCall(number, kind, time.monotonic(), product)

    def answers(self, seconds: float) -> Iterator[tuple[ActorCall, Any]]:
        """Yield the answers that arrive within ``seconds``, each once; raises TrainingFailed if a worker reports that."""
        ready, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=seconds)
        if ready:  # and others that have arrived by now
            ready, _ = self._ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        for reference in ready:
            call = self._calls.pop(reference, None)  # an earlier answer may have ended the worker
            if call is not None:
                yield call, self._read(reference)

    def _read(self, reference: Any) -> Any:
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=READ_SECONDS)
        except exceptions.RayTaskError as error:
            raise TrainingFailed(f"a worker failed: {error.cause!r}") from error
        except exceptions.RayError as error:
            return Died(str(error))

    def end(self, number: int) -> bool:
        """End a worker; return whether it had begun."""
        worker = self.workers.pop(number)
        self._ray.kill(worker.actor)
        if worker.address is not None and self._connection.private:
            with suppress(ProcessLookupError):  # a stopped process does not react to Ray
                os.kill(worker.address.process, signal.SIGKILL)
        self._calls = {reference: call for reference, call in self._calls.items() if call.worker != number}
        return worker.address is not None

    def silent(self, worker_timeout: float) -> set[int]:
        """Return the workers that have not answered for ``worker_timeout`` seconds."""
        now, limits = time.monotonic(), {"begin": max(START_SECONDS, worker_timeout), "progress": worker_timeout}
        return {
            call.worker for call in self._calls.values() if call.kind in limits and now - call.since > limits[call.kind]
        }

    def ask_for_progress(self) -> None:
        """Ask workers that have been busy for a while for their progress, unless they have just been asked."""
        now = time.monotonic()
        asked = {call.worker for call in self._calls.values() if call.kind == "progress"}
        busy = [call for call in self._calls.values() if call.kind == "follow" and now - call.since > POLL_SECONDS]
        for number in (call.worker for call in busy):
            worker = self.workers.get(number)
            # Answers take a millisecond; without a pause, driver and workers would do little else.
            if worker is not None and number not in asked and now - worker.asked >= POLL_SECONDS:
                worker.asked = now
                self.called(number, "progress", worker.actor.progress.remote())

    def lives(self, number: int) -> bool:
        """Whether a worker's process lives; those on other machines count as alive until Ray reports their end."""
        worker = self.workers.get(number)
        if worker is None or worker.address is None or not self._connection.private:
            return worker is not None
        try:
            return "Z" not in Path(f"/proc/{worker.address.process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return not Path("/proc/self/stat").exists()

    def dismiss(self) -> None:
        """End all workers."""
        for actor in [*self._spare, *(worker.actor for worker in self.workers.values())]:
            self._ray.kill(actor)

    def rest(self) -> list[Any]:
        """Reset the actors for another job; return those that can be used again, and kill the others."""
        busy = {call.worker for call in self._calls.values()}
        free = [worker.actor for number, worker in self.workers.items() if worker.address and number not in busy]
        for number, worker in self.workers.items():
            if not worker.address or number in busy:
                self._ray.kill(worker.actor)
        resting = {actor.rest.remote(): actor for actor in free}
        if not resting:
            return list(self._spare)
        done, late = self._ray.wait(list(resting), num_returns=len(resting), timeout=REST_SECONDS)
        for reference in late:
            self._ray.kill(resting[reference])
        return [*self._spare, *(resting[reference] for reference in done)]
