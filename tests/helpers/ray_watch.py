"""What Ray runs for this process, as the system shows it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from grouplearn.runtime.ray.supervised.processes import of_session
from grouplearn.runtime.ray.supervised.supervisor import CHILDREN
from grouplearn.schedule.messages import Unit
from helpers.runtime_jobs import Watcher


def ray_processes() -> dict[int, bytes]:
    """Return the command lines of the processes of all children, these included."""
    found = {}
    for session in CHILDREN.sessions:
        for process in of_session(session):
            with suppress(FileNotFoundError, ProcessLookupError):
                found[process] = Path(f"/proc/{process}/cmdline").read_bytes()
    return found


def workers_below() -> list[int]:
    """Return the processes of our actors."""
    return [process for process, command in ray_processes().items() if b"ray::RayWorker" in command]


def process_named(name: str) -> int:
    """Return the process of Ray that has ``name`` as its program: raylet, gcs_server."""
    (found,) = [
        process for process, command in ray_processes().items() if command.split(b"\0")[0].endswith(f"/{name}".encode())
    ]
    return found


def eventually(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Return whether something becomes true within a time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def slowed(running: float = 0.02, stopped: float = 0.08) -> Iterator[list[int]]:
    """Stop one of Ray's workers again and again, from when there is one, as a machine does that others use, too."""
    over, found = threading.Event(), []

    def stop_and_go() -> None:
        while not over.wait(running):
            with suppress(ProcessLookupError):
                found[:] = found or workers_below()[-1:]
                for process in found:
                    os.kill(process, signal.SIGSTOP)
                    over.wait(stopped)
                    os.kill(process, signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


class Killer(Watcher):
    """Kills one of Ray's workers in the middle of a run, twice: after so many epochs, and after as many more."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every
        self.killed: list[int] = []

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        super().epochs_done(unit, epochs)
        if len(self.killed) < 2 and self.epochs > self.every * (len(self.killed) + 1):
            self.killed.append(max(workers_below()))
            os.kill(self.killed[-1], signal.SIGKILL)
