"""Values are looked up as DuckDB would compare them, and only where they can be."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import grouplearn
from grouplearn.data.encoding.types import exactly
from grouplearn.prediction.rows import known_values, vocabulary
from grouplearn.prediction.rows.known_values import KnownValues
from grouplearn.prediction.rows.vocabulary import OwnPositions

#: Values of a few types, as texts with _ for a space; there is a NULL besides.
VALUES = {
    "TINYINT": "0 1 -1 127",
    "INTEGER": "0 1 -1 127 2147483647",
    "BIGINT": "0 1 9007199254740993 9223372036854775807 -9223372036854775808",
    "UBIGINT": "0 1 18446744073709551615",
    "FLOAT": "0 -0.0 1 1.5 0.1 127 nan inf 16777217",
    "DOUBLE": "0 -0.0 1 1.5 0.1 127 nan -inf 2147483648 9007199254740993 1e300",
    "DECIMAL(9, 2)": "0 1 1.5 -1 127.00",
    "DECIMAL(18, 3)": "0 1 999999999999999.999",
    "BOOLEAN": "true false",
    "DATE": "2020-01-01 1900-02-28 infinity",
    "TIMESTAMP": "2020-01-01 2020-01-01_10:00:00.000001 -infinity",
    "TIMESTAMP_S": "2020-01-01 2020-01-01_10:00:00",
    "TIMESTAMP WITH TIME ZONE": "2020-01-01_00:00:00+00 2020-01-01_10:00:00+02",
    "VARCHAR": "0 1 a A  2020-01-01",
    "ENUM('a', 'A', '1')": "a A",
    "UUID": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "TIME": "10:00:00",
    "HUGEINT": "0 1",
    "INTERVAL": "1_day",
}


@pytest.fixture(scope="module")
def con():
    with duckdb.connect(config={"threads": 1}) as con:
        for number, (kind, values) in enumerate(VALUES.items()):
            texts = [*(text.replace("_", " ") for text in values.split(" ")), None]
            con.execute(f"CREATE TABLE t{number} AS SELECT CAST(unnest(?::VARCHAR[]) AS {kind}) AS v", [texts])
        yield con


@pytest.mark.parametrize("few", [1024, 2])
@pytest.mark.parametrize("kind", VALUES)
def test_as_duckdb_compares(con, kind, few, monkeypatch):
    monkeypatch.setattr(known_values, "_FEW", few)
    own = list(VALUES).index(kind)
    texts = [text for (text,) in con.execute(f"SELECT DISTINCT v::VARCHAR FROM t{own} WHERE v IS NOT NULL").fetchall()]
    texts = list(dict.fromkeys(text.removeprefix("-") if text in ("-0.0", "-nan") else text for text in texts))
    known = KnownValues.of(texts, kind, con)
    if known is None:
        assert kind in ("UUID", "TIME", "HUGEINT", "INTERVAL")
        return
    taken = []
    for number, other in enumerate(VALUES):
        column = con.sql(f"FROM t{number}").to_arrow_table()
        if not known.takes(column.schema.field(0)):
            continue
        taken.append(other)
        found = known.codes(column.column(0).combine_chunks())
        for (value_text, *same), code in zip(
            con.execute(
                f"SELECT v::VARCHAR, {', '.join(f'''{exactly('v', kind)} = CAST('{text}' AS {kind})''' for text in texts)}"
                f" FROM t{number}"
            ).fetchall(),
            found.tolist(),
            strict=True,
        ):
            assert code == (same.index(True) if True in same else -1), (kind, other, value_text)
    assert kind in taken or kind.startswith("ENUM") == ("VARCHAR" in taken)


@pytest.mark.parametrize("rest", [None, "c"])
@pytest.mark.parametrize("most", [1 << 22, 0])
def test_places_in_the_lists_of_groups(most, rest, monkeypatch):
    """By a table of all lists and categories, or where that would be large by a search: the same places; texts that a list
    does not have are at that of the rest, NULL is nowhere."""
    monkeypatch.setattr(vocabulary, "_MOST", most)
    lists = [("b", "a"), (), ("c",), ("b", "a"), ("a", "b", "c")]
    places = OwnPositions(lists, rest)
    group, codes = (each.ravel().astype(np.int32) for each in np.meshgrid(np.arange(-1, 5), np.arange(-1, 3)))
    texts = [
        places.categories[code] if code >= 0 else [None, "unknown"][place % 2]
        for place, code in enumerate(codes.tolist())
    ]
    assert {None, "unknown"} < {*texts}

    def place(own, text):
        text = rest if own >= 0 and text is not None and text not in lists[own] else text
        return lists[own].index(text) if own >= 0 and text in lists[own] else np.nan

    expected = [place(own, text) for own, text in zip(group.tolist(), texts, strict=True)]
    np.testing.assert_array_equal(places.of(group, codes, pa.array(texts, pa.string())), expected)
    nothing = OwnPositions([(), ()], rest).of(np.zeros(3, np.int32), np.full(3, -1, np.int32), pa.array(["a"] * 3))
    assert np.isnan(nothing).all()


@pytest.mark.parametrize("grouping", ["ts", "ROLLUP (ts)", "ts, g"])
def test_a_moment_is_the_same_in_every_time_zone(grouping):
    with grouplearn.connect(progress=None) as con:
        con.execute("SET TimeZone = 'America/New_York'")
        con.execute(
            "CREATE TABLE t AS SELECT i, i % 2 AS g, TIMESTAMPTZ '2024-03-09 20:00:00+00' + to_hours(i % 5) AS ts, i % 7 AS x,"
            " i % 7 + i % 5 AS y FROM range(200) AS r(i)"
        )
        con.execute(
            f"TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x, onehot(ts)) FROM t GROUP BY {grouping}"
        )
        asked = "SELECT i, round(predict_value('m', t), 9), predict('m', t).model_level FROM t ORDER BY i"
        expected = con.execute(asked).fetchall()
        assert None not in {value for _, value, _ in expected}
        for zone in ("UTC", "Asia/Kathmandu", "America/New_York"):
            con.execute(f"SET TimeZone = '{zone}'")
            assert con.execute(asked).fetchall() == expected
