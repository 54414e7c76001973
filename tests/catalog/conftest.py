from collections.abc import Iterator

import duckdb
import pytest
from handmade import create_source

from grouplearn.catalog import functions


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with our functions and the table ``t``."""
    connection = duckdb.connect()
    functions.register_all(connection)
    create_source(connection)
    yield connection
    functions.release(connection)
    connection.close()
