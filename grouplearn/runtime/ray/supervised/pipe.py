"""Messages between the user's process and its child, Ray's driver: frames of plain values on a private socket.

Nothing from the child or its workers can run code in the user's process: a frame is data (``plain_values``). Only in the
other direction is code sent, that of a registered learner, as bytes that the user's process made.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass
from typing import Any

from grouplearn.data.dataset import Dataset, DatasetFiles
from grouplearn.data.files.plain_values import NotPlain, from_bytes, to_bytes
from grouplearn.data.lists import Lists
from grouplearn.learners.contract.refreshing import Continuation
from grouplearn.learners.contract.standard_errors import ErrorOptions
from grouplearn.models.label import Label
from grouplearn.models.state import Artifact
from grouplearn.runtime.ray.learner_code import LearnerCode
from grouplearn.runtime.ray.settings import Cluster
from grouplearn.schedule.averages import Averages
from grouplearn.schedule.messages import (
    Discard,
    Dismiss,
    EpochRound,
    Finish,
    Instruction,
    Load,
    Part,
    Release,
    Run,
    RunStep,
    Step,
)
from grouplearn.train.group_table import GroupTable
from grouplearn.train.job import Earlier, Job, UnitTurns
from grouplearn.train.results.ledger import RESULT_KINDS
from grouplearn.train.results.trials import TrialProgress
from grouplearn.train.sharded.steps import StepAnswer

#: How long the other side may take to receive a message.
FRAME_SECONDS = 60.0
#: The file in the child's directory that it touches while it runs.
PULSE = "pulse"
#: Its subdirectory for Ray's files. That is open to everybody (mode 0777), so it lies in a private directory.
RAY_FILES = "r"
_SIZE = 8
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Begin:
    """Run ``job`` (its rows and groups are sent separately) on ``workers`` workers, numbered from ``first_worker`` on.

    ``rows`` are files with the job's rows; if ``in_memory``, workers treat them as rows in memory. ``code`` is the code of
    a learner that is not built in. ``scratch`` is a directory for products of steps, and ``made`` says which worker made
    each one in it. Times count from ``began``, a ``time.time()``. Messages of one run have its number ``run``.
    """

    run: int
    job: Job
    groups: GroupTable
    rows: DatasetFiles
    in_memory: bool
    code: LearnerCode | None
    workers: int
    first_worker: int
    began: float
    scratch: str
    cluster: Cluster
    made: dict[int, int]


@dataclass(frozen=True, slots=True)
class Orders:
    """The answer to ``RunEvents``: instructions, in order."""

    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class StopRun:
    """The run is over, or given up (``at_once``): workers must be reset, or ended."""

    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Connected:
    """The child has its cluster, or an ``error``."""

    error: Broken | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker is ready."""

    worker: int


@dataclass(frozen=True, slots=True)
class Absent:
    """A worker did not start, and others must do its share; it may come later under another number."""

    worker: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Workers are gone; ``kept``: their products still exist."""

    workers: tuple[int, ...]
    kept: bool


@dataclass(frozen=True, slots=True)
class Leaving:
    """Workers are to leave with their machine, and others will join; ``kept``: their products remain."""

    workers: tuple[int, ...]
    kept: bool


@dataclass(frozen=True, slots=True)
class UnitEnded:
    """A worker finished its unit; ``result`` is the UnitResult as written by the worker."""

    worker: int
    result: bytes


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step ended; its product is stored where workers find it."""

    answer: StepAnswer


Happened = Joined | Absent | Lost | Leaving | UnitEnded | StepEnded


@dataclass(frozen=True, slots=True)
class RunEvents:
    """The events of a run, in order, and the epochs done by unit since the last news; the child waits for Orders."""

    run: int
    happened: tuple[Happened, ...]
    epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """A run (or the start) cannot continue, and repeating it would not help."""

    run: int
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Idle:
    """A run has ended in the child."""

    run: int


#: The types in results written by workers; trials of a search include their states.
WRITTEN_KINDS = (*RESULT_KINDS, TrialProgress)
KINDS = (
    *WRITTEN_KINDS, Absent, Artifact, Averages, Begin, Broken, Cluster, Connected, Continuation, Dataset, DatasetFiles, Discard,
    Dismiss, Earlier, EpochRound, ErrorOptions, Finish, GroupTable, Idle, Job, Joined, LearnerCode, Leaving, Lists, Load, Lost,
    RunEvents, Orders, Part, Release, Run, RunStep, Step, StepAnswer, StepEnded, StopRun, Label, UnitTurns, UnitEnded,
)  # fmt: skip


class PipeClosed(Exception):
    """The other side is gone, or sends invalid messages."""


class Unreadable(PipeClosed):
    """The other side sends invalid messages."""


class Pipe:
    """One end of the socket; used by one thread at a time."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.setblocking(False)
        self._buffer = bytearray()

    def send(self, message: Any) -> None:
        """Send a message; raises PipeClosed."""
        content = to_bytes(message)
        left = memoryview(len(content).to_bytes(_SIZE, "little") + content)
        deadline = time.monotonic() + FRAME_SECONDS
        while left:
            try:
                left = left[self._end.send(left) :]
            except BlockingIOError:
                if not self._wait(select.POLLOUT, deadline - time.monotonic()):
                    raise PipeClosed("the other side does not listen") from None
            except OSError as error:
                raise PipeClosed(str(error)) from None

    def receive(self, seconds: float) -> Any:
        """Return the next message, None if none arrives within ``seconds``; raises PipeClosed."""
        deadline = time.monotonic() + seconds
        while (message := self._taken()) is None:
            if not self._wait(select.POLLIN, deadline - time.monotonic()):
                return None
            self._read()
        return message

    def close(self) -> None:
        """Close this end; the other side notices."""
        self._end.close()

    def fileno(self) -> int:
        """Return the descriptor of this end, -1 once it is closed."""
        return self._end.fileno()

    def _read(self) -> None:
        try:
            data = self._end.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            raise PipeClosed(str(error)) from None
        if not data:
            raise PipeClosed("the other side is gone")
        self._buffer += data

    def _taken(self) -> Any:
        size = int.from_bytes(self._buffer[:_SIZE], "little")
        if len(self._buffer) < _SIZE or len(self._buffer) < _SIZE + size:
            return None
        content = bytes(self._buffer[_SIZE : _SIZE + size])
        del self._buffer[: _SIZE + size]
        try:
            return from_bytes(content, KINDS)
        except NotPlain as error:
            raise Unreadable(str(error)) from None

    def _wait(self, event: int, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._end, event)
        return bool(poll.poll(max(0.0, seconds) * 1000))
