"""What a model names is looked at again where its names may mean something else: other files, paths, views and macros."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from helpers.thorough import every_other
from strangers import FEATURE, TRAIN, refusal

import grouplearn
from grouplearn.catalog.checks import trust
from grouplearn.statements.workflow import training


@pytest.fixture
def con(strange: grouplearn.Connection) -> grouplearn.Connection:
    return strange


PREDICT = "SELECT predict('{}', {{'g': 1, 'x': 2.0}}).value"


def hidden(con: grouplearn.Connection, tmp_path: Path, name: str) -> Path:
    """Return a database with the model and a macro that hides a function of DuckDB's."""
    path = tmp_path / "hidden.duckdb"
    shutil.copy(tmp_path / "a.duckdb", path)
    with duckdb.connect(path) as other:
        other.execute(f"CREATE MACRO {name}(a) AS error('{name} ran')")
    return path


def test_a_change_of_databases_in_a_transaction_is_looked_at(con: grouplearn.Connection, tmp_path: Path) -> None:
    path = hidden(con, tmp_path, "max")
    con.execute(f"ATTACH '{path}' AS h; BEGIN")
    assert con.execute(PREDICT.format("m")).fetchall()
    con.execute("USE h")
    with pytest.raises(duckdb.Error, match="hides DuckDB's own"):
        con.execute(PREDICT.format("m")).fetchall()


@pytest.mark.parametrize("through_a_cursor", [False, True])
def test_another_file_under_the_name_of_one_is_looked_at(
    con: grouplearn.Connection, tmp_path: Path, through_a_cursor: bool
) -> None:
    for name, body in (("good", "a"), ("bad", "a + (SELECT max(length(content)) FROM read_text('/etc/hostname'))")):
        shutil.copy(tmp_path / "a.duckdb", tmp_path / f"{name}.duckdb")
        with duckdb.connect(tmp_path / f"{name}.duckdb") as other:
            other.execute(f"CREATE MACRO helper(a) AS {body}")
            other.execute(FEATURE, ["e.main.helper(x)"])
    con.execute(f"ATTACH '{tmp_path}/good.duckdb' AS e; BEGIN")
    assert con.execute(PREDICT.format("e.m")).fetchall()
    other = con.cursor() if through_a_cursor else con
    other.execute(f"ATTACH OR REPLACE '{tmp_path}/bad.duckdb' AS e")
    with pytest.raises(duckdb.Error, match="which calls read_text"):
        con.execute(PREDICT.format("e.m")).fetchall()


@pytest.mark.parametrize("by", ["ROLLBACK", "rollback()", "COPY FROM DATABASE"])
def test_a_macro_that_is_there_again_is_looked_for(con: grouplearn.Connection, tmp_path: Path, by: str) -> None:
    train = TRAIN.format("n", "x").replace("TRAIN", "TRAIN OR REPLACE")
    if by == "COPY FROM DATABASE":
        with duckdb.connect(tmp_path / "macros.duckdb") as other:
            other.execute("CREATE MACRO lower(a) AS error('lower ran')")
        con.execute(f"ATTACH '{tmp_path}/macros.duckdb' AS macros (READ_ONLY)")
        con.execute(train)
        con.execute("COPY FROM DATABASE macros TO a")
    else:
        con.native.execute("CREATE MACRO lower(a) AS error('lower ran')")
        con.execute("BEGIN; DROP MACRO lower")
        con.execute(train)
        con.rollback() if by == "rollback()" else con.execute(by)
    assert "hides DuckDB's own" in refusal(con, train)


