"""Checks for interrupts between the groups of every loop over groups, including planning and loading.

A database may have millions of groups, and each loop over them takes seconds. ``Session`` makes a statement ``cancellable``;
loops check now and then whether it is cancelled (``with_checks``, ``check_interrupt``). Threads of a training have checks of
their own (``Watch``).
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TypeVar

from grouplearn.failures import StatementInterrupted

_T = TypeVar("_T")
_NOTHING_STORED = "the statement was interrupted; nothing was stored"
_current: ContextVar[tuple[Callable[[], bool], str] | None] = ContextVar("grouplearn_current", default=None)

#: Items between two checks: some tenths of a second in the slowest loop.
CHECK_EVERY = 1 << 16
#: Seconds between two checks.
_BETWEEN_CHECKS = 0.1


@contextmanager
def cancellable(cancelled: Callable[[], bool], message: str = _NOTHING_STORED) -> Iterator[None]:
    """Let the body's loops ask ``cancelled`` whether to stop, and then raise ``message``."""
    before = _current.set((cancelled, message))
    try:
        yield
    finally:
        _current.reset(before)


def check_interrupt() -> None:
    """Raise StatementInterrupted if the current statement should stop."""
    current = _current.get()
    if current is not None and current[0]():
        raise StatementInterrupted(current[1])


def with_checks(items: Iterable[_T]) -> Iterator[_T]:
    """Return the items one by one, with a check before every ``LOOK_EVERY`` of them."""
    return itertools.chain.from_iterable(checked_chunks(items))


def checked_chunks(items: Iterable[_T]) -> Iterator[tuple[_T, ...]]:
    """Yield the items in tuples of ``LOOK_EVERY``, with a check before each."""
    rest = iter(items)
    while piece := tuple(itertools.islice(rest, CHECK_EVERY)):
        check_interrupt()
        yield piece


def run_in_thread(work: Callable[[], _T], size: int) -> _T:
    """Return the result of ``work``, a pure function over ``size`` items without checks of its own, checking meanwhile.

    It runs in its own thread, which is abandoned if the statement should stop, unless there are few items.
    """
    if size <= CHECK_EVERY:
        return work()
    check_interrupt()
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
            thread.join(timeout=_BETWEEN_CHECKS)
            check_interrupt()
    except BaseException:
        _leave(thread)
        raise
    if broken:
        raise broken[0]
    return done[0]


def run_in_parallel(work: Callable[[_T], object], items: Sequence[_T], threads: int) -> None:
    """Apply ``work`` to each of the items on several threads, checking meanwhile."""
    if threads == 1 or len(items) < 2:
        for item in items:
            check_interrupt()
            work(item)
        return
    with ThreadPoolExecutor(min(threads, len(items)), "grouplearn-rows") as pool:
        waiting = {pool.submit(work, item) for item in items}
        try:
            while waiting:
                check_interrupt()
                done, waiting = wait(waiting, _BETWEEN_CHECKS, FIRST_COMPLETED)
                for each in done:
                    each.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def prefetch(items: Iterable[_T], size: Callable[[_T], int], most: int) -> Iterator[Iterator[_T]]:
    """Yield an iterator over the items, which a thread makes ahead as long as those that wait have less than ``most`` in size.

    What is raised in making them is raised by the iterator; leaving the block ends the thread with the item that it makes.
    """
    waiting: deque[_T] = deque()
    changed = threading.Condition()
    filled, ended, broken = 0, False, None

    def make() -> None:
        nonlocal filled, ended, broken
        try:
            for item in items:
                with changed:
                    waiting.append(item)
                    filled += size(item)
                    changed.notify_all()
                    while filled >= most and not ended:
                        changed.wait()
                    if ended:
                        return
        except BaseException as error:
            broken = error
        finally:
            with changed:
                ended = True
                changed.notify_all()

    def taken() -> Iterator[_T]:
        nonlocal filled
        while True:
            with changed:
                while not waiting and not ended:
                    changed.wait(_BETWEEN_CHECKS)
                    check_interrupt()
                if not waiting:
                    break
                item = waiting.popleft()
                filled -= size(item)
                changed.notify_all()
            yield item
        if broken is not None:
            raise broken

    thread = threading.Thread(target=copy_context().run, args=(make,), name="grouplearn-ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        with changed:
            ended = True
            changed.notify_all()
        thread.join()


def _leave(thread: threading.Thread) -> None:
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
