"""A model that somebody else made, and what is said of it; the fixture ``strange`` is a connection to its database."""

import pytest

import grouplearn
from grouplearn.errors import NotTrusted

TABLE = "CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i)"
TRAIN = "TRAIN MODEL {} USING linear_regression PREDICT y FEATURES ({}) FROM t GROUP BY g VALIDATE NONE"
FIELDS = ("name", "kind", "position", "encoder", "impute", "scope", "buckets", "options", "type")
KEPT = ", ".join(f"'{name}': items[1].{name}" for name in FIELDS)
FEATURE = f"UPDATE grouplearn.models SET items = [{{{KEPT}, 'sql': ?}}]"


def refusal(con: grouplearn.Connection, statement: str) -> str:
    with pytest.raises(NotTrusted) as refused:
        con.execute(statement)
    return str(refused.value)
