"""What a view can reach by calling the functions behind ``predict`` itself: their arguments are its own, its power is to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import grouplearn
from grouplearn.catalog.lookup.sessions import SETTINGS, Sessions, SessionState
from grouplearn.errors import DataError

#: Anybody can read the definition of a macro, and what names the connection in it.
TOKEN = (
    "(SELECT regexp_extract(macro_definition, '''([0-9a-f]{32})''', 1) FROM duckdb_functions()"
    " WHERE function_name = 'predict')"
)
UNSET = f"[{', '.join(['NULL::VARCHAR'] * 9)}]"
ROW = "{'g': 1, 'x': 2.0}"


@pytest.fixture
def con() -> Iterator[Any]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i)"
        )
        connection.execute(
            "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE NONE"
        )
        connection.execute(f"CREATE MACRO token() AS {TOKEN}")
        yield connection


def value(con: Any, call: str) -> float:
    found: float = con.execute(f"SELECT round({call}, 6)").fetchall()[0][0]
    return found


def tables(con: Any) -> list[str]:
    return [
        name for (name,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main'").fetchall()
    ]


def test_a_view_that_calls_as_predict_does_predicts(con: Any) -> None:
    session = f"grouplearn_session(token(), {UNSET}, [{{'name': 'a', 'type': 'INTEGER', 'value': '1'}}])"
    con.execute(f"CREATE VIEW v AS SELECT grouplearn_predict(token(), 0, {session}, 'm', {ROW}, NULL, NULL).value AS p")
    assert con.execute("SELECT round(p, 6) FROM v").fetchall() == [(7.0,)]


@pytest.mark.parametrize(
    "kind",
    [
        "INTEGER); CREATE TABLE memory.main.pwned AS SELECT 1; SELECT CAST('1' AS INTEGER",
        "INTEGER) + (SELECT count(*) FROM read_csv('/etc/passwd')) + CAST('1' AS INTEGER",
        "nothing",
        "",
    ],
)
def test_the_type_of_a_variable_is_a_type(con: Any, kind: str) -> None:
    quoted = kind.replace("'", "''")
    session = f"grouplearn_session(token(), {UNSET}, [{{'name': 'a', 'type': '{quoted}', 'value': '1'}}])"
    con.execute(f"CREATE VIEW v AS SELECT grouplearn_predict(token(), 0, {session}, 'm', {ROW}, NULL, NULL) AS p")
    with pytest.raises(duckdb.Error, match="is not a type"):
        con.execute("FROM v")
    assert tables(con) == ["t"]


def test_the_type_of_the_rows_is_a_type(con: Any) -> None:
    kind = (
        "STRUCT(a INTEGER))); CREATE TABLE memory.main.pwned AS SELECT 1; SELECT unnest(CAST(NULL AS STRUCT(a INTEGER"
    )
    row = "{'g': 1, 'x': '2.0'}"  # SQL makes a number of the text: only it asks for the type
    con.execute(f"CREATE VIEW v AS SELECT grouplearn_predict(token(), 0, NULL, 'm', {row}, '{kind}', '{{}}') AS p")
    with pytest.raises(duckdb.Error, match="is not a type"):
        con.execute("FROM v")
    assert tables(con) == ["t"]


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    "setting", ["default_collation", "default_null_order", "default_order", "TimeZone", "search_path"]
)
def test_settings_of_a_call_change_no_other_connection(con: Any, setting: str) -> None:
    """Of the first three a plain SET is everybody's, so that an honest session of its own changed them for all."""
    values = {"default_collation": "nocase", "default_null_order": "nulls_first", "default_order": "DESC"}
    given = SETTINGS.replace(f"CAST(current_setting('{setting}') AS VARCHAR)", f"'{values.get(setting, 'Asia/Tokyo')}'")
    given = given if setting != "search_path" else given.replace("'Asia/Tokyo'", "'temp'")
    con.execute("CREATE SCHEMA s; CREATE TABLE s.a AS SELECT 1 AS a")
    before = [cursor_setting(con, setting), con.execute(f"SELECT current_setting('{setting}')").fetchall()]
    call = f"grouplearn_predict(token(), 0, grouplearn_session(token(), {given}, NULL), 'm', {ROW}, NULL, NULL).value"
    assert value(con, call) == 7
    assert before == [cursor_setting(con, setting), con.execute(f"SELECT current_setting('{setting}')").fetchall()]


