import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from handmade import create_source
from strangers import TABLE, TRAIN

import grouplearn
from grouplearn.catalog.checks import fragments
from grouplearn.prediction import functions


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with our functions and the table ``t``."""
    connection = duckdb.connect()
    functions.register_all(connection)
    create_source(connection)
    yield connection
    functions.release(connection)
    connection.close()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after which nothing was trained in this process."""
    return lambda: monkeypatch.setattr(fragments, "_TRAINED", fragments._Memory(8))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "a.duckdb"
    with grouplearn.connect(str(path), progress=None) as con:
        con.execute(TABLE)
        con.execute(TRAIN.format("m", "x"))
    return path


@pytest.fixture
def strange(trained: Path, tmp_path: Path, elsewhere: Callable[[], None]) -> Iterator[grouplearn.Connection]:
    """A connection to a database with a model, which another process has trained."""
    shutil.copy(trained, tmp_path)
    elsewhere()
    with grouplearn.connect(str(tmp_path / "a.duckdb"), progress=None) as con:
        yield con
