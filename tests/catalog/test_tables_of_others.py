"""Tables and macros of somebody else's file stand in nobody's place."""

from __future__ import annotations

import re
from pathlib import Path

import damaging
import duckdb
import pytest
from strangers import TABLE, TRAIN, refusal

import grouplearn
from grouplearn.catalog.checks.tables import VERSION
from grouplearn.errors import Error, NotTrusted


@pytest.fixture
def con(strange: grouplearn.Connection) -> grouplearn.Connection:
    return strange


def test_no_macro_of_a_file_runs_when_it_is_opened(tmp_path: Path) -> None:
    """Every function of DuckDB's has a macro in its place that would read a file and say what is in it."""
    secret = tmp_path / "secret"
    secret.write_text("this was read")
    database = str(tmp_path / "a.duckdb")
    with grouplearn.connect(database, progress=None) as con:
        con.execute(TABLE)
        con.execute(TRAIN.format("m", "x"))
    with duckdb.connect(database) as con:
        names = con.execute(
            "SELECT function_name, bool_or(function_type LIKE 'table%') FROM duckdb_functions() WHERE internal"
            " AND function_type <> 'pragma' GROUP BY 1"
        ).fetchall()
        for name, of_rows in names:
            if name in ("row", "struct_pack"):  # which DuckDB itself calls for the row in predict('m', t)
                continue
            quoted = name.replace('"', '""')
            reads = f"SELECT system.main.error(content) AS name FROM system.main.read_text('{secret}')"
            forms = ", ".join(f"({arguments}) AS ({reads})" for arguments in ("", "a", "a, b", "a, b, c"))
            forms = f"() AS TABLE {reads}" if of_rows else forms
            con.execute(f'CREATE MACRO main."{quoted}"{forms}')
    with grouplearn.connect(database, progress=None) as con:
        for statement in (
            "SHOW MODELS",
            "DESCRIBE MODEL m",
            "DROP MODEL m",
            TRAIN.format("n", "x"),
            "SHOW RUNS",
            "EVALUATE MODEL m ON t",
        ):
            assert "hides DuckDB's own" in refusal(con, statement)
        with pytest.raises(duckdb.Error) as refused:
            con.execute("SELECT predict('m', t) FROM t").fetchall()
        assert "hides DuckDB's own" in str(refused.value)
        with pytest.raises(NotTrusted, match="hides DuckDB's own"):
            con.model("m")


def test_macros_are_seen_whenever_they_are_made(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.execute(TRAIN.format("n", "x"))
    con.execute("CREATE MACRO median(a) AS 42")
    assert 'DROP MACRO "a"."main"."median"' in refusal(con, TRAIN.format("o", "x"))
    con.execute("DROP MACRO median")
    con.execute("CREATE TEMP MACRO median(a) AS 42")  # the user's own
    con.execute("CREATE SCHEMA apart; CREATE MACRO apart.sum(a) AS 42")  # nobody looks there
    con.execute("SHOW MODELS")
    con.execute("SET search_path = 'apart,main'")
    assert '"apart"."sum"' in refusal(con, TRAIN.format("o", "x"))
    con.execute("RESET search_path")
    with duckdb.connect(str(tmp_path / "b.duckdb")) as other:
        other.execute("CREATE MACRO duckdb_tables() AS TABLE SELECT 42 AS a")
    con.execute(f"ATTACH '{tmp_path}/b.duckdb' AS b")
    con.execute("SHOW MODELS")
    con.execute("USE b")
    assert 'DROP MACRO TABLE "b"."main"."duckdb_tables"' in refusal(con, "SHOW MODELS")


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        ("ALTER TABLE grouplearn.groups ADD COLUMN z INTEGER", 'groups has a column "z", which is not ours'),
        ("ALTER TABLE grouplearn.models ALTER COLUMN seed TYPE VARCHAR", 'models has a column "seed" of type VARCHAR'),
        ("ALTER TABLE grouplearn.models ALTER COLUMN seed SET DEFAULT random()", 'column "seed" with an expression'),
        ("CREATE INDEX i ON grouplearn.groups ((n_rows + 1))", "groups has an index that is not ours"),
        ("CREATE TABLE kept AS FROM grouplearn.models; DROP TABLE grouplearn.models; CREATE TABLE grouplearn.models AS FROM"
         " kept; CREATE INDEX i ON grouplearn.models ((seed + 1))", "models has an index that is not ours"),
        ("ALTER TABLE grouplearn.trials RENAME TO other; CREATE VIEW grouplearn.trials AS FROM grouplearn.other",
         "trials is no table"),
        ("ALTER TABLE grouplearn.curves RENAME TO other; CREATE TABLE grouplearn.curves(model UUID NOT NULL, group_id INTEGER"
         " NOT NULL, config INTEGER NOT NULL, epoch INTEGER NOT NULL, train_loss DOUBLE, valid_metric DOUBLE,"
         " CHECK (epoch < random()))", "curves has a constraint"),
        ("ALTER TABLE grouplearn.curves RENAME TO other; CREATE TABLE grouplearn.curves(model UUID NOT NULL, group_id INTEGER"
         " NOT NULL, config INTEGER NOT NULL, epoch INTEGER NOT NULL, train_loss DOUBLE GENERATED ALWAYS AS (random()),"
         " valid_metric DOUBLE)", 'column "train_loss" with an expression'),
        ("ALTER TABLE grouplearn.schema_version RENAME TO other; CREATE TABLE grouplearn.schema_version(a INTEGER,"
         " version INTEGER GENERATED ALWAYS AS (3))", "schema_version has a column"),
    ],
)  # fmt: skip
def test_tables_are_ours_or_are_not_read(con: grouplearn.Connection, change: str, flaw: str) -> None:
    con.native.execute(change)
    for statement in (
        "SHOW MODELS",
        "DESCRIBE MODEL m",
        "EVALUATE MODEL m ON t",
        "DROP MODEL m",
        TRAIN.format("n", "x"),
    ):
        assert flaw in refusal(con, statement)
    with pytest.raises(duckdb.Error, match="are not read"):
        con.execute("SELECT predict('m', t) FROM t").fetchall()


