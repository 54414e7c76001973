"""Constants that are read without asking DuckDB have the value that DuckDB gives them."""

import duckdb
import pytest

from grouplearn.bind.sql.checker import SqlChecker
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


def test_plain_constants_ask_nothing() -> None:
    with duckdb.connect() as con:
        checker = SqlChecker(con, "")
    for text in ("12", " -0.5 ", "1e3", "'text'"):
        checker.constant(Sql(text))  # the connection is closed
    with pytest.raises(duckdb.Error, match="closed"):
        checker.connection.execute("SELECT 1")
