"""Values that become SQL text are what DuckDB binds for them, whatever their class says of itself."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
import zoneinfo
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from duckdb.value.constant import BlobValue, TimestampNanosecondValue
from markupsafe import Markup

import grouplearn
from grouplearn.failures import WrongData
from grouplearn.sqltext import identifier, literal, string

PAYLOAD = "'; DROP TABLE t; SELECT '1"


def hostile(base: type, *arguments: Any) -> Any:
    """Return a value of a class whose methods all say what would be SQL."""

    def say(*_: Any) -> Any:
        return PAYLOAD

    methods = ("__str__", "__repr__", "__format__", "replace", "isoformat", "hex", "item")
    return type("Hostile", (base,), dict.fromkeys(methods, say))(*arguments)


class Listed(list[int]):
    def __iter__(self) -> Any:
        return iter([9])


class Colour(int, enum.Enum):
    RED = 1
    BLUE = -2


class Word(str, enum.Enum):  # noqa: UP042  (a StrEnum writes itself as its value)
    IT = "it's"


NEW_YORK, FIXED = zoneinfo.ZoneInfo("America/New_York"), dt.timezone(dt.timedelta(hours=-5, seconds=1))
VALUES = [
    "it's",
    Markup("<b>it's</b>"),
    Word.IT,
    hostile(str, "it's \x00"),
    Colour.RED,
    Colour.BLUE,
    hostile(int, -7),
    hostile(float, 1.5),
    hostile(float, "-inf"),
    hostile(bytes, b"ab'"),
    hostile(bytearray, b"ab"),
    memoryview(b"abcd"),
    Listed([1, 2]),
    (1, 2),
    {"a": hostile(str, "x'"), Word.IT: 1},
    hostile(decimal.Decimal, "-1.50"),
    decimal.Decimal("1E+5"),
    decimal.Decimal("1E-7"),
    decimal.Decimal("NaN"),
    hostile(dt.date, 2020, 1, 2),
    hostile(dt.datetime, 2020, 1, 2, 3, 4, 5, 6),
    dt.datetime(1, 1, 1),
    dt.datetime(2020, 7, 1, tzinfo=NEW_YORK),
    hostile(dt.datetime, 2020, 7, 1, 0, 0, 0, 0, FIXED),
    pd.Timestamp("2020-01-02 03:04:05.123456789"),
    pd.Timestamp("2020-01-02", tz="UTC"),
    hostile(dt.time, 1, 2, 3),
    dt.time(1, 2, tzinfo=dt.UTC),
    hostile(dt.timedelta, 3, 4, 5),
    dt.timedelta(days=-1, seconds=5),
    pd.Timedelta("-1 days"),
    uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    np.str_("it's"),
    np.datetime64("2020-01-02"),
    2**63,
    np.array([1, 2]),
    np.array(5),
    np.array([[1.5, np.nan], [2, 3]], dtype=np.float32),
    np.array([2**63], dtype=np.uint64),
    np.array(["it's", "b"]),
    np.array([True, None], dtype=object),
    np.array([b"a'"]),
    np.array(["2020-01-01T00:00:00.5"], dtype="datetime64[us]"),
    np.array([]),
    np.ma.masked_array([1, 2], mask=[True, False]),
    {"key": [b"x", b"y"], "value": [2, 1]},
    {"key": [1], "value": []},
    {},
    TimestampNanosecondValue("2020-01-01 00:00:00.000000001"),
    BlobValue(b"\x00x"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_literal_is_what_binding_gives(value: Any) -> None:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'Europe/Berlin'")
    bound = con.execute("SELECT CAST($v AS VARCHAR), typeof($v)", {"v": value}).fetchall()
    assert con.execute(f"SELECT CAST(v AS VARCHAR), typeof(v) FROM (SELECT {literal(value)} AS v)").fetchall() == bound


def test_a_numpy_array_is_a_parameter_of_our_statements() -> None:
    con = grouplearn.connect(progress=None)
    con.execute("CREATE TABLE t AS SELECT i % 7 AS x, i AS y FROM range(60) AS r(i)")
    train = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t WHERE x IN (SELECT unnest(?)) VALIDATE NONE"
    assert con.execute(train, [np.array([1, 2])]).fetchall()[0][0] == 18


@pytest.mark.parametrize("value", [pd.NaT, pd.NA, None])
def test_what_is_missing_is_null(value: Any) -> None:
    assert literal(value) == "NULL"


def test_the_rest_has_no_form() -> None:
    with pytest.raises(WrongData, match="a parameter of type object has no SQL form"):
        literal(object())
    with pytest.raises(WrongData, match="an integer of 16,610 bits is too large; DuckDB's have 128"):
        literal(10**5000)
    assert "DROP" not in literal(hostile(uuid.UUID, "6ba7b810-9dad-11d1-80b4-00c04fd430c8"))


def test_names_and_texts_are_quoted_by_no_method_of_theirs() -> None:
    assert identifier(hostile(str, 'a"b')) == '"a""b"'
    assert string(hostile(str, "a'b")) == "'a''b'"
    saying = type("Saying", (), {"__str__": lambda self: hostile(str, 'a"b')})()
    assert literal({saying: 1}) == '{"a""b": 1}'


def test_statements_names_and_parameters_may_be_markup() -> None:
    con = grouplearn.connect(progress=None)
    con.execute("CREATE TABLE t AS SELECT i AS x, 2 * i AS y, 'it''s' AS c FROM range(20) AS r(i)")
    train = Markup("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t WHERE x >= 0 AND c = $c")
    con.execute(train, {"c": "it's"})
    assert con.model(Markup("m")).name == con.model(hostile(str, "m")).name == "m"
    rows = con.execute("EVALUATE MODEL m ON (SELECT * FROM t WHERE c = $1)", [hostile(str, "it's")]).fetchall()
    assert rows
    assert con.sql(Markup("EVALUATE MODEL m ON (SELECT * FROM t WHERE c = $1 AND x > 0)"), params=[Markup("it's")])
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(20,)]
