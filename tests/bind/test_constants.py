"""Constants that are read without asking DuckDB have the value that DuckDB gives them."""

import re

import duckdb
import pytest

import grouplearn
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.errors import BindError
from grouplearn.parser.statements import Sql

PLAIN = "1 -1 0 -0 007 2147483648 -999999999999999999 0.1 -0.10 100.50 00.50 1.0 -0.0 1e-3 1E5 -1.5e2 0e0 -0e0"
OTHERS = [
    "1_000",
    "1 + 1",
    "'it''s'",
    "1.5::FLOAT",
    "9999999999999999999",
    "0.12345678901",
    "'a' || 'b'",
    "true",
    "[1, 2]",
]


@pytest.mark.parametrize("text", [*PLAIN.split(), "''", "'a b'", "'a\\n'", "'two\nlines'", *OTHERS])
def test_a_constant_has_the_value_that_duckdb_gives_it(text: str) -> None:
    with duckdb.connect() as con:
        ((expected,),) = con.execute(f"SELECT ({text})").fetchall()
        found = SqlChecker(con, text).constant(Sql(text))
    assert (type(found), repr(found)) == (type(expected), repr(expected))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("DATE 'infinity'", "DATE 'infinity'"),
        ("DATE '5000000-01-01'", "DATE '5000000-01-01'"),
        ("make_timestamp_ns(1577836800000000001)", "TIMESTAMP_NS '2020-01-01 00:00:00.000000001'"),
        ("TIMESTAMPTZ '-infinity'", "TIMESTAMP WITH TIME ZONE '-infinity'"),
        ("'it''s\\x00'::BLOB", "BLOB 'it\\x27s\\x00'"),
        ("INTERVAL 8 MONTHS", "INTERVAL '8 months'"),
    ],
)
def test_what_python_does_not_have_stays_duckdbs(text: str, shown: str) -> None:
    """No option takes such a value, so that an error shows it."""
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i AS y FROM range(50) AS r(i)")
        train = (
            f"TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t VALIDATE NONE WITH (solver = {text})"
        )
        with pytest.raises(BindError, match=re.escape(f"unknown solver {shown}\n")):
            con.execute(train)
        with pytest.raises(BindError, match=re.escape(f"seed must be a whole number of at least 0, got {shown}\n")):
            con.execute(train.replace("solver", "seed"))
        grid = train.partition("VALIDATE")[0] + f"OVER GRID ((l1, l2) IN (SELECT 0.5, {text})) VALIDATE NONE"
        with pytest.raises(BindError, match=re.escape(f"l2 must be a number >= 0, got {shown}\n")):
            con.execute(grid)
        con.execute(grid.replace(text, "range::BIGNUM FROM range(3)"))
        assert con.execute("SELECT l1, l2 FROM m ORDER BY l2").fetchall() == [(0.5, 0), (0.5, 1), (0.5, 2)]


def test_a_number_of_any_type_is_a_number() -> None:
    with duckdb.connect() as con:
        for kind in ("BIGNUM", "HUGEINT", "UHUGEINT", "UBIGINT"):
            assert SqlChecker(con, "").constant(Sql(f"(2::{kind} + 3)")) == 5


def test_plain_constants_ask_nothing() -> None:
    with duckdb.connect() as con:
        checker = SqlChecker(con, "")
    for text in ("12", " -0.5 ", "1e3", "'text'"):
        checker.constant(Sql(text))  # the connection is closed
    with pytest.raises(duckdb.Error, match="closed"):
        checker.connection.execute("SELECT 1")
