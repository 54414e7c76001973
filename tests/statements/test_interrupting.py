"""A statement that is to stop hears it in every loop over its groups: shown by an interrupt at each place that looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.thorough import THOROUGH

import grouplearn
from grouplearn import interrupting
from grouplearn.errors import Cancelled
from grouplearn.failures import StatementInterrupted
from grouplearn.parser.parse import parse

GROUPS, EVERY = 50, 10
#: Modules of the loops that must look, by statement; there may be others.
PLANNING = {"batches", "group_counts", "physical", "units", "extract"}
READING = {"row_order", "finest_groups"}
LOADING = {"outcome", "run_rows", "ledger", "training"}
STATEMENTS = {
    "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY k": PLANNING | READING | LOADING,
    "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY ROLLUP (k, j) VALIDATE NONE": PLANNING
    | READING
    | LOADING,
    "TRAIN MODEL m USING gbdt PREDICT y FEATURES (x) FROM t GROUP BY k WITH (num_iterations = 1, min_data_in_leaf = 1)": (
        PLANNING | READING | LOADING
    )
    | {"stored_forms"},
    "TRAIN MODEL m USING mlp PREDICT y FEATURES (x) FROM t GROUP BY k WITH (epochs = 1)": PLANNING | READING | LOADING,
    "EXPLAIN TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY k": (PLANNING - {"extract"})
    | {"facts"},
}


@pytest.fixture
def con(monkeypatch: pytest.MonkeyPatch) -> Iterator[grouplearn.Connection]:
    monkeypatch.setattr(interrupting, "CHECK_EVERY", EVERY)
    with grouplearn.connect(progress=None) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT i % {GROUPS} AS k, i % 2 AS j, i * 1.0 AS x, i * 2.0 + 1 AS y"
            f" FROM range({3 * GROUPS}) AS r(i)"
        )
        yield connection


#: Verbs of statements, and places at which one of them was stopped.
STOPPED: set[tuple[str, str]] = set()


class Ear:
    """Asked whether to stop, it notes who asks, and says yes to one of them; then to everybody."""

    def __init__(self, stop_at: str | None = None) -> None:
        self.asked: dict[str, int] = {}
        self._stop_at, self._stopped = stop_at, False

    def __call__(self) -> bool:
        place = _asking()
        self.asked[place] = self.asked.get(place, 0) + 1
        self._stopped |= place == self._stop_at
        return self._stopped


def _asking() -> str:
    """Return the loop that looks, as ``module.function``."""
    frame = sys._getframe(2)
    while frame is not None and Path(frame.f_code.co_filename).stem == "interrupting":
        frame = frame.f_back
    assert frame is not None
    return f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}:{frame.f_lineno}"


def listening(con: grouplearn.Connection, ear: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    cancellable = interrupting.cancellable
    for place in ("interrupting", "statements.dispatch", "statements.train"):
        monkeypatch.setattr(f"grouplearn.{place}.cancellable", lambda _, *message: cancellable(ear, *message))


@pytest.mark.examples(2)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_loop_over_groups_looks_and_stops(
    con: grouplearn.Connection, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        ear = Ear()
        listening(con, ear, patch)
        con.execute(statement)
    assert STATEMENTS[statement] - {place.partition(".")[0] for place in ear.asked} == set()
    if statement.startswith("TRAIN"):
        con.execute("DROP MODEL m")
    verb = statement.partition(" ")[0]
    for place in ear.asked:
        if (verb, place) in STOPPED and not THOROUGH:  # in a statement that has this loop, too
            continue
        STOPPED.add((verb, place))
        with monkeypatch.context() as patch:
            listening(con, Ear(place), patch)
            with pytest.raises(Cancelled) as stopped:
                con.execute(statement)
        models = con.execute("SHOW MODELS").fetchall()
        said = 'interrupted after model "m" was stored' if models else "interrupted; nothing was stored"
        assert said in str(stopped.value), place
        if models:
            con.execute("DROP MODEL m")
    con.execute("BEGIN")  # no transaction is left
    con.execute("ROLLBACK")
    con.execute(statement)


def test_looks_grow_with_the_groups(con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    train = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t WHERE k < {} GROUP BY k"
    counts = []
    for groups in (GROUPS // 5, GROUPS):
        ear = Ear()
        with monkeypatch.context() as patch:
            listening(con, ear, patch)
            con.execute(train.format(groups))
        counts.append(sum(ear.asked.values()))
    assert 2 * counts[1] >= 3 * counts[0]


def test_work_that_knows_nothing_of_interrupts_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    over = []

    def endless() -> None:
        try:
            while True:
                time.sleep(0.001)
        finally:
            over.append(True)

    ear = Ear()
    with interrupting.cancellable(lambda: ear() or sum(ear.asked.values()) > 3), pytest.raises(StatementInterrupted):
        interrupting.run_in_thread(endless, 1 << 20)
    deadline = time.monotonic() + 10
    while not over and time.monotonic() < deadline:
        time.sleep(0.01)
    assert over  # and ends by itself


def test_what_work_raises_is_raised_and_what_it_returns_is_returned() -> None:
    for size in (1, 1 << 20):
        assert interrupting.run_in_thread(lambda: 7, size) == 7
        with pytest.raises(ZeroDivisionError):
            interrupting.run_in_thread(lambda: 1 / 0, size)


def test_nobody_is_asked_outside_of_a_statement() -> None:
    interrupting.check_interrupt()
    assert list(interrupting.with_checks(range(3))) == [0, 1, 2]


def test_a_long_list_of_values_is_left_while_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupting, "CHECK_EVERY", 1 << 10)
    text = f"TRAIN MODEL m USING mlp PREDICT y FROM t OVER GRID (seed IN ({', '.join(map(str, range(5000)))}))"
    looked = []
    with interrupting.cancellable(lambda: bool(looked.append(None))):
        parse(text)
    for last in (len(looked) // 4, len(looked) // 2, len(looked) - 1):  # cut into statements, or already into clauses
        asked: list[None] = []
        with (
            interrupting.cancellable(lambda: bool(asked.append(None)) or len(asked) > last),  # noqa: B023
            pytest.raises(StatementInterrupted),
        ):
            parse(text)
    assert len(looked) > 10
