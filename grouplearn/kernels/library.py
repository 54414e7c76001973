"""Calls of the compiled kernels: functions with their types, addresses of arrays, and how a call is stopped.

A call releases the interpreter lock and runs on the calling thread, some with others' help (``on_threads``).
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.build.builds import library

#: Seconds between two checks whether to stop.
_ASKED_EVERY = 0.02

WATCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)
_ASK = ctypes.CFUNCTYPE(ctypes.c_int)


class Stopped(Exception):
    """The caller asked a kernel to stop."""


class _Callback(ctypes.Structure):
    """The callback of a thread's kernels, as in ``source/lanes/looks.hpp``."""

    _fields_ = (
        ("ask", _ASK), ("every", ctypes.c_int64), ("next", ctypes.c_int64), ("left", ctypes.c_int64), ("stopped", ctypes.c_int64)
    )  # fmt: skip

    def __init__(self, look: Callable[[], None], every: int, before: _Callback | None) -> None:
        self.look: Callable[[], None] = look
        self.failure: list[BaseException] = []
        failure = self.failure

        def ask() -> int:
            try:
                if before is not None:
                    before.look()
                look()
            except BaseException as error:  # it cannot pass through C; raised by the caller
                failure.append(error)
                return 1
            return 0

        super().__init__(_ASK(ask), every, 0, 0, 0)


class _Thread(threading.local):
    callback: _Callback | None = None
    threads: Callable[[], int] = staticmethod(lambda: 1)


_thread = _Thread()


class RowRuns(NamedTuple):
    """Runs of rows, concatenated: run r begins at ``start`` [r], (R + 1,), and belongs to model ``model`` [r], (R,)."""

    start: npt.NDArray[np.int64]
    model: npt.NDArray[np.int64]


@functools.cache
def function(symbol: str, *kinds: Any, returns: Any = None) -> Callable[..., Any]:
    """Return a function of the library with its argument types and C return type, if any."""
    found = getattr(library(), symbol)
    found.argtypes, found.restype, found.errcheck = list(kinds), returns, _raise_if_stopped
    return found  # type: ignore[no-any-return]


def _raise_if_stopped(result: Any, *_: Any) -> Any:
    """Raise the exception that stopped the kernel, whose results are then invalid."""
    callback = _thread.callback
    if callback is not None and callback.stopped:
        callback.stopped = 0
        raise callback.failure.pop()
    return result


@contextmanager
def calling_back(look: Callable[[], None], every: float = _ASKED_EVERY) -> Iterator[None]:
    """Let kernels that this thread calls in the body call ``look``: at once, and then about every 20 ms.

    An exception in ``look`` stops the kernel, whose results are then invalid, and is raised by the call. ``every`` is in
    seconds; 0: at every ``STRETCH`` of work (``source/lanes/looks.hpp``), independently of time. In nested contexts all are
    called, as often as the most frequent one requires.
    """
    ask, before = function("ask_of_thread", ctypes.c_void_p), _thread.callback
    apart = int(every * 1e9)
    callback = _Callback(look, apart if before is None else min(apart, before.every), before)
    # The kernels have its address: it is kept alive while they may call it, whatever is raised here.
    _thread.callback = callback
    try:
        ask(ctypes.addressof(callback))
        yield
    finally:
        ask(None if before is None else ctypes.addressof(before))
        _thread.callback = before


@contextmanager
def on_threads(count: Callable[[], int]) -> Iterator[None]:
    """Let kernels that this thread calls in the body share work between ``count()`` threads, if that changes no bit."""
    before = _thread.threads
    _thread.threads = count
    try:
        yield
    finally:
        _thread.threads = before


def threads() -> int:
    """Return on how many threads, its own among them, this thread's kernels may run now."""
    return max(1, _thread.threads())


def processor_seconds() -> float:
    """Return the processor seconds of this thread so far, and of others in its kernels."""
    helped: float = function("seconds_helped", returns=ctypes.c_double)()
    return time.thread_time() + helped


def address(array: npt.NDArray[Any]) -> int:
    """Return an array's address; it must be contiguous and in native byte order."""
    if not array.flags.c_contiguous or not array.dtype.isnative:
        raise ValueError("kernels read contiguous arrays")
    return array.ctypes.data


def features(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return features for the kernels: contiguous, in single precision if they are, else in double."""
    return np.ascontiguousarray(x, np.float32 if x.dtype == np.float32 else np.float64)


def single_or_double(x: npt.NDArray[Any]) -> tuple[int | None, int | None]:
    """Return the addresses of single-precision and of double-precision numbers, one of which is None.

    Kernels widen numbers as they read them, so that the results have the same bits for both.
    """
    return (address(x), None) if x.dtype == np.float32 else (None, address(x))


@contextmanager
def progress_callback(report: Callable[[int], None], cancelled: Callable[[], bool]) -> Iterator[Any]:
    """Yield a callback with which a kernel asks between pieces of work whether to stop, giving the number it has finished.

    ``cancelled`` is called at most every 20 ms. What either raises is raised at the end of the context.
    """
    failure: list[BaseException] = []
    last = float("-inf")

    def watch(finished: int) -> int:
        nonlocal last
        try:
            if finished:
                report(finished)
            now = time.monotonic()
            if now - last < _ASKED_EVERY:
                return 0
            last = now
            return int(cancelled())
        except BaseException as error:  # it cannot pass through C; raised below
            failure.append(error)
            return 1

    yield WATCH(watch)
    if failure:
        raise failure[0]


def applied(symbol: str, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an elementary function of an array: ``exponential``, ``log_of_one_plus`` (for [0, 1]) or ``logarithm``."""
    kind = {"float32": "single", "float64": "double"}[x.dtype.name]
    source = np.asarray(x, order="C")  # np.ascontiguousarray would turn a scalar into an array of one
    result = np.empty_like(source)
    pointer = ctypes.c_void_p
    function(f"{symbol}_{kind}", pointer, pointer, ctypes.c_int64)(address(source), address(result), source.size)
    return result