def test_a_macro_of_a_file_that_is_attached_while_a_model_trains_does_not_run(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, run = hidden(con, tmp_path, "lower"), training.run
    con.execute("ATTACH ':memory:' AS e; USE e; CREATE TABLE t AS FROM a.main.t")

    def swapped(*arguments: Any) -> Any:
        with con.native.cursor() as other:
            other.execute(f"ATTACH OR REPLACE '{path}' AS e")
        return run(*arguments)

    monkeypatch.setattr(training, "run", swapped)
    assert "hides DuckDB's own" in refusal(con, TRAIN.format("n", "x"))


@pytest.mark.parametrize("within", ["", "BEGIN"])
def test_an_expression_is_looked_at_again_where_names_mean_something_else(
    con: grouplearn.Connection, tmp_path: Path, within: str
) -> None:
    con.native.execute("CREATE VIEW vw AS SELECT 1.0 AS z")
    con.native.execute(FEATURE, ["x + (SELECT max(z) FROM vw)"])
    with duckdb.connect(str(tmp_path / "b.duckdb")) as other:
        other.execute("CREATE VIEW vw AS SELECT size AS z FROM read_text('/etc/hostname')")
    asked = "SELECT predict('a.main.m', t).value FROM a.main.t AS t"
    if within:
        con.execute(within)
    expected = con.execute(asked).fetchall()
    con.execute(f"ATTACH '{tmp_path}/b.duckdb' AS b")
    assert con.execute(asked).fetchall() == expected
    con.execute("USE b")
    with pytest.raises(duckdb.Error, match="names vw, which calls read_text"):
        con.execute(asked).fetchall()


HIDDEN_READER = "CREATE VIEW reader AS SELECT size AS z FROM read_text('/etc/hostname')"


@pytest.mark.examples(2)
@pytest.mark.parametrize("whose", ["own", "cursor", "connection", "native"])
@pytest.mark.parametrize(
    "change",
    [
        "CREATE OR REPLACE VIEW vw AS SELECT size AS z FROM read_text('/etc/hostname')",
        "ALTER VIEW vw RENAME TO old; ALTER VIEW reader RENAME TO vw",
        "BEGIN; DROP VIEW vw; ALTER VIEW reader RENAME TO vw; COMMIT",
        "BEGIN; DROP VIEW vw; ALTER VIEW reader RENAME TO vw; END",
    ],
)
def test_an_expression_is_looked_at_again_where_a_view_became_another(
    tmp_path: Path, change: str, whose: str, elsewhere: Callable[[], None]
) -> None:
    path = tmp_path / "a.duckdb"
    with grouplearn.connect(path, progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i * 2 AS y FROM range(20) AS r(i)")
        con.execute(f"CREATE VIEW vw AS SELECT 1.0 AS z; {HIDDEN_READER}")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x + (SELECT max(z) FROM vw)) FROM t")
    elsewhere()
    with grouplearn.connect(path, progress=None) as con, grouplearn.connect(path, progress=None) as other:
        asked = "SELECT predict_value('m', t) FROM t"
        assert len(con.execute(asked).fetchall()) == 20
        changing = {"own": con, "cursor": con.cursor(), "connection": other, "native": con.native}[whose]
        for statement in change.split("; "):
            changing.execute(statement)
        with pytest.raises(duckdb.Error, match="names vw, which calls read_text"):
            con.execute(asked).fetchall()


def test_the_first_place_of_a_path_is_looked_in_first(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.execute(
        f"ATTACH '{tmp_path}/b.duckdb' AS b; CREATE TABLE b.t AS SELECT * REPLACE (y + 1000 AS y) FROM t; USE b"
    )
    con.execute(TRAIN.format("m", "x"))
    for path, least in (("a.main,b.main", 1.0), ("b.main,a.main", 1001.0)):
        con.execute(f"SET search_path = '{path}'")
        found = con.execute("SELECT min(predict_value('m', t)) FROM a.t AS t").fetchall()[0][0]
        assert found == pytest.approx(least)
        assert con.execute("SELECT value FROM (DESCRIBE MODEL m) WHERE property = 'model'").fetchall() == [
            (f"{path[0]}.main.m",)
        ]


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[set[tuple[str, str]]]:
    """Return where macros have been looked for, each time that functions were listed."""
    found, refuse = [], trust.Guard._refuse_macros

    def listed(guard: trust.Guard, con: duckdb.DuckDBPyConnection, places: set[tuple[str, str]]) -> None:
        found.append(places)
        refuse(guard, con, places)

    monkeypatch.setattr(trust.Guard, "_refuse_macros", listed)
    return found


def test_functions_are_listed_where_a_macro_may_be_there_that_was_not(
    tmp_path: Path, listings: list[set[tuple[str, str]]]
) -> None:
    """It takes ten times as long as a small query does."""
    table = "CREATE OR REPLACE TABLE {}t AS SELECT i % 2 AS g, i AS x, i AS y FROM range(60) AS r(i)"
    statements = (TRAIN.format("m", "x"), "EVALUATE MODEL m ON t", "SHOW MODELS", "SELECT predict('m', t) FROM t")
    with grouplearn.connect(progress=None) as con:
        for own in (con, con.cursor()):
            own.execute(table.format(""))
            for statement in statements:
                own.execute(statement.replace("TRAIN", "TRAIN OR REPLACE")).fetchall()
        assert not listings
        con.execute("CREATE MACRO own(a) AS a")
        con.execute("EVALUATE MODEL m ON t").fetchall()
        con.execute("SHOW MODELS").fetchall()
        assert len(listings) == 1
        con.cursor().execute("CREATE MACRO lower(a) AS error('lower ran')")
        assert "hides DuckDB's own" in refusal(con, "EVALUATE MODEL m ON t")
    listings.clear()
    with grouplearn.connect(tmp_path / "b.duckdb", progress=None) as con:
        con.execute(table.format(""))
        for statement in statements:
            con.execute(statement).fetchall()
        assert len(listings) == 2  # once by the connection, once by the cursor of predict
        con.execute("CREATE SCHEMA s;" + table.format("s."))
        for name in ("n", "o"):
            con.execute(TRAIN.format(f"s.{name}", "x"))
        con.execute("EVALUATE MODEL s.n ON t").fetchall()
        assert listings[2:] == [{("b", "main"), ("b", "grouplearn"), ("b", "s")}]


def test_a_file_that_a_database_in_memory_attaches_is_looked_at(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "a.duckdb") as other:
        other.execute("CREATE MACRO lower(a) AS error('lower ran'); CREATE TABLE t AS SELECT 1 AS g, 2 AS x, 3 AS y")
    for attach in (
        f"ATTACH '{tmp_path}/a.duckdb' AS a; USE a",
        f"ATTACH '{tmp_path}/a.duckdb' AS a; COPY FROM DATABASE a TO memory",
    ):
        with grouplearn.connect(progress=None) as con:
            con.execute(attach)
            assert "hides DuckDB's own" in refusal(con, TRAIN.format("m", "x"))


MODEL = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY lower(g) AS g VALIDATE NONE"


@pytest.fixture
def letters() -> Iterator[grouplearn.Connection]:
    """Groups by a function of a text, and a model of them."""
    with grouplearn.connect(progress=None) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT ['A', 'b'][1 + i % 2] AS g, i AS x, 2 * i AS y FROM range(60) AS r(i)"
        )
        connection.execute(MODEL)
        yield connection


def predicted(con: grouplearn.Connection) -> list[Any]:
    """Return of how many rows the macro and ``predict_value`` know the group."""
    asked = ("SELECT count(prediction) FROM m_predict(t)", "SELECT count(predict_value('m', t)) FROM t")
    return [con.execute(each).fetchall()[0][0] for each in asked]


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("before", "undo"), every_other(itertools.product([False, True], ["ROLLBACK", "rollback()", "error"]))
)
def test_temporary_macros_are_taken_back_with_their_transaction(
    letters: grouplearn.Connection, undo: str, before: bool
) -> None:
    if before:
        letters.execute("CREATE TEMP MACRO lower(s) AS 'none'")
    letters.execute("BEGIN")
    letters.execute("DROP MACRO lower; " if before else "CREATE TEMP MACRO lower(s) AS upper(s)")
    assert predicted(letters) == ([60, 60] if before else [0, 0])
    if undo == "error":
        with pytest.raises(duckdb.Error):
            letters.execute("SELECT nothing")
    letters.rollback() if undo == "rollback()" else letters.execute("ROLLBACK")
    assert predicted(letters) == ([0, 0] if before else [60, 60])
    letters.execute("BEGIN; CREATE OR REPLACE TEMP MACRO lower(s) AS 'none'; ROLLBACK")
    assert predicted(letters) == ([0, 0] if before else [60, 60])
    letters.execute("CREATE OR REPLACE TEMP MACRO lower(s) AS 'b'; BEGIN")
    letters.execute("ROLLBACK")
    assert predicted(letters) == [60, 60]
    letters.execute("BEGIN; CREATE OR REPLACE TEMP MACRO lower(s) AS 'b'; COMMIT; BEGIN; ROLLBACK")
    assert predicted(letters) == [60, 60]