def cursor_setting(con: Any, setting: str) -> Any:
    with con.cursor() as cursor:
        return cursor.execute(f"SELECT current_setting('{setting}')").fetchall()


def test_a_transaction_that_a_call_names_makes_the_sessions_own_forget_nothing(con: Any) -> None:
    con.execute("BEGIN")
    con.execute(
        "TRAIN MODEL n USING linear_regression PREDICT y + 100 AS z FEATURES (x) FROM t GROUP BY g VALIDATE NONE"
    )
    assert value(con, f"predict('n', {ROW}).value") == 107
    assert value(con, f"grouplearn_predict(token(), 5, NULL, 'm', {ROW}, NULL, NULL).value") == 7
    assert value(con, f"predict('n', {ROW}).value") == 107
    con.execute("ROLLBACK")
    with pytest.raises(duckdb.Error, match='model "n" does not exist'):
        value(con, f"predict('n', {ROW}).value")


@pytest.mark.examples(6)
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (f"grouplearn_predict(token(), 0, 99, 'm', {ROW}, NULL, NULL)", "a session that is not known"),
        (f"grouplearn_predict('another', 0, NULL, 'm', {ROW}, NULL, NULL)", "a connection that is closed"),
        (f"grouplearn_predict(token(), 'x', NULL, 'm', {ROW}, NULL, NULL)", "grouplearn_predict is for predict"),
        (f"grouplearn_predict(token(), 0, 'y', 'm', {ROW}, NULL, NULL)", "grouplearn_predict is for predict"),
        (f"grouplearn_predict(token(), 0, NULL, 'm', {ROW}, 5, NULL)", "grouplearn_predict is for predict"),
        ("grouplearn_predict(NULL, NULL, NULL, NULL, NULL, NULL, NULL)", "grouplearn_predict is for predict"),
        ("grouplearn_session(NULL, NULL, NULL)", "a connection that is closed"),
        ("grouplearn_session(token(), ['a'], NULL)", "grouplearn_session is for predict"),
        ("grouplearn_session(token(), NULL, NULL)", "grouplearn_session is for predict"),
        ("grouplearn_session(token(), 5, 6)", "grouplearn_session is for predict"),
        (f"grouplearn_session(token(), {UNSET}, [1])", "grouplearn_session is for predict"),
        (f"grouplearn_session(token(), {UNSET}, [{{'name': NULL}}])", "grouplearn_session is for predict"),
        (f"predict(5, {ROW})", "predict takes a model's name"),
        ("predict('m', 5)", "predict takes a row"),
        ("predict('m', {'g': 1, 'x': 'abc'})", 'feature "x" is no number'),
        (f"predict(repeat('\"', 10001), {ROW})", "does not exist"),
        (f"predict(chr(0), {ROW})", "does not exist"),
    ],
)
def test_other_arguments_are_refused(con: Any, call: str, told: str) -> None:
    with pytest.raises(duckdb.Error, match=told):
        con.execute(f"SELECT {call}")
    assert value(con, f"predict('m', {ROW}).value") == 7


def test_an_enum_names_models_too(con: Any) -> None:
    con.execute("CREATE TYPE named AS ENUM ('m', 'other')")
    assert value(con, f"predict('m'::named, {ROW}).value") == 7


def test_a_state_is_applied_with_types_as_duckdb_writes_them() -> None:
    with duckdb.connect() as cursor:
        state = SessionState((None,) * 9, (("a", "STRUCT(b INTEGER[], \"c d\" ENUM('x'))", "{'b': [1], 'c d': x}"),))
        state.apply(cursor)
        assert cursor.execute("SELECT getvariable('a')").fetchall() == [({"b": [1], "c d": "x"},)]
        with pytest.raises(DataError, match="not known"):
            Sessions().apply(1, cursor)
