from __future__ import annotations

from typing import Any

import duckdb
import pytest

import grouplearn
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.errors import BindError
from grouplearn.messages import Span
from grouplearn.parser.statements import Sql


class Counting:
    """A connection that counts what it is asked."""

    def __init__(self) -> None:
        self.connection = duckdb.connect()
        self.queries = 0

    def execute(self, query: str) -> Any:
        self.queries += 1
        return self.connection.execute(query)


def test_constants_are_what_each_of_them_is() -> None:
    texts = [
        "1",
        "-0.5",
        "+3",
        "1e3",
        "1.50",
        "123456789012345",
        "12345678901234567890",
        "NULL",
        "'a'",
        "1 + 1",
        "[1]",
        "7",
    ]
    counting = Counting()
    checker = SqlChecker(counting, "")  # type: ignore[arg-type]
    fragments = [Sql(text) for text in texts]
    expected = [checker.constant(fragment) for fragment in fragments]
    found = checker.constants(fragments)
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]
    counting.queries = 0
    assert checker.constants([Sql(str(number)) for number in range(1000)]) == [*range(1000)]
    assert counting.queries == 0


def test_a_constant_that_fails_is_pointed_at() -> None:
    text = "1 2 nothing 3"
    checker = SqlChecker(duckdb.connect(), text)
    places = [Span(0, 1), Span(2, 3), Span(4, 11), Span(12, 13)]
    with pytest.raises(BindError) as raised:
        checker.constants([Sql(text[place.start : place.end], place) for place in places])
    assert raised.value.span == places[2]


@pytest.mark.parametrize("rest", ["z FEATURES (x) FROM t", "y FROM t", "y FEATURES (x) FROM t GROUP BY z"])
def test_a_name_that_sql_cannot_be_stored_with_is_refused(rest: str) -> None:
    hidden = rest.replace("z", '"z\0z"')
    with grouplearn.connect(progress=None) as con:
        con.execute('CREATE TABLE t AS SELECT i * 1.0 AS x, i * 2.0 AS y, i % 2 AS "z\0z" FROM range(50) AS r(i)')
        with pytest.raises(BindError, match="an expression cannot have the character 0"):
            con.execute(f"TRAIN MODEL m USING linear_regression PREDICT {hidden}")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t VALIDATE NONE")
        assert len(con.execute("SELECT predict('m', t) FROM t").fetchall()) == 50
