"""Columns of TIMESTAMP WITH TIME ZONE, fetched where pytz is not installed."""

import datetime
import sys
import zoneinfo
from collections.abc import Iterator

import pytest

import grouplearn
from grouplearn.errors import MissingDependency

DAY = "TIMESTAMPTZ '2024-01-01 00:00:00+00' + INTERVAL (i % 3) DAY"


@pytest.fixture
def con(monkeypatch: pytest.MonkeyPatch) -> Iterator[grouplearn.Connection]:
    monkeypatch.setitem(sys.modules, "pytz", None)
    with grouplearn.connect(progress=False) as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        connection.execute(
            f"CREATE TABLE t AS SELECT {DAY} AS day, i AS x, i * 2.0 AS y, 'k' || i % 2 AS k FROM range(30) r(i)"
        )
        yield connection


def test_a_key_with_a_time_zone(con: grouplearn.Connection) -> None:
    answer = con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY day").fetchall()
    first = datetime.datetime(2024, 1, 1, 9, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo"))
    days = [first + datetime.timedelta(days=number) for number in range(3)]
    assert [row[0] for row in answer] == days
    assert all(row[0].utcoffset() == datetime.timedelta(hours=9) for row in answer)
    con.execute("FROM m ORDER BY day")
    assert con.fetchone()[0] == days[0]
    assert [row[0] for row in con.fetchmany(5)] == days[1:]
    assert con.fetchone() is None
    assert con.fetchall() == []
    assert len(con.execute("EVALUATE MODEL m ON t").fetchall()) == 3
    assert len(con.execute("FROM m_predict(t)").fetchall()) == 30
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_other_columns_are_as_duckdb_fetches_them(con: grouplearn.Connection) -> None:
    others = (
        "1::HUGEINT, uuid '61ee1206-ed52-46a3-86e1-142ff6281834', NULL::UUID, 1.5::DECIMAL(5,2), DATE '2024-01-01', 'x'::BLOB,"
        " TIME '01:02:03', TIMESTAMP '2024-01-01 01:02:03.000004', [1, NULL], NULL, true, 1.5::FLOAT"
    )
    (expected,) = con.execute(f"SELECT {others}").fetchall()
    (row,) = con.execute(f"SELECT {others}, now()").fetchall()
    assert row[:-1] == expected
    assert list(map(type, row[:-1])) == list(map(type, expected))


@pytest.mark.parametrize("columns", ["'infinity'::TIMESTAMPTZ", "now(), MAP {'a': 1}", "{'a': now()}"])
def test_what_arrow_has_no_such_object_for_says_what_to_install(con: grouplearn.Connection, columns: str) -> None:
    with pytest.raises(MissingDependency, match="pip install pytz"):
        con.execute(f"SELECT {columns}").fetchall()
