"""Child processes that drive Ray: starts them, keeps one between statements, replaces and ends them."""

from __future__ import annotations

import atexit
import itertools
import os
import secrets
import socket
import string
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from grouplearn.data.files.held_directories import HeldDirectories
from grouplearn.data.files.own_files import own_directory
from grouplearn.failures import TrainingFailed
from grouplearn.learners.contract.control import Interrupted
from grouplearn.runtime.ray.learner_code import handed_over
from grouplearn.runtime.ray.supervised.pipe import PULSE, Connected, Idle, Pipe, PipeClosed, StopRun
from grouplearn.runtime.ray.supervised.processes import end_leftovers, end_session

#: How often cancellation is checked.
POLL_SECONDS = 0.1
#: How long a private cluster may take to start on a busy machine, and an existing one to answer.
START_SECONDS, CONNECT_SECONDS = 120.0, 30.0
#: How long a child may take to end the workers of an aborted run, and how long to exit.
ABORT_SECONDS, LEAVE_SECONDS = 1.0, 3.0
#: Names of a private directory, short because Ray's sockets are deep below it, and of files in it.
_PREFIX, _LOCK, _LOG = "gl-", "lock", "log"
_LETTERS, _LENGTH, _PID_DIGITS = string.ascii_lowercase + string.digits, 8, 10
#: Ray's processes look for modules neither in their working directory, which is a private one, nor beside the script that
#: they run: the user's working directory may contain anything.
_PATHS = {"PYTHONSAFEPATH": "1"}
#: Bytes at the end of a child's log that are shown as the reason why it died.
_LOG_BYTES = 4000


class ChildLost(Exception):
    """The child is gone with all workers; the message has the end of its log."""


