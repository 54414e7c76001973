"""Models that somebody else made: what is remembered of them, and for how long."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from strangers import FEATURE, TRAIN, refusal

import grouplearn
from grouplearn.catalog.checks import attached, fragments, trust
from grouplearn.errors import Error, NotTrusted
from grouplearn.frontends.notebook.model_table import find_model, relation_html
from grouplearn.frontends.python.dbapi import wrap
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


def test_predict_looks_before_it_evaluates(con: grouplearn.Connection) -> None:
    con.native.execute(FEATURE, ["1); SELECT (1"])
    with pytest.raises(duckdb.Error, match="is not one expression"):
        con.execute("SELECT predict('m', t) FROM t").fetchall()


def test_predict_asks_for_trust_again_when_it_is_taken_back(con: grouplearn.Connection) -> None:
    con.native.execute(FEATURE, ["(SELECT max(length(content)) FROM read_text('/etc/hostname'))"])
    for trusts in (None, True, False, True, False):
        con.execute("RESET grouplearn_trust" if trusts is None else f"SET grouplearn_trust = {trusts}")
        if trusts:
            assert con.execute("SELECT predict('m', t).value FROM t").fetchall()
        else:
            with pytest.raises(duckdb.Error, match="calls read_text"):
                con.execute("SELECT predict('m', t) FROM t").fetchall()


def test_what_this_session_trained_needs_no_trust(con: grouplearn.Connection, tmp_path: Path, elsewhere) -> None:
    (tmp_path / "rates.csv").write_text("rate\n3\n")
    con.execute(TRAIN.format("own", f"x * (SELECT max(rate) FROM read_csv('{tmp_path}/rates.csv'))"))
    con.execute("ALTER MODEL own RENAME TO mine")
    for statement in ("EVALUATE MODEL mine ON t", "SELECT predict('mine', t) FROM t"):
        assert con.execute(statement).fetchall()
    elsewhere()
    assert "calls read_csv" in refusal(con, "EVALUATE MODEL mine ON t")


def test_a_file_that_was_swapped_is_not_the_one_that_was_trained_in_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # DuckDB's number of a database goes by what is in the file, so that whoever swaps it can have the same.
    monkeypatch.setattr(attached, "_QUERY", attached._QUERY.replace("database_oid", "7"))
    path = str(tmp_path / "a.duckdb")
    (tmp_path / "a.csv").write_text("g,x,y\n1,2,3\n")
    with grouplearn.connect(path, progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i % 2 AS g, i AS x, if(g = 0, i, NULL) AS y FROM range(60) AS r(i)")
        source = f"(FROM t WHERE 0 < (SELECT count(*) FROM read_csv('{tmp_path}/a.csv')))"
        con.execute(f"TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM {source} GROUP BY g")
        for own in (con, con.cursor(), wrap(con.native)):  # some clients open one for each statement
            own.execute("RETRY FAILED MODEL m").fetchall()
    with duckdb.connect(path) as other:
        other.execute(f"ALTER TABLE t RENAME TO old; CREATE VIEW t AS FROM read_csv('{tmp_path}/a.csv')")
    with grouplearn.connect(path, progress=None) as con:
        assert "calls read_csv" in refusal(con, "RETRY FAILED MODEL m")


def test_a_stored_statement_is_looked_at_before_it_is_run_again(con: grouplearn.Connection, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("g,x,y\n1,2,3\n")
    con.native.execute(f"CREATE VIEW evil AS FROM read_csv('{tmp_path}/a.csv')")
    con.native.execute("UPDATE grouplearn.trials SET status = 'failed' WHERE group_id = 0")
    statement = con.native.execute("SELECT statement FROM grouplearn.models").fetchall()[0][0]
    for hostile, reason in (
        (statement.replace("FROM t", f"FROM read_csv('{tmp_path}/a.csv')"), "calls read_csv"),
        (statement.replace("FROM t", "FROM t WHERE getenv('HOME') <> ''"), "calls getenv"),
        (statement.replace("FROM t", "FROM 'a.csv'"), 'reads "a.csv"'),
        (statement.replace("FROM t", "FROM evil"), "names evil, which calls read_csv"),
        (statement.replace("FROM t", "FROM t, 'a.csv'"), 'reads "a.csv"'),
        (f"{statement} OVER GRID (l2 IN (FROM evil))", "names evil, which calls read_csv"),
        (f"{statement} WITH (l2 = (SELECT max(length(content)) FROM read_text('/etc/hostname')))", "calls read_text"),
    ):
        con.native.execute("UPDATE grouplearn.models SET statement = ?", [hostile])
        assert reason in refusal(con, "RETRY FAILED MODEL m")
    con.native.execute("UPDATE grouplearn.models SET statement = 'SELECT 1'")
    with pytest.raises(Error, match=r'model "m" is damaged: .* the statement is not one TRAIN'):
        con.execute("RETRY FAILED MODEL m")
    con.native.execute("UPDATE grouplearn.models SET statement = ?", [statement])
    assert len(con.execute("RETRY FAILED MODEL m").fetchall()) == 1


def test_a_statement_of_grouping_sets_is_run_again(con: grouplearn.Connection, elsewhere) -> None:
    con.execute(TRAIN.format("sets", "* EXCLUDE (y, g)").replace("BY g", "BY ROLLUP (g)"))
    con.native.execute("UPDATE grouplearn.trials SET status = 'failed' WHERE group_id = 0")
    elsewhere()
    assert len(con.execute("RETRY FAILED MODEL sets").fetchall()) == 1


def test_importing_is_as_opening(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.native.execute(FEATURE, ["(SELECT max(length(content)) FROM read_text('/etc/hostname'))"])
    con.execute(f"EXPORT MODEL m TO '{tmp_path}/out'")
    con.execute(TRAIN.format("mine", "x"))
    con.execute("BEGIN")
    for statement in ("IMPORT MODEL n", "IMPORT OR REPLACE MODEL mine"):
        assert "calls read_text" in refusal(con, f"{statement} FROM '{tmp_path}/out'")
    assert con.execute("SELECT model FROM (SHOW MODELS) ORDER BY ALL").fetchall() == [("m",), ("mine",)]
    assert len(con.execute("FROM mine_predict(t)").fetchall()) == 300
    con.execute("COMMIT; SET grouplearn_trust = true")
    con.execute(f"IMPORT MODEL n FROM '{tmp_path}/out'; RESET grouplearn_trust")
    assert "calls read_text" in refusal(con, "EVALUATE MODEL n ON t")
    con.execute("BEGIN; SET grouplearn_trust = true")
    con.execute(f"IMPORT MODEL o FROM '{tmp_path}/out'; RESET grouplearn_trust")
    with pytest.raises(duckdb.Error, match="calls read_text"):
        con.execute("SELECT predict('o', t) FROM t").fetchall()
    con.execute("ROLLBACK")


def test_a_run_that_is_left_beside_a_file_is_as_opening(con: grouplearn.Connection, tmp_path: Path, elsewhere) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    durable = TRAIN.format("n", "x + (SELECT max(size) FROM read_text('/etc/hostname'))") + " WITH (durable = true)"
    with pytest.MonkeyPatch.context() as interrupted:
        interrupted.setattr(training, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            con.execute(durable)
    elsewhere()
    assert "calls read_text" in refusal(con, "RESUME MODEL n")
    con.execute("SET grouplearn_trust = true")
    assert len(con.execute("RESUME MODEL n").fetchall()) == 3


def test_memory_of_what_was_trained_is_bounded_and_of_all_texts(con: grouplearn.Connection) -> None:
    memory = fragments._Memory(2)
    for number in range(3):
        memory.add("", bytes([number]))
    assert [memory.has("", bytes([number])) for number in range(3)] == [False, True, True]
    con.execute(TRAIN.format("n", "x"))
    hostile = "x + length(getenv('HOME'))"
    con.native.execute(FEATURE + " WHERE model_name = 'n'", [hostile])  # an identity that this process knows
    assert "calls getenv" in refusal(con, "EVALUATE MODEL n ON t")


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


@pytest.mark.examples(3)
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


OWN = "x * mine(1) + (SELECT max(r) FROM rates)"


def _own(con: grouplearn.Connection, tmp_path: Path) -> None:
    """A model that reads a file through a macro and a view of its database."""
    (tmp_path / "rates.csv").write_text("r\n3\n")
    con.execute(f"CREATE MACRO mine(a) AS a + (SELECT max(r) FROM read_csv('{tmp_path}/rates.csv'))")
    con.execute(f"CREATE VIEW rates AS SELECT r FROM read_csv('{tmp_path}/rates.csv')")
    con.execute(TRAIN.format("own", OWN))


@pytest.mark.parametrize(
    "change",
    [
        "CREATE OR REPLACE MACRO mine(a) AS (SELECT count(*) FROM glob('*'))",
        "CREATE OR REPLACE VIEW rates AS SELECT count(*) AS r FROM glob('*')",
        "SELECT 1",
    ],
)
def test_a_copy_of_what_was_trained_here_is_another_database(
    con: grouplearn.Connection, tmp_path: Path, change: str
) -> None:
    reason = "names (mine|rates), which calls (read_csv|glob)"
    _own(con, tmp_path)
    con.native.execute("UPDATE grouplearn.trials SET status = 'failed' WHERE group_id = 0; CHECKPOINT")
    folder = tmp_path / "copy"
    folder.mkdir()
    shutil.copy(tmp_path / "a.duckdb", folder / "a.duckdb")
    with duckdb.connect(str(folder / "a.duckdb")) as other:
        other.execute(change)
    with grouplearn.connect(str(folder / "a.duckdb"), progress=None) as other:
        for statement in ("EVALUATE MODEL own ON t", "RETRY FAILED MODEL own"):
            assert re.search(reason, refusal(other, statement))
        with pytest.raises(duckdb.Error, match=reason):
            other.execute("SELECT predict('own', t) FROM t").fetchall()


def test_what_was_trained_here_is_looked_at_where_it_names_something_else(
    con: grouplearn.Connection, tmp_path: Path
) -> None:
    _own(con, tmp_path)
    asked = ("EVALUATE MODEL a.main.own ON a.main.t", "SELECT predict('a.main.own', t).value FROM a.main.t AS t")
    for statement in asked:
        con.execute(statement).fetchall()
    with duckdb.connect(str(tmp_path / "b.duckdb")) as other:
        other.execute("CREATE VIEW rates AS SELECT size AS r FROM read_text('/etc/hostname')")
    con.execute(f"ATTACH '{tmp_path}/b.duckdb' AS b; USE b")
    assert "names " in refusal(con, asked[0])
    with pytest.raises(duckdb.Error, match="names "):
        con.execute(asked[1]).fetchall()


def test_what_the_user_trained_goes_on(con: grouplearn.Connection, tmp_path: Path) -> None:
    _own(con, tmp_path)
    con.execute("ALTER MODEL own RENAME TO renamed")
    con.execute("BEGIN")
    con.execute(TRAIN.format("within", OWN))
    for name in ("renamed", "within"):
        assert con.execute(f"SELECT predict('{name}', t).value FROM t").fetchall()
        assert con.execute(f"EVALUATE MODEL {name} ON t").fetchall()
    con.execute("ALTER MODEL within RENAME TO after")
    assert con.execute("SELECT predict('after', t).value FROM t").fetchall()
    con.execute("COMMIT")
    assert con.execute("SELECT predict('after', t).value FROM t").fetchall()


def test_a_changed_copy_of_a_database_predicts_in_nobodys_place(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.execute("CHECKPOINT")
    shutil.copy(tmp_path / "a.duckdb", tmp_path / "copy.duckdb")
    with duckdb.connect(str(tmp_path / "copy.duckdb")) as other:
        for row, weights in other.execute("SELECT rowid, weights FROM grouplearn.artifacts").fetchall():
            digest = hashlib.sha256(struct.pack(f"<{len(weights) + 1}d", *weights, 666.0)).hexdigest()
            change = "UPDATE grouplearn.artifacts SET intercept = [666.0], sha256 = ? WHERE rowid = ?"
            other.execute(change, [digest, row])
    predict = "SELECT max(predict_value('{}.main.m', t)) FROM a.t AS t WHERE x = 0"
    con.execute(f"ATTACH '{tmp_path}/copy.duckdb' AS copy")
    (identity,) = con.execute("SELECT model::VARCHAR FROM a.grouplearn.models").fetchall()[0]
    with pytest.raises(duckdb.Error, match="is in several databases"):
        con.execute(f"SELECT predict_value('{identity}', t) FROM a.t").fetchall()
    for within in ("BEGIN", "SELECT 1"):
        con.execute(within)
        assert con.execute(predict.format("copy")).fetchall() == [(666.0,)]
        assert con.execute(predict.format("a")).fetchall()[0][0] == pytest.approx(1.0)
        con.execute("COMMIT") if within == "BEGIN" else con.execute("USE a; DETACH copy")
    assert con.execute(predict.format("a")).fetchall()[0][0] == pytest.approx(1.0)


def test_a_model_in_python_shows_what_is_stored_whatever_its_views_say(con: grouplearn.Connection) -> None:
    con.execute("CREATE TABLE kept AS FROM m")
    hostile = "(SELECT 'ran ' || max(content) FROM read_text('/etc/hostname'))"
    con.execute(f"CREATE OR REPLACE VIEW m AS SELECT * REPLACE ({hostile} AS error, 'failed' AS status) FROM kept")
    model = con.model("m")
    assert "ran " not in model._repr_html_()
    assert model.trials.aggregate("count(*), count(error)").fetchall() == [(3, 0)]
    assert [row[0] for row in model.weights.filter("g = 1").project("weight").fetchall()] != []


def test_trees_of_a_changed_copy_are_not_evaluated(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.execute(TRAIN.format("trees", "x").replace("linear_regression", "random_forest"))
    expected = con.execute("EVALUATE MODEL trees ON t").fetchall()
    con.execute("CHECKPOINT")
    shutil.copy(tmp_path / "a.duckdb", tmp_path / "copy.duckdb")
    with duckdb.connect(str(tmp_path / "copy.duckdb")) as other:
        other.execute(FEATURE.replace("UPDATE grouplearn.models", "UPDATE grouplearn.models"), ["-x"])
    con.execute(f'ATTACH \'{tmp_path}/copy.duckdb\' AS "A first"; USE "A first"')
    assert con.execute("EVALUATE MODEL a.main.trees ON a.main.t").fetchall() == expected
    con.execute('BEGIN; ALTER MODEL "A first".main.trees RENAME TO gone')
    assert con.execute("EVALUATE MODEL a.main.trees ON a.main.t").fetchall() == expected
    con.execute('DROP MODEL "A first".main.m')
    assert con.execute("SELECT count(predict_value('a.main.m', t)) FROM a.main.t AS t").fetchall() == [(300,)]
    con.execute("ROLLBACK")


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


@pytest.mark.parametrize("column", ["keys", "hyperparameters"])
def test_a_type_that_is_more_than_a_type_is_not_shown(con: grouplearn.Connection, column: str) -> None:
    con.execute(TRAIN.format("n", "x") + " OVER GRID (l2 IN (0.1))")
    con.native.execute(f"UPDATE grouplearn.models SET {column} = list_transform({column}, lambda each: struct_update(each,"
                       " type := 'BIGINT) + (SELECT size FROM read_text(''/etc/hostname'')) + CAST(0 AS BIGINT'))")  # fmt: skip
    model = con.model("n")
    for relation in ("trials", "curves", "weights", "schedule"):
        with pytest.raises(NotTrusted, match="is not a type"):
            getattr(model, relation)


def test_what_a_notebook_shows_is_the_model_that_the_query_reads(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.execute(f'ATTACH \'{tmp_path}/b.duckdb\' AS "A first"; CREATE TABLE "A first".t AS FROM t; USE "A first"')
    con.execute(TRAIN.format("m", "x * 2"))
    con.execute("CREATE SCHEMA s")
    con.execute(TRAIN.format("s.m", "x * 2"))
    con.execute("USE a")
    for query, catalog, schema in (
        ("SELECT * FROM m", "a", "main"),
        ('FROM "A first".m', "A first", "main"),
        ('FROM "A first" . s . "m" ORDER BY ALL', "A first", "s"),
    ):
        relation = con.native.sql(query)
        found = find_model(con.native, query, relation.columns)
        assert found is not None
        assert (found.location.catalog, found.location.schema) == (catalog, schema)
        assert "grouplearn-table" in (relation_html(relation) or "")


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


@pytest.mark.parametrize("undo", ["ROLLBACK", "rollback()", "error"])
@pytest.mark.parametrize("before", [False, True])
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
