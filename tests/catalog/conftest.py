import copy
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from handmade import LEARNERS, create_source
from strangers import TABLE, TRAIN

import grouplearn
from grouplearn.catalog.checks import fragments
from grouplearn.learners import registry
from grouplearn.models.label import Label
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
def opaque() -> Iterator[Callable[[Label], str]]:
    """Return a function that registers a learner whose models are linear ones, but not declared so; it returns its name."""
    names: list[str] = []

    def register(label: Label) -> str:
        learner = copy.copy(registry.learner(LEARNERS[label]))
        names.append(f"opaque_{learner.declaration.name}")
        learner.declaration = replace(learner.declaration, name=names[-1], form="own", further_ways=())
        registry.register(learner)
        return names[-1]

    yield register
    for name in names:
        registry.unregister(name)


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
