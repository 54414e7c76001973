"""Ctrl-C while a statement runs: DuckDB and TRAIN are asked to stop, and stop cleanly.

``interruptible`` is the one place that handles SIGINT: around each call of a connection, and around what shells show.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import selectors
import signal
import socket
import threading
import time
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler  # without the enums of signal.signal, which take half of a guard's time
from collections.abc import Callable, Iterator
from types import FrameType

from duckdb import InterruptException, InvalidInputException

from grouplearn.errors import Cancelled, Error

#: Seconds after which DuckDB is interrupted again: it ignores an interrupt before a query has begun, and a statement of
#: ours is many queries.
_AGAIN = (0.05, 0.1, 0.2, 0.4, 0.8)
#: Seconds that a statement has to stop by itself; then Ctrl-C is handled as it was before.
_PATIENCE = 2.0
#: How DuckDB words a KeyboardInterrupt inside a query, or inside a function of Python's.
_OF_DUCKDB = re.compile(r"Query interrupted$|.*Python exception occurred while executing the UDF: KeyboardInterrupt\b")
_STORED = "interrupted after the statement had taken effect: what it stores is stored, and only its answer is missing"


class Interruption:
    """Interrupts on a connection: one that arrives while a statement runs stops it, whatever it is doing."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._statement: object | None = None
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Treat the block as a statement that can be stopped: an interrupt also interrupts its later queries."""
        before, self._statement = self._statement, object()
        try:
            yield
        finally:
            with self._changed:
                self._statement = before
                self._changed.notify_all()

    def __call__(self) -> None:
        """Interrupt what runs, from any thread."""
        statement = self._statement
        self._interrupt()
        if statement is not None:
            repeat = threading.Thread(target=self._repeat, args=(statement,), name="grouplearn-interrupts", daemon=True)
            with contextlib.suppress(RuntimeError):  # no memory for a thread
                repeat.start()

    def _repeat(self, statement: object) -> None:
        for seconds in _AGAIN:
            with self._changed:  # do not hit the next statement
                if self._changed.wait_for(lambda: self._statement is not statement, seconds):
                    return
                with contextlib.suppress(Error):  # the connection may be closed
                    self._interrupt()


@contextlib.contextmanager
def interruptible(interrupt: Callable[[], None], *, at_once: bool) -> Iterator[None]:
    """Turn a SIGINT inside the block into a call of ``interrupt``, and a KeyboardInterrupt when the block ends.

    With ``at_once`` Python code is left at once, as usual; without, it runs until it notices the interrupt and raises
    Cancelled, or to its end. A second SIGINT is one request with the first, so that it does not interrupt the clean-up; one
    that comes after ``_PATIENCE`` seconds is handled as it was before. Only the main thread receives signals; in other
    threads, and if SIGINT is ignored, nothing is changed.
    """
    previous = getsignal(signal.SIGINT)
    if not callable(previous) or threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: float | None = None
    inside = False  # a signal must not interrupt what follows and ends here

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        is_first, now = asked is None, time.monotonic()
        if asked is not None and now < asked + _PATIENCE:
            return
        asked = now
        if is_first and at_once and inside:
            raise KeyboardInterrupt
        if not is_first and inside:
            previous(number, frame)

    set_handler(signal.SIGINT, ask)
    watcher = _watcher()
    descriptor = watcher.begin(interrupt)
    stopped: Exception | None = None
    try:
        inside = True
        yield
    except Exception as error:  # DuckDB turns a KeyboardInterrupt in a function into an error of its own
        if asked is None:
            raise
        stopped = error
    finally:
        inside = False
        watcher.end(descriptor, late=asked is not None)
        set_handler(signal.SIGINT, previous)
    try:
        if asked is not None:
            said = [str(stopped)] if isinstance(stopped, Cancelled) else []  # what is left, and how to go on
            raise KeyboardInterrupt(*said) from stopped
    finally:
        del stopped  # it refers to this frame


@contextlib.contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Raise the KeyboardInterrupt that DuckDB turned into an error of its own, where nothing is ``interruptible``."""
    try:
        yield
    except (InvalidInputException, RuntimeError) as stopped:
        if not _OF_DUCKDB.match(str(stopped)):
            raise
        raise KeyboardInterrupt from stopped


@contextlib.contextmanager
def errors_that_say_stored(has_stored: Callable[[], bool]) -> Iterator[None]:
    """Say so if an interrupt ends the block after the statement was stored: only its result rows are missing."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        if stopped.args or not has_stored():
            raise
        raise KeyboardInterrupt(_STORED) from stopped
    except InterruptException as stopped:
        if not has_stored():
            raise
        raise Cancelled(_STORED) from stopped


class _Watcher:
    """A thread that calls functions as soon as SIGINT arrives; the process has one.

    Python runs signal handlers only between bytecodes, so not while the main thread is inside a query; the wake-up
    descriptor is written by the operating system's signal itself.
    """

    def __init__(self) -> None:
        self._ours, self._pythons = socket.socketpair()
        self._ours.setblocking(False)
        self._pythons.setblocking(False)
        self._descriptor = self._pythons.fileno()
        self._calls: list[Callable[[], None]] = []
        self._others = -1  # another wake-up descriptor, for example an event loop's
        self._lock = threading.Lock()
        with contextlib.suppress(RuntimeError):  # without memory for a thread, Ctrl-C takes effect later
            threading.Thread(target=self._watch, name="grouplearn-interrupt", daemon=True).start()

    def begin(self, interrupt: Callable[[], None]) -> int:
        """Call ``interrupt`` for every SIGINT from now on; return the previous wake-up descriptor."""
        previous = signal.set_wakeup_fd(self._descriptor, warn_on_full_buffer=False)
        with self._lock:
            if previous != self._descriptor:
                self._others = previous
            self._calls.append(interrupt)
        return previous

    def end(self, previous: int, *, late: bool) -> None:
        """Undo ``begin``; ``late`` says that a SIGINT has arrived, which must not interrupt what comes next."""
        signal.set_wakeup_fd(previous)
        with self._lock:
            if late or self._others >= 0:
                self._received()
            self._calls.pop()

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ours, selectors.EVENT_READ)
            while True:
                selector.select()
                with self._lock:
                    if signal.SIGINT in self._received():
                        for interrupt in self._calls:
                            with contextlib.suppress(Error):  # the connection may be closed
                                interrupt()

    def _received(self) -> bytes:
        """Return the numbers of signals that have arrived, which others may want, too."""
        try:
            numbers = self._ours.recv(4096)
        except BlockingIOError:
            return b""
        if self._others >= 0:
            with contextlib.suppress(OSError):
                os.write(self._others, numbers)
        return numbers


@functools.cache
def _watcher() -> _Watcher:
    return _Watcher()


os.register_at_fork(after_in_child=_watcher.cache_clear)  # a forked process has no thread
