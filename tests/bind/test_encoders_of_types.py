"""Each type of a column with each encoder: what is refused is refused in true words, with a hint that works."""

from __future__ import annotations

import itertools
import re
from typing import Any

import duckdb
import pytest
from helpers.thorough import THOROUGH

from grouplearn.bind.bind import bind
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding.registry import CALLS, called
from grouplearn.errors import BindError
from grouplearn.parser.parse import parse
from grouplearn.parser.statements import TrainModel

TYPES = (
    *(
        "BOOLEAN",
        "UTINYINT",
        "BIGINT",
        "HUGEINT",
        "BIGNUM",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(9, 2)",
        "VARCHAR",
        "ENUM('a', 'b')",
    ),
    *(
        "UUID",
        "BLOB",
        "BIT",
        "DATE",
        "TIME",
        "TIME_NS",
        "TIMETZ",
        "TIMESTAMP",
        "TIMESTAMP_S",
        "TIMESTAMP_NS",
        "TIMESTAMPTZ",
    ),
    *(
        "INTERVAL",
        "VARIANT",
        "GEOMETRY",
        "VARCHAR[]",
        "DOUBLE[]",
        "FLOAT[3]",
        "BIGINT[][]",
        "DATE[]",
        "VARIANT[]",
        "BLOB[]",
    ),
    *(
        "STRUCT(field INTEGER)",
        "STRUCT(field INTEGER)[]",
        "MAP(VARCHAR, DOUBLE)",
        "UNION(field INTEGER, other VARCHAR)",
    ),
    *("MAP(VARCHAR, DATE[])", "INTERVAL[]", "STRUCT(field INTEGER[])"),
)
CALLED = {
    None: "x",
    **{name: call.example for name, call in CALLS.items() if any(each.suggested for each in called(name))},
    "sparse": "sparse(x, x, 64)",
}
LEARNERS = ("linear_regression", "gbdt")


def _refused(connection: Any, learner: str, item: str) -> BindError | None:
    text = f"TRAIN MODEL m USING {learner} PREDICT y FEATURES ({item}) FROM t"
    (statement,) = parse(text)
    assert isinstance(statement, TrainModel)
    try:
        bind(SqlChecker(connection, text), statement, "memory", "main", {})
    except BindError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("type_name", "learner"),
    [*itertools.product(TYPES, LEARNERS)] if THOROUGH else [*zip(TYPES, itertools.cycle(LEARNERS), strict=False)],
)
def test_what_is_said_of_a_type_is_true(type_name: str, learner: str) -> None:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t AS SELECT 1.5 AS y, CAST(NULL AS {type_name}) AS x FROM range(9)")
    refusals = {item: _refused(connection, learner, item) for item in CALLED.values()}
    taken = {item for item, error in refusals.items() if error is None}
    for item, error in refusals.items():
        if error is None:
            continue
        hint = error.hint or ""
        assert ("no encoder takes" in error.message) == (not taken and not item.startswith("sparse")), (item, error)
        written = re.search(r"for this type write (.*?)(?:, or take|;|\.$)", hint, re.IGNORECASE)
        if written is not None:  # all that take it, and no other
            named = set(re.split(r", (?!64)| or ", written[1]))
            assert named == taken or named | {"x"} == taken >= {"onehot(x)"}, (item, hint)  # of a text both are one
        else:
            assert not taken or item.startswith("sparse"), (item, hint)
        if "out of it" in hint:
            inner = re.search(r"e\.g\. (.*?)(?:;|\.$)", hint)
            assert inner is not None
            _works(connection, learner, inner[1].split(" or "))
        if "Cast it" in hint:
            _works(connection, learner, hint.removeprefix("Cast it, e.g. ").removesuffix(".").split(" or "))


def _works(connection: Any, learner: str, items: list[str]) -> None:
    for item in items:
        error = _refused(connection, learner, item)
        member = item.endswith((".field", "['key']"))  # of whatever type
        assert error is None or (member and "needs an encoder" in error.message), (item, error)
