"""Ray's driver in a child process, so that the user's process survives a crash of Ray.

``python -m grouplearn.runtime.ray.supervised.child DESCRIPTOR DIRECTORY ADDRESS``: the socket to the user's process, a
directory for Ray's files, and the address of a cluster (empty for a private one). The child leads a session of its own.
When the other end of the socket is closed, for whatever reason, it ends all processes of the session, removes the
directory, and exits.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from grouplearn.failures import TrainingFailed
from grouplearn.runtime.ray.cluster import CONTROL, ClusterConnection, connect, start_private
from grouplearn.runtime.ray.job_rows import JobRows
from grouplearn.runtime.ray.run import ClusterLost, RayRun
from grouplearn.runtime.ray.supervised.pipe import (
    PULSE,
    RAY_FILES,
    Begin,
    Broken,
    Connected,
    Idle,
    Orders,
    Pipe,
    PipeClosed,
    RunEvents,
    StopRun,
    Unreadable,
)
from grouplearn.runtime.ray.supervised.processes import end_session, processes_named
from grouplearn.runtime.ray.worker import WorkerSetup
from grouplearn.schedule.messages import Instruction

#: How often the cluster and the user's process are checked.
WATCH_SECONDS = 0.5
#: How long a dead cluster may still seem alive after an error of Ray.
_DYING_SECONDS = 1.0


class RunOver(Exception):
    """The run is over; ``at_once``: its workers must not be used again."""

    def __init__(self, at_once: bool) -> None:
        self.at_once = at_once


class _User:
    """The user's process, as seen by the driver of a run."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def report(self, news: RunEvents) -> tuple[Instruction, ...]:
        """Report news and return orders; raises RunOver."""
        self._pipe.send(news)
        while (orders := self._receive(WATCH_SECONDS)) is None:
            pass
        return orders

    def look_up(self) -> None:
        """Raise RunOver if the end of the run was announced meanwhile."""
        self._receive(0)

    def _receive(self, seconds: float) -> tuple[Instruction, ...] | None:
        match self._pipe.receive(seconds):
            case StopRun(at_once):
                raise RunOver(at_once)
            case Orders(instructions):
                return instructions
        return None


class Driver:
    """Connects, and carries out one run after another."""

    def __init__(self, pipe: Pipe, directory: str, address: str, started: threading.Event) -> None:
        self._pipe, self._directory, self._address, self._started = pipe, directory, address, started
        self._actors: list[Any] = []

    def serve(self) -> None:
        """Serve until the user's process or the cluster is gone (ClusterLost), or no cluster is found."""
        try:
            connection = (
                connect(self._address) if self._address else start_private(os.path.join(self._directory, RAY_FILES))
            )
        except TrainingFailed as error:
            self._pipe.send(Connected(Broken(-1, error.message, error.hint)))
            return
        self._started.set()
        self._pipe.send(Connected())
        while connection.alive:
            message = self._pipe.receive(WATCH_SECONDS)
            if isinstance(message, Begin):
                job = replace(message.job, groups=message.groups.groups())
                self._run(connection, replace(message, job=job))
        raise ClusterLost

    def _run(self, connection: ClusterConnection, begin: Begin) -> None:
        try:
            self._carry_out(connection, begin)
        except TrainingFailed as error:
            self._pipe.send(Broken(begin.run, error.message, error.hint))
        except connection.ray.exceptions.RayError as error:
            _raise_if_lost(connection)
            self._pipe.send(Broken(begin.run, f"Ray failed: {error}", "run the statement again"))
        self._pipe.send(Idle(begin.run))

    def _carry_out(self, connection: ClusterConnection, begin: Begin) -> None:
        rows = JobRows(begin.rows, begin.in_memory)
        setup = WorkerSetup(begin.job, begin.code, rows, None, begin.began)
        job = replace(setup.taken_on(), dataset=rows.opened())
        actors, self._actors = self._actors, []
        run = RayRun(connection, begin, job, _User(self._pipe))
        try:
            run.run(actors)
        except RunOver as stopped:
            if stopped.at_once:
                run.dismiss()
            else:
                self._actors = run.rest()
        except BaseException:
            if connection.alive:
                run.dismiss()
            raise


def _raise_if_lost(connection: ClusterConnection) -> None:
    """Raise ClusterLost if an error is due to the end of the cluster."""
    deadline = time.monotonic() + _DYING_SECONDS
    while connection.alive:
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
    raise ClusterLost


def _leave(directory: str) -> NoReturn:
    """End everything that Ray started, and this process, without further clean-up."""
    end_session(os.getpid(), spared=os.getpid())
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(0)


class _Starting:
    """Detects that a control process ends while Ray starts: Ray itself would wait for half a minute."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def failed(self) -> bool:
        """Whether a control process has disappeared."""
        living = set(processes_named(os.getpid(), CONTROL))
        gone = self._seen - living
        self._seen |= living
        return bool(gone)


def _guard(end: int, user: int, directory: str, started: threading.Event) -> None:
    """Exit when the user's process does, whatever the driver is doing; until then, touch the pulse file."""
    poll, starting = select.poll(), _Starting()
    poll.register(end, 0)  # hang-ups are always reported
    while not poll.poll(WATCH_SECONDS * 1000) and os.getppid() == user:
        if not started.is_set() and starting.failed() and not started.is_set():
            sys.stderr.write("one of its processes ended while it started\n")
            sys.stderr.flush()
            break
        with suppress(OSError):
            Path(directory, PULSE).touch()
    _leave(directory)


def main(end: int, user: int, directory: str, address: str) -> None:
    """Serve the user's process ``user`` through the socket ``end``."""
    connected = socket.socket(fileno=end)
    connected.set_inheritable(False)  # Ray's processes must not keep it open
    started = threading.Event()
    guard = threading.Thread(target=_guard, args=(connected.fileno(), user, directory, started), daemon=True)
    guard.start()
    try:
        Driver(Pipe(connected), directory, address, started).serve()
    except Unreadable as error:
        sys.stderr.write(f"{error}\n")
    except (ClusterLost, PipeClosed):
        pass
    except BaseException:
        traceback.print_exc()
    _leave(directory)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
