"""Ctrl-C while a statement runs: DuckDB and TRAIN are asked to stop, and stop cleanly."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from duckdb import InterruptException

from grouplearn.errors import Cancelled, Error

#: Seconds after which DuckDB is interrupted again: it ignores an interrupt before a query has begun, and a statement of
#: ours is many queries.
_AGAIN = (0.05, 0.1, 0.2, 0.4, 0.8)
_STORED = "interrupted after the statement had taken effect: what it stores is stored, and only its answer is missing"


class Interruption:
    """Interrupts on a connection: one that arrives while a statement of ours runs stops it, whatever it is doing."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._ended: threading.Event | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Treat the block as a statement that can be stopped: an interrupt also interrupts its later queries."""
        before, ended = self._ended, threading.Event()
        self._ended = ended
        try:
            yield
        finally:
            with self._lock:
                ended.set()
            self._ended = before

    def __call__(self) -> None:
        """Interrupt what runs, from any thread."""
        ended = self._ended
        self._interrupt()
        if ended is not None:
            with contextlib.suppress(RuntimeError):  # no memory for a thread
                threading.Thread(target=self._repeat, args=(ended,), name="grouplearn-interrupts", daemon=True).start()

    def _repeat(self, ended: threading.Event) -> None:
        for seconds in _AGAIN:
            ended.wait(seconds)
            with self._lock:  # do not hit the next statement
                if ended.is_set():
                    return
                with contextlib.suppress(Error):  # the connection may be closed
                    self._interrupt()


@contextlib.contextmanager
def interruptible(interrupt: Callable[[], None], *, at_once: bool) -> Iterator[None]:
    """Turn a SIGINT inside the block into a call of ``interrupt``, and a KeyboardInterrupt when the block ends.

    With ``at_once`` Python code is left at once, as usual; without, it runs until it notices the interrupt and raises
    Cancelled, or to its end, and only a second SIGINT is handled as it was before. Only the main thread receives signals;
    in other threads, and if SIGINT is ignored, nothing is changed.
    """
    previous = signal.getsignal(signal.SIGINT)
    if not callable(previous) or not _receives_signals():
        yield
        return
    asked, inside = False, True

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, previous)
        if at_once and inside:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, ask)
    try:
        with _watching(interrupt):
            try:
                yield
            finally:
                inside = False  # a late signal must not interrupt the clean-up
        if asked:  # and nothing has noticed it
            raise KeyboardInterrupt
    except (Error, RuntimeError) as stopped:  # DuckDB turns a KeyboardInterrupt in a function into a RuntimeError
        if asked:
            raise KeyboardInterrupt from stopped
        raise
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Raise the KeyboardInterrupt that DuckDB turned into a RuntimeError, where nothing is ``interruptible``."""
    try:
        yield
    except RuntimeError as stopped:
        if str(stopped) != "Query interrupted":
            raise
        raise KeyboardInterrupt from stopped


@contextlib.contextmanager
def told_what_is_stored(has_stored: Callable[[], bool]) -> Iterator[None]:
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


#: What the main thread's ``watching`` blocks call, the innermost last.
_watched: list[Callable[[], None]] = []


def _receives_signals() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def watching(interrupt: Callable[[], None]) -> Iterator[None]:
    """Let the ``interruptible`` blocks inside that have the same ``interrupt`` share one thread: each would start its own."""
    if not callable(signal.getsignal(signal.SIGINT)) or not _receives_signals():
        yield
        return
    with _watching(interrupt):
        _watched.append(interrupt)
        try:
            yield
        finally:
            _watched.pop()


@contextlib.contextmanager
def _watching(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call ``interrupt`` from a thread as soon as SIGINT arrives, unless one does so already.

    Python runs signal handlers only between bytecodes, so not while the main thread is inside a query; the wake-up
    descriptor is written by the operating system's signal itself.
    """
    if interrupt in _watched:
        yield
        return
    ours, pythons = socket.socketpair()
    with ours, pythons:  # however the block ends
        pythons.setblocking(False)
        previous = signal.set_wakeup_fd(pythons.fileno(), warn_on_full_buffer=False)

        def watch() -> None:
            while numbers := ours.recv(64):
                if signal.SIGINT in numbers:
                    with contextlib.suppress(Error):  # the connection may be closed
                        interrupt()
                if previous >= 0:
                    with contextlib.suppress(OSError):
                        os.write(previous, numbers)  # an event loop's descriptor, for example

        watcher = threading.Thread(target=watch, name="grouplearn-interrupt", daemon=True)
        started = False
        try:
            # Without memory for a thread, Ctrl-C takes effect later.
            with contextlib.suppress(RuntimeError):
                watcher.start()
                started = True
            yield
        finally:
            signal.set_wakeup_fd(previous)
            pythons.close()
            if started:
                watcher.join()
