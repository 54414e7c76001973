"""A statement with parameters, prepared once and executed with several values: DuckDB's C API, as other languages call it."""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int64, c_uint64, c_void_p

import _duckdb
import pytest
from native_builds import TABLE, TRAIN, built


class Result(ctypes.Structure):
    _fields_ = [("members", c_int64 * 6)]


class Database:
    """A database in memory with the extension."""

    def __init__(self) -> None:
        self.api = ctypes.CDLL(_duckdb.__file__)
        for name in ("duckdb_result_error", "duckdb_prepare_error", "duckdb_value_varchar"):
            getattr(self.api, name).restype = c_char_p
        self.database, self.connection, config = c_void_p(), c_void_p(), c_void_p()
        self.api.duckdb_create_config(byref(config))
        self.api.duckdb_set_config(config, b"allow_unsigned_extensions", b"true")
        assert self.api.duckdb_open_ext(None, byref(self.database), config, None) == 0
        self.api.duckdb_destroy_config(byref(config))
        assert self.api.duckdb_connect(self.database, byref(self.connection)) == 0

    def close(self) -> None:
        self.api.duckdb_disconnect(byref(self.connection))
        self.api.duckdb_close(byref(self.database))

    def value(self, sql: str) -> bytes:
        """Run a query and return its first value."""
        result = Result()
        failed = self.api.duckdb_query(self.connection, sql.encode(), byref(result))
        assert not failed, self.api.duckdb_result_error(byref(result))
        value: bytes = self.api.duckdb_value_varchar(byref(result), c_uint64(0), c_uint64(0))
        self.api.duckdb_destroy_result(byref(result))
        return value


@pytest.fixture
def database() -> Iterator[Database]:
    opened = Database()
    yield opened
    opened.close()


def test_it_trains_at_each_execution(database: Database) -> None:
    api = database.api
    database.value(f"LOAD '{built(importlib.metadata.version('duckdb'))}'")
    database.value(TABLE)
    text = TRAIN.replace("TRAIN", "TRAIN OR REPLACE").replace("FROM t", "FROM t WHERE x >= ?")
    prepared = c_void_p()
    assert api.duckdb_prepare(database.connection, text.rstrip(";").encode(), byref(prepared)) == 0
    assert api.duckdb_nparams(prepared) == 1
    assert database.value("SELECT count(*) FROM duckdb_views() WHERE view_name = 'm'") == b"0"
    for least, rows in ((0, b"300"), (100, b"100")):
        assert api.duckdb_bind_int64(prepared, c_uint64(1), c_int64(least)) == 0
        result = Result()
        failed = api.duckdb_execute_prepared(prepared, byref(result))
        assert not failed, api.duckdb_result_error(byref(result))
        api.duckdb_destroy_result(byref(result))
        assert database.value("SELECT sum(n_rows) FROM m") == rows
    api.duckdb_destroy_prepare(byref(prepared))
