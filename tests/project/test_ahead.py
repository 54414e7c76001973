"""Items that a thread makes ahead: all of them, in order, no more than asked for, and errors and interrupts as without it."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from grouplearn.failures import StatementInterrupted
from grouplearn.interrupting import cancellable, check_interrupt, prefetch


def waits_for(condition: Callable[[], bool]) -> bool:
    ends = time.monotonic() + 30
    while not condition() and time.monotonic() < ends:
        time.sleep(0.001)
    return condition()


def numbers(made: list[int], count: int) -> Iterator[int]:
    for number in range(count):
        made.append(number)
        yield number


@pytest.mark.parametrize("most", [1, 10, 1000])
def test_all_items_come_in_order(most):
    with prefetch(numbers([], 200), lambda number: number, most) as items:
        assert list(items) == list(range(200))


def test_no_more_wait_than_the_most():
    made: list[int] = []
    with prefetch(numbers(made, 50), lambda _: 10, 30) as items:
        assert waits_for(lambda: len(made) >= 3)
        time.sleep(0.05)
        assert made == [0, 1, 2]
        assert next(items) == 0
        assert waits_for(lambda: len(made) == 4)
        assert list(items) == list(range(1, 50))


def test_an_error_comes_after_the_items_before_it():
    def broken() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    with prefetch(broken(), lambda _: 1, 100) as items:
        assert next(items) == 1
        with pytest.raises(ZeroDivisionError):
            next(items)


def test_leaving_ends_the_thread():
    made: list[int] = []
    with prefetch(numbers(made, 1000), lambda _: 1, 2) as items:
        assert next(items) == 0
    assert len(made) < 10
    assert not any(thread.name == "grouplearn-ahead" for thread in threading.enumerate())


def test_an_interrupt_reaches_the_thread_and_the_one_that_waits():
    cancelled = threading.Event()

    def endless() -> Iterator[int]:
        yield 1
        while True:
            check_interrupt()
            time.sleep(0.001)

    with cancellable(cancelled.is_set), prefetch(endless(), lambda _: 1, 100) as items:
        assert next(items) == 1
        cancelled.set()
        with pytest.raises(StatementInterrupted):
            next(items)