def test_what_predict_sees_of_macros_is_not_what_statements_see(letters: grouplearn.Connection) -> None:
    letters.execute("BEGIN; CREATE MACRO lower(s) AS 'zz'")
    assert letters.execute("SELECT count(predict_value('m', t)) FROM t").fetchall() == [(60,)]
    assert "hides DuckDB's own" in refusal(letters, MODEL.replace("MODEL m", "MODEL n"))
    letters.execute("ROLLBACK; CREATE MACRO lower(s) AS 'zz'; BEGIN; DROP MACRO lower")
    assert letters.execute("EVALUATE MODEL m ON t").fetchall()
    with pytest.raises(duckdb.Error, match="hides DuckDB's own"):
        letters.execute("SELECT count(predict_value('m', t)) FROM t").fetchall()


@pytest.mark.parametrize("options", ["", ", linear_tree = true"])
def test_macros_read_the_copy_that_is_asked_for(options: str) -> None:
    """In SQL, and by the function where SQL has no form (leaves that are linear), which looks a model up by its identity."""
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i * 2.0 AS y FROM range(40) AS r(i)")
        small = f"WITH (num_iterations = 2, min_data_in_leaf = 1{options})"
        con.execute(f"TRAIN MODEL m USING gbdt PREDICT y FEATURES (x) FROM t {small}")
        con.execute("ATTACH ':memory:' AS x; COPY FROM DATABASE memory TO x")
        of_x = "FROM m_predict(t, database := 'x')"
        expected = con.execute("FROM m_predict(t)").fetchall()
        for query in (of_x, "FROM x.m_predict(t)", "FROM x.m_predict(t, database := 'x')"):
            assert con.execute(query).fetchall() == expected
        con.execute("DROP MODEL x.m")
        assert con.execute("FROM m_predict(t)").fetchall() == expected
        with pytest.raises(duckdb.Error, match=r"was replaced or dropped|is not in the database that"):
            con.execute(of_x).fetchall()
