"""What a view, a macro or a default can do when it is read: ask. Only the user's own statement trains, drops or exports."""

from __future__ import annotations

import json
import re

import duckdb
import pytest
from native_builds import TABLE, TRAIN, built

from grouplearn.frontends.native import launch

DROP = "DROP MODEL m"
#: The call of the function that the parser writes, as anybody can write it.
ARGUMENTS = f"7::UBIGINT, 0::UBIGINT, 0::UBIGINT, 0::UBIGINT, {len(DROP)}::UBIGINT, '{DROP}'"
FORGED = f"grouplearn_statement({ARGUMENTS})"
FORGED_WITH = f"grouplearn_statement_with({ARGUMENTS}, {{a: 1}})"
REFUSED = "this function is for statements of grouplearn's"


@pytest.fixture
def connection():
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as opened:
        opened.execute(f"LOAD '{built(duckdb.__version__)}'; {TABLE}")
        opened.execute(TRAIN)
        yield opened


def models(connection: duckdb.DuckDBPyConnection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT model FROM (SHOW MODELS) ORDER BY model").fetchall()]


HOSTILE = [
    f"CREATE VIEW v AS SELECT {FORGED} AS done; FROM v;",
    f"CREATE VIEW w AS FROM query({FORGED_WITH}); FROM w;",
    f"CREATE MACRO f() AS {FORGED}; SELECT f();",
    f"CREATE TABLE a (a UBIGINT DEFAULT ({FORGED})); INSERT INTO a DEFAULT VALUES;",
    f"CREATE TABLE b (a INTEGER, b UBIGINT AS ({FORGED})); INSERT INTO b VALUES (1); FROM b;",
    f"CREATE TABLE c (a INTEGER, CHECK ({FORGED} > 0)); INSERT INTO c VALUES (1);",
    f"PREPARE p AS SELECT {FORGED}; EXECUTE p;",
    "CREATE VIEW x AS FROM query(grouplearn_answer(1::UBIGINT)); FROM x;",
]


def test_a_call_by_name_does_nothing(run, ours, shell):
    if launch.version_of(shell).startswith("1.4."):
        pytest.skip("its parser writes no such calls: the functions refuse each")
    for_each = [f"{hostile}\nSELECT 'models', count(*) FROM grouplearn.models;" for hostile in HOSTILE]
    done = run(
        "-csv", "-noheader", stdin="\n".join([TABLE, TRAIN, *for_each, ours("SHOW MODELS;")]).replace("; ", ";\n")
    )
    assert done.stderr.count(REFUSED) == len(HOSTILE) - 1
    assert done.stderr.count("not carried out") >= 1
    assert done.stdout.count("models,1\n") == len(HOSTILE)
    assert done.stdout.splitlines()[-1].startswith("m,y,3,")


def test_the_words_of_a_call_do_not_become_one_by_standing_in_the_users_statement(connection) -> None:
    with pytest.raises(duckdb.Error, match=REFUSED):
        connection.execute(f"SELECT {FORGED}")
    assert models(connection) == ["m"]


def sealed(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return the query that the parser makes of a statement, its seal in it."""
    (statement,) = connection.extract_statements(text)
    return statement.query


def test_a_call_that_the_parser_wrote_does_nothing_in_another_statement(connection) -> None:
    query = sealed(connection, TRAIN.rstrip(";").replace("MODEL m", "MODEL n").replace("FROM t", "FROM t WHERE x > $1"))
    kept = re.sub(r"\$1", "3", query)
    assert "grouplearn_statement_with(" in kept
    with pytest.raises(duckdb.Error, match=REFUSED):
        connection.execute(f"CREATE VIEW v AS {kept}")
    with pytest.raises(duckdb.Error, match=REFUSED):
        connection.execute("SELECT count(*) FROM query(?)", [kept])
    assert models(connection) == ["m"]


def test_a_statement_that_a_view_has_parsed_is_not_carried_out(connection) -> None:
    """json_serialize_sql() asks our parser, too, and hands out what it makes of a text."""
    text = TRAIN.rstrip(";").replace("MODEL m", "MODEL n").replace("FROM t", "FROM t WHERE x > $1").replace("'", "''")
    (serialized,) = connection.execute(f"SELECT json_serialize_sql('{text}')").fetchone()
    constant = {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": {"kind": "INTEGER", "text": "3"}}
    forged = json.dumps(with_constants(json.loads(serialized), constant)).replace("'", "''")
    with pytest.raises(duckdb.Error, match=REFUSED):
        connection.execute(f"CREATE VIEW v AS FROM json_execute_serialized_sql('{forged}')")
    assert models(connection) == ["m"]


def with_constants(node: object, constant: object) -> object:
    """Return a tree of JSON with a constant in the place of each parameter."""
    if isinstance(node, list):
        return [with_constants(each, constant) for each in node]
    if isinstance(node, dict):
        is_parameter = node.get("class") == "PARAMETER"
        known = {name: with_constants(each, constant) for name, each in node.items() if name != "named_param_map"}
        return constant if is_parameter else known
    return node


def test_a_statement_is_carried_out_as_often_as_it_is_executed(connection) -> None:
    again = TRAIN.rstrip(";").replace("TRAIN", "TRAIN OR REPLACE").replace("FROM t", "FROM t WHERE x >= $least")
    (statement,) = connection.extract_statements(again)
    for least, rows in ((0, 300), (100, 100), (0, 300)):
        assert sum(row[1] for row in connection.execute(statement, {"least": least}).fetchall()) == rows
    whole = connection.extract_statements(TRAIN.replace("TRAIN", "TRAIN OR REPLACE"))
    for _ in range(2):
        for each in whole:
            connection.execute(each)
        assert len(connection.fetchall()) == 3
    plan = connection.execute("EXPLAIN FROM (EVALUATE MODEL m ON t WHERE x < ?)", [100]).fetchall()
    assert plan
