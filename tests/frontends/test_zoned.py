"""Columns of TIMESTAMP WITH TIME ZONE, fetched where pytz is not installed."""

import datetime
import sys
import zoneinfo
from collections.abc import Iterator

import pytest

import grouplearn

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


#: What Python's dates do not have, as DuckDB fetches it, and a day that they have.
ODD = {
    "-infinity": datetime.datetime.min,
    "0044-03-15 (BC) 00:00:00+00": "0044-03-15 (BC) 00:00:00+00",
    "2024-01-01 00:00:00+00": datetime.datetime(2024, 1, 1, 9, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo")),
    "12000-01-01 00:00:00+00": "12000-01-01 00:00:00+00",
    "infinity": datetime.datetime.max,
}


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMPTZ"])
def test_points_in_time_that_python_has_not(con: grouplearn.Connection, kind: str) -> None:
    given = ", ".join(f"'{text}'::TIMESTAMPTZ" for text in ODD)
    con.execute("SET TimeZone = 'UTC'")  # whose days are those of DATE
    con.execute(
        f"CREATE TABLE odd AS SELECT i AS x, i * 2.0 AS y, CAST(([{given}])[1 + i % 5] AS {kind}) AS k FROM range(60) AS r(i)"
    )
    expected = [row[0] for row in con.execute("SELECT DISTINCT k FROM odd ORDER BY k").fetchall()]
    assert len(expected) == len(ODD)
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    if kind == "TIMESTAMPTZ":
        expected = list(ODD.values())
    answer = con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM odd GROUP BY k").fetchall()
    assert [row[0] for row in answer] == expected
    assert [row[0] for row in con.execute("FROM m ORDER BY k").fetchmany(5)] == expected
    assert con.execute("SELECT k FROM m_weights ORDER BY k").fetchone() == (expected[0],)
    assert [row[0] for row in con.execute("EVALUATE MODEL m ON odd").fetchall()] == expected
    predicted = "SELECT count(prediction), (SELECT count(predict_value('m', odd)) FROM odd) FROM m_predict(odd)"
    assert con.execute(predicted).fetchall() == [(60, 60)]
    con.execute("TRAIN MODEL c USING logistic_regression PREDICT k FEATURES (onehot(x % 5)) FROM odd")
    assert con.execute("SELECT DISTINCT prediction FROM c_predict(odd) ORDER BY 1").fetchall() == [
        (k,) for k in expected
    ]
    assert con.execute("EVALUATE MODEL c ON odd").arrow()["accuracy"].to_pylist() == [1.0]
