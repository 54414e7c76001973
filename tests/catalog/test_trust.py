"""Models that somebody else made: what is remembered of them, and for how long."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
from pathlib import Path

import duckdb
import pytest
from strangers import FEATURE, TRAIN, refusal

import grouplearn
from grouplearn.catalog.checks import fragments
from grouplearn.catalog.lookup import attached
from grouplearn.errors import Error, NotTrusted
from grouplearn.frontends.notebook.model_table import find_model, relation_html
from grouplearn.frontends.python.dbapi import wrap
from grouplearn.statements.workflow import training


@pytest.fixture
def con(strange: grouplearn.Connection) -> grouplearn.Connection:
    return strange


PREDICT = "SELECT predict('{}', {{'g': 1, 'x': 2.0}}).value"


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
    by_identity = f"SELECT max(predict_value('{identity}', t)) FROM a.t AS t WHERE x = 0"
    for default, expected in (("a", 1.0), ("copy", 666.0)):
        con.execute(f"USE {default}")
        assert con.execute(by_identity).fetchall()[0][0] == pytest.approx(expected)
    con.execute("ATTACH ':memory:' AS another; USE another")
    with pytest.raises(duckdb.Error, match=r'model "m" is in several databases: a.m, copy.m'):
        con.execute(by_identity).fetchall()
    con.execute("USE a")
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