class Child:
    """A process that drives Ray, in its own session and with its own directory."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.runs = itertools.count()
        self._connected = False
        self._pulse, self._heard = 0, time.monotonic()
        self._home, self._lock = _new_home()
        self._log = (self._home / _LOG).open("x+b")
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                _command(theirs.fileno(), self._home, address or ""),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, **_PATHS, "PYTHONPATH": os.pathsep.join(handed_over())},
                cwd=self._home,
                start_new_session=True,
            )
        self._pipe = Pipe(ours)
        self._lock.write(str(self.pid).encode())

    @property
    def pid(self) -> int:
        """Its process number, which is also its session's."""
        return self._process.pid

    @property
    def home(self) -> Path:
        """The directory of its files."""
        return self._home

    @property
    def exited(self) -> bool:
        """Whether the process has ended; it remains a zombie, so that its number is not reused."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def connect(self, cancelled: Callable[[], bool]) -> None:
        """Wait until it has a cluster; raises TrainingFailed if there is none, ChildLost or Interrupted."""
        seconds = CONNECT_SECONDS if self.address else START_SECONDS
        deadline = time.monotonic() + seconds
        while not self._connected:
            if cancelled():
                raise Interrupted
            message = self.receive()
            if isinstance(message, Connected):
                if message.error is not None:
                    raise TrainingFailed(message.error.message, hint=message.error.hint)
                self._connected = True
            elif time.monotonic() > deadline:
                if self.address:
                    message = f"the Ray cluster at {self.address} gave no answer within {seconds:g} s"
                    raise TrainingFailed(message, hint="RESET grouplearn_address")
                raise TrainingFailed(f"Ray did not start within {seconds:g} s", hint="WITH (executor = 'local')")

    def watch(self, timeout: float) -> None:
        """Raise ChildLost if it has been silent for ``timeout`` seconds: it was stopped, or hangs."""
        with suppress(OSError):
            pulse = (self._home / PULSE).stat().st_mtime_ns
            if pulse != self._pulse:
                self._pulse, self._heard = pulse, time.monotonic()
        if time.monotonic() - self._heard > timeout:
            raise ChildLost(f"its driver gave no sign of life for {timeout:g} s")

    def revive(self) -> None:
        """Count its silence from now, after a time in which nobody has checked."""
        self._heard = time.monotonic()

    def send(self, message: Any) -> None:
        """Send a message; raises ChildLost."""
        try:
            self._pipe.send(message)
        except PipeClosed:
            raise ChildLost(self._last_words()) from None

    def receive(self) -> Any:
        """Return its next message, None if none arrives within a short while; raises ChildLost."""
        try:
            return self._pipe.receive(POLL_SECONDS)
        except PipeClosed:
            raise ChildLost(self._last_words()) from None

    def abort(self, run: int) -> bool:
        """Abort a run; return whether the child can be used for another one."""
        deadline = time.monotonic() + ABORT_SECONDS
        try:
            self.send(StopRun(at_once=True))
            while time.monotonic() < deadline:
                if self.receive() == Idle(run):
                    return True
        except ChildLost:
            pass
        return False

    def let_go(self) -> None:
        """Close our end, after which the child exits."""
        self._pipe.close()

    def end(self) -> None:
        """Let it exit, and remove whatever it left behind."""
        self.let_go()
        deadline = time.monotonic() + LEAVE_SECONDS
        while not self.exited and time.monotonic() < deadline:
            time.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """Kill it and all processes of its session now, and remove its files."""
        self.let_go()
        self._process.kill()
        end_session(self.pid)
        self._process.wait()
        self._log.close()
        _homes().remove(self._home.name)
        self._lock.close()

    def _last_words(self) -> str:
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - _LOG_BYTES))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


class Children:
    """The children of this process: a run uses one at a time, and the last idle one is kept."""

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[str | None, Child] = {}
        self._busy: set[Child] = set()

    def take(self, address: str | None) -> Child:
        """Return a child for a cluster, the idle one if possible; it may not be connected yet."""
        with self._lock:
            child = self._idle.pop(address, None)
            if child is not None and child.exited:
                child.kill()
                child = None
            child = child or Child(address)
            self._busy.add(child)
            return child

    def give_back(self, child: Child, *, fit: bool) -> None:
        """Take back a child, to be used again if it is ``fit``."""
        with self._lock:
            self._busy.discard(child)
            if fit and child.address not in self._idle:
                self._idle[child.address] = child
                return
        child.end() if fit else child.kill()

    def warm(self, address: str | None) -> Child | None:
        """Return the idle child of a cluster, None if there is none."""
        return self._idle.get(address)

    @property
    def sessions(self) -> tuple[int, ...]:
        """The sessions of all children, which contain everything that Ray runs for this process."""
        return tuple(child.pid for child in (*self._idle.values(), *self._busy))

    def end_idle(self, address: str | None) -> None:
        """End the idle child of a cluster."""
        with self._lock:
            child = self._idle.pop(address, None)
        if child is not None:
            child.end()

    def end_all(self) -> None:
        """End all children, even those in use."""
        with self._lock:
            children = [*self._idle.values(), *self._busy]
            self._idle.clear()
            self._busy.clear()
        for child in children:
            child.let_go()  # first, so that all exit at the same time
        for child in children:
            child.end()

    def forget(self) -> None:
        """Forget the children after a fork: they belong to the original process."""
        for child in (*self._idle.values(), *self._busy):
            child.let_go()
        self._begin_anew()  # a thread that does not exist here may have held the lock


CHILDREN = Children()
atexit.register(CHILDREN.end_all)
os.register_at_fork(after_in_child=CHILDREN.forget)


def _command(end: int, home: Path, address: str) -> list[str]:
    module = "grouplearn.runtime.ray.supervised.child"
    return [sys.executable, "-P", "-m", module, str(end), str(os.getpid()), str(home), address]


def _homes() -> HeldDirectories:
    """Return the private directories of children."""
    return HeldDirectories(Path(_short_directory()), f"{_PREFIX}[{_LETTERS}]{{{_LENGTH}}}", _LOCK)


def _new_home() -> tuple[Path, Any]:
    """Return a new directory and its lock, held by this process; those of dead processes are removed.

    Before that, processes that a dead process and its dead child left running are ended: the lock names the child's session.
    """
    homes = _homes()
    with suppress(OSError):
        homes.clear(before=_end_leftovers)
    name = _PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))
    try:
        return homes.parent / name, homes.make(name)
    except OSError as error:
        message = f"no directory for Ray could be made: {error}"
        raise TrainingFailed(message, hint="WITH (executor = 'local')") from None


def _end_leftovers(home: Path, session: str) -> None:
    if session.isascii() and session.isdecimal() and len(session) <= _PID_DIGITS:
        end_leftovers(int(session), home)


def _short_directory() -> str:
    """Return the directory of temporary files, or another if it is unsafe or too long for a Unix socket (about 100 bytes)."""
    usual = os.path.realpath(tempfile.gettempdir())
    with suppress(OSError), own_directory(usual):
        if len(usual) <= 24:
            return usual
    return os.path.realpath("/tmp")  # noqa: S108 - the directories made in it are private
