"""Several connections that change models at once: what can be done again is, and the rest is told in plain words."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.small_files import three_groups

import grouplearn
from grouplearn.catalog.checks.tables import VERSION
from grouplearn.catalog.lookup import references
from grouplearn.errors import ConflictError, ModelExists
from grouplearn.statements import databases

#: Connections that do the same at the same moment.
AT_ONCE = 3
TRAIN = "TRAIN {}MODEL {} USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return three_groups(tmp_path, rows=60)


def at_once(connections: list[grouplearn.Connection], statements: list[str]) -> list[Any]:
    """Return the rows or the error of each statement, all begun together."""
    outcomes: list[Any] = [None] * len(statements)
    barrier = threading.Barrier(len(statements))

    def run(place: int) -> None:
        barrier.wait()
        try:
            outcomes[place] = connections[place].execute(statements[place]).fetchall()
        except Exception as error:
            outcomes[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(statements))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


OPEN: dict[str, Callable[[grouplearn.Connection, Path], grouplearn.Connection]] = {
    "cursors": lambda con, _: con.cursor(),
    "connections": lambda _, path: grouplearn.connect(path, progress=False),
}


@pytest.mark.parametrize("kind", OPEN)
def test_the_first_ones_in_a_database(path: Path, kind: str) -> None:
    with grouplearn.connect(path, progress=False) as con:
        connections = [OPEN[kind](con, path) for _ in range(AT_ONCE)]
        first = at_once(connections, [TRAIN.format("", f"m{number}") for number in range(AT_ONCE)])
        assert [len(rows) for rows in first] == [3] * AT_ONCE, first
        assert con.execute("SELECT version, count(*) FROM grouplearn.schema_version GROUP BY ALL").fetchall() == [
            (VERSION, 1)
        ]
        for connection in connections:
            connection.close()


def test_one_model_at_once(path: Path) -> None:
    with grouplearn.connect(path, progress=False) as con:
        connections = [con.cursor() for _ in range(AT_ONCE)]
        same = at_once(connections, [TRAIN.format("", "one")] * AT_ONCE)
        errors = [found for found in same if isinstance(found, Exception)]
        assert len(errors) == AT_ONCE - 1
        for error in errors:
            assert isinstance(error, ModelExists)
            assert 'model "one" already exists\n\nLINE 1: TRAIN MODEL one USING' in str(error)
        replaced = at_once(connections, [TRAIN.format("OR REPLACE ", "one")] * AT_ONCE)
        assert [found for found in replaced if isinstance(found, Exception)] == []
        not_there = at_once(connections, [TRAIN.format("", "IF NOT EXISTS two")] * AT_ONCE)
        assert sorted(len(rows) for rows in not_there) == [1] * (AT_ONCE - 1) + [3]
        assert con.execute("SELECT count(*) FROM grouplearn.models").fetchall() == [(2,)]
        dropped = at_once(connections, ["DROP MODEL one"] * AT_ONCE)
        assert sum(not isinstance(found, Exception) for found in dropped) == 1
        told = {str(found).splitlines()[0] for found in dropped if isinstance(found, Exception)}
        assert told == {'unknown model "one"'}


@pytest.mark.examples(2)
@pytest.mark.parametrize("before", ["SELECT 1", TRAIN.format("", "other")], ids=["first", "later"])
@pytest.mark.parametrize("name", ["m", "n"])
def test_a_transaction_that_began_before(path: Path, before: str, name: str) -> None:
    """It cannot see what others have stored since, and what it stores itself cannot be stored beside that."""
    with grouplearn.connect(path, progress=False) as con:
        con.execute(before)
        con.begin()
        con.execute("SELECT count(*) FROM t")
        con.cursor().execute(TRAIN.format("", name))
        if (before, name) == (TRAIN.format("", "other"), "n"):
            assert len(con.execute(TRAIN.format("", "m")).fetchall()) == 3
            return
        with pytest.raises(ConflictError) as caught:
            con.execute(TRAIN.format("", "m"))
        assert str(caught.value) == (
            "another connection has changed the same since this transaction began, so nothing was stored\n\n"
            "LINE 1: TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g\n"
            "                    ^\n\n"
            "Hint: ROLLBACK, and run the statement again."
        )
        con.rollback()
        assert len(con.execute(TRAIN.format("OR REPLACE ", "m")).fetchall()) == 3


def test_a_transaction_of_another_connection_that_does_not_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "_PATIENCE_SECONDS", 0.05)
    with grouplearn.connect(path, progress=False) as con, con.cursor() as other:
        con.execute(TRAIN.format("", "m"))
        other.begin()
        other.execute("DROP MODEL m")
        for statement in (TRAIN.format("OR REPLACE ", "m"), "DROP MODEL m", "ALTER MODEL m RENAME TO n"):
            with pytest.raises(ConflictError) as caught:
                con.execute(statement)
            assert caught.value.message == "other connections keep changing the same model, so nothing was stored"
            assert caught.value.hint == "Run the statement again when they are done."
        other.rollback()
        con.execute("DROP MODEL m")


def test_predictions_while_a_model_is_trained_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between finding a model and loading it, another connection replaces it: the one that was found predicts."""
    with grouplearn.connect(path, progress=False) as con, con.cursor() as other:
        con.execute(TRAIN.format("", "m"))
        candidates = references._alike

        def overtaken(*arguments: Any) -> Any:
            found = candidates(*arguments)
            other.execute(TRAIN.format("OR REPLACE ", "m"))
            return found

        monkeypatch.setattr(references, "_alike", overtaken)
        assert con.execute("SELECT count(predict_value('m', t)) FROM t").fetchall() == [(60,)]