def test_triggers_are_seen_before_rows_are_written(con: grouplearn.Connection) -> None:
    con.native.execute(
        "CREATE TABLE log(i INTEGER);"
        "CREATE TRIGGER spy AFTER INSERT ON grouplearn.groups FOR EACH STATEMENT INSERT INTO log VALUES (1)"
    )
    for statement in (TRAIN.format("n", "x"), "DROP MODEL m", "ALTER MODEL m RENAME TO n"):
        assert 'groups has a trigger "spy"' in refusal(con, statement)
    assert con.execute("FROM log").fetchall() == []


def test_a_run_is_named_by_an_identity(con: grouplearn.Connection) -> None:
    from grouplearn.catalog import models
    from grouplearn.store import writer as store

    stored = models.load_definition(con.native, "a", "main", "m")
    assert stored is not None
    with pytest.raises(Error, match="identity"):
        store.write(con.native, stored.definition, None, replace=True, identity="x'::UUID; SELECT 1; --")  # type: ignore[arg-type]


def test_macros_of_a_database_that_models_go_into_hide_nothing(con: grouplearn.Connection, tmp_path: Path) -> None:
    """DuckDB binds views and macros where they are made, so that what is there comes before its own functions."""
    with duckdb.connect(str(tmp_path / "h.duckdb")) as other:
        other.execute('CREATE MACRO "+"(a, b) AS (SELECT a - b - 1000); CREATE SCHEMA s; CREATE MACRO s.sum(a) AS 42')
    con.execute(f"ATTACH '{tmp_path}/h.duckdb' AS h")
    con.execute(TRAIN.format("n", "x"))
    assert '"h"."main"."+"' in refusal(con, TRAIN.format("h.n", "x"))
    con.execute('DROP MACRO h."+"')
    assert '"h"."s"."sum"' in refusal(con, TRAIN.format("h.s.n", "x"))
    con.execute(TRAIN.format("h.n", "x"))
    con.execute("SET grouplearn_trust = true")
    con.execute(TRAIN.format("h.s.n", "x"))


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE kept AS FROM grouplearn.models; DROP TABLE grouplearn.models;"
        " CREATE VIEW grouplearn.models AS FROM kept",
        'DROP SCHEMA grouplearn CASCADE; CREATE SCHEMA "GROUPLEARN"; CREATE VIEW grouplearn."Models" AS SELECT 42 AS a',
        'DROP SCHEMA grouplearn CASCADE; CREATE SCHEMA "GROUPLEARN";'
        " CREATE TABLE grouplearn.\"MODELS\" (model UUID DEFAULT (error('ran')));"
        f" CREATE TABLE grouplearn.schema_version (version INTEGER); INSERT INTO grouplearn.schema_version VALUES ({VERSION})",
    ],
)
def test_what_is_no_table_of_ours_is_refused(con: grouplearn.Connection, made: str) -> None:
    con.execute(TRAIN.format("n", "x"))
    con.execute(made)
    for statement in ("SHOW MODELS", "DESCRIBE MODEL n", TRAIN.format("o", "x")):
        assert re.search("(?i)grouplearn.(models is a view|artifacts is no table)", refusal(con, statement))


def test_evaluate_checks_the_weights_that_it_reads(con: grouplearn.Connection) -> None:
    con.execute(TRAIN.format("n", "x"))
    con.execute("EVALUATE MODEL n ON t")
    con.execute("UPDATE grouplearn.artifacts SET weights = list_transform(weights, lambda w: w + 1)")
    with pytest.raises(duckdb.Error, match="do not match their SHA-256"):
        con.execute("EVALUATE MODEL n ON t")


def test_rows_with_a_type_of_an_extension_install_none(tmp_path: Path) -> None:
    theirs, extensions = tmp_path / "theirs.duckdb", tmp_path / "extensions"
    with duckdb.connect(str(theirs)) as con:
        con.execute("CREATE TABLE t AS SELECT '{}'::JSON AS a, i * 0.5 AS x, i::HUGEINT AS h FROM range(9) AS r(i)")
    assert damaging.patch(theirs, b"JSON", b"INET")
    with grouplearn.connect(progress=False) as con:
        for setting in ("extension_directory", "custom_extension_repository"):
            con.execute(f"SET {setting} = '{extensions}'")
        con.execute("CREATE TABLE t AS SELECT i * 0.5 AS x, i::HUGEINT AS h, i AS y FROM range(300) AS r(i)")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x, h + 1) FROM t").fetchall()
        con.execute(f"ATTACH '{theirs}' AS theirs")
        assert con.execute("SELECT DISTINCT typeof(a) FROM theirs.t").fetchall() == [("INET",)]
        predicted = con.execute("SELECT predict_value('m', t) FROM theirs.t ORDER BY x").fetchall()
    assert [round(value, 6) for (value,) in predicted] == [*range(9)]
    assert not extensions.exists()
