"""Where a statement hears that it is to stop: between the groups of every loop over groups, planning and loading included.

A database may have millions of groups, and each loop over them takes seconds. ``Session`` says for the time of a statement whom
to ask (``heard``); loops ask now and then (``watched``, ``look``). Threads of a training have ears of their own (``Watch``).
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from grouplearn.failures import StatementInterrupted

_T = TypeVar("_T")
_NOTHING_STORED = "the statement was interrupted; nothing was stored"
_heard: ContextVar[tuple[Callable[[], bool], str] | None] = ContextVar("grouplearn_heard", default=None)

#: Items between two looks: some tenths of a second of the slowest loop.
LOOK_EVERY = 1 << 16
#: Seconds.
_BETWEEN_LOOKS = 0.1


@contextmanager
def heard(cancelled: Callable[[], bool], message: str = _NOTHING_STORED) -> Iterator[None]:
    """Let the body's loops ask ``cancelled`` whether to stop, and say ``message`` then."""
    before = _heard.set((cancelled, message))
    try:
        yield
    finally:
        _heard.reset(before)


def look() -> None:
    """Raise StatementInterrupted where the statement that runs here is to stop."""
    heard_by = _heard.get()
    if heard_by is not None and heard_by[0]():
        raise StatementInterrupted(heard_by[1])


def watched(items: Iterable[_T]) -> Iterator[_T]:
    """Return the items one by one, with a ``look`` before every ``LOOK_EVERY`` of them."""
    return itertools.chain.from_iterable(pieces(items))


def pieces(items: Iterable[_T]) -> Iterator[tuple[_T, ...]]:
    """Yield the items in tuples of ``LOOK_EVERY``, with a ``look`` before each."""
    rest = iter(items)
    while piece := tuple(itertools.islice(rest, LOOK_EVERY)):
        look()
        yield piece


def apart(work: Callable[[], _T], size: int) -> _T:
    """Return what pure ``work`` over so many items returns, and look meanwhile: for what knows nothing of interrupts.

    It runs in a thread of its own, which is left where it is when the statement is to stop, unless the items are few.
    """
    if size <= LOOK_EVERY:
        return work()
    look()
    done: list[_T] = []
    broken: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            broken.append(error)

    thread = threading.Thread(target=run, name="grouplearn-planning", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(timeout=_BETWEEN_LOOKS)
            look()
    except BaseException:
        _leave(thread)
        raise
    if broken:
        raise broken[0]
    return done[0]


def side_by_side(work: Callable[[_T], object], items: Sequence[_T], threads: int) -> None:
    """Do ``work`` with each of the items, on so many threads, and look meanwhile."""
    if threads == 1 or len(items) < 2:
        for item in items:
            look()
            work(item)
        return
    with ThreadPoolExecutor(min(threads, len(items)), "grouplearn-rows") as pool:
        waiting = {pool.submit(work, item) for item in items}
        try:
            while waiting:
                look()
                done, waiting = wait(waiting, _BETWEEN_LOOKS, FIRST_COMPLETED)
                for each in done:
                    each.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _leave(thread: threading.Thread) -> None:
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
