"""One database of small models of every family."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from exchange_models import MODELS, ROWS, statement

import grouplearn


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exchange") / "models.duckdb"
    with grouplearn.connect(str(path), progress=False) as connection:
        connection.execute(ROWS)
        for name in MODELS:
            connection.execute(statement(name)).fetchall()
    return path


@pytest.fixture(scope="module")
def opened(database: Path) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(str(database), progress=False) as connection:
        yield connection


@pytest.fixture
def con(opened: grouplearn.Connection) -> Iterator[grouplearn.Connection]:
    """The connection to that database, which tests share: what they change they take back."""
    yield opened
    with contextlib.suppress(duckdb.Error):
        opened.execute("ROLLBACK")  # of a test that failed
