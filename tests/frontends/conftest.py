"""A stand-in for the session: it records what it is asked, and its answer is a table it can name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from grouplearn.errors import Cancelled
from grouplearn.frontends.python.dbapi import Connection
from grouplearn.parser.clauses.parameter_values import Parameters
from grouplearn.parser.statements import OurStatement, TrainModel


class FakeSession:
    is_busy = False

    def read_again(self, statement: OurStatement, text: str) -> str:
        return ""

    def expect_variables(self, text: str = "") -> None:
        pass

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.asked: list[tuple[OurStatement, str, Parameters]] = []
        self.stop = threading.Event()
        self.waiting = threading.Event()
        self.wait = False
        self.closed = False
        self.noticed: list[str] = []

    def notice(self, text: str) -> None:
        self.noticed.append(text)

    def answer(self, statement: OurStatement, text: str, parameters: Parameters = None) -> str:
        self.asked.append((statement, text, parameters))
        if self.wait and self._stopped():
            raise Cancelled("training was interrupted")
        if isinstance(statement, TrainModel):
            self.connection.execute(f"CREATE TABLE {statement.name.name} AS FROM {statement.source.text}")
            return f"SELECT count(*) AS n FROM {statement.name.name}"
        return "SELECT 'answer' AS said"

    def _stopped(self) -> bool:
        self.waiting.set()
        return self.stop.wait(10)

    def settle(self) -> None: ...

    def listen(self) -> None: ...

    def has_stored(self) -> bool:
        return False

    def interrupt(self) -> None:
        self.stop.set()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def con() -> Iterator[Connection]:
    with Connection(duckdb.connect(), FakeSession) as connection:
        connection.execute("CREATE TABLE t (x INTEGER, y INTEGER); INSERT INTO t VALUES (1, 2), (3, 4)")
        yield connection


@pytest.fixture
def session(con: Connection) -> Any:
    return con._session
