"""Models that somebody else made: their expressions are expressions, and macros of a file stand in nobody's place."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import duckdb
import pytest
from strangers import FEATURE, TABLE, TRAIN, refusal

import grouplearn
from grouplearn import training
from grouplearn.catalog import attached, calls, fragments
from grouplearn.errors import Error, NotTrusted
from grouplearn.frontends.dbapi import wrap


@pytest.fixture
def con(strange: grouplearn.Connection) -> grouplearn.Connection:
    return strange


SINGLE = [
    "x", '"x"', "x + 1", "sin(x) * 2", "[x][1]", "x -- ", "x /* y */", "CASE WHEN x > 1 THEN 2.0 ELSE x END",
    "(SELECT max(y) FROM t)",
    "(SELECT max(y) FROM main.t)", "(SELECT max(y) FROM a.main.t)", "(SELECT count(*) FROM range(3))", "TRY(x)",
    "(WITH q AS (SELECT 1 AS z) SELECT z FROM q)", "list_transform([x], lambda v: v + 1)[1]", "x + year(current_date)",
    "(WITH RECURSIVE q(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM q WHERE i < 3) SELECT max(i) FROM q)",
    "harmless(x, 2)", "(SELECT z FROM harmless_view)",
    "(SELECT n FROM decoys.of_decoy)", "length('a'::mood::VARCHAR)", "(['a']::decoys.elsewhere[] IS NULL)::INT + x",
    "(x::DECIMAL(9, 2) + x::UINTEGER::HUGEINT)::DOUBLE PRECISION", "epoch('2020-01-01'::TIMESTAMP WITH TIME ZONE)",
    "len(CAST(NULL AS MAP(INT, STRUCT(a TIMESTAMP_NS, b VARCHAR(3))[2]))::VARCHAR) + x",
    "(SELECT z FROM columns)", "date_part('year', current_timestamp)", "sum(x) OVER ()", "(VALUES (1))",
]  # fmt: skip
SEVERAL = [
    "", " ", "x, x", "x y", "1) AS z, (2", "1); SELECT (1", "1) + (2", "x FROM t", "x ORDER BY 1", "x WINDOW w AS ()", "ALL x",
    "DISTINCT x", "x)", "(x", "'x", "$$x", "x /*", "$1", "?", "*", "t.*", "COLUMNS(*)", "SELECT x", "x; ", "x\0",
    "x\0); SELECT (1",
    "x WHERE true", "x LIMIT 1", "x UNION SELECT 1", "(FROM (PIVOT t ON g))",
]  # fmt: skip
OUTSIDE = {
    "(SELECT max(length(content)) FROM read_text('/etc/hostname'))": "calls read_text",
    "(SELECT count(*) FROM 'data.csv')": 'reads "data.csv"',
    "(SELECT count(*) FROM data.csv)": 'reads "data.csv"',
    "(WITH q AS (DELETE FROM t RETURNING 1) SELECT 1)": "changes a table",
    '(WITH "data.csv" AS (SELECT 1) SELECT 1) + (SELECT count(*) FROM "data.csv")': 'reads "data.csv"',
    '(WITH "data.csv" AS (FROM "data.csv") SELECT count(*) FROM "data.csv")': 'reads "data.csv"',
    '(WITH RECURSIVE "data.csv" AS (FROM "data.csv" UNION ALL SELECT 1 WHERE false) SELECT count(*) FROM "data.csv")': (
        'reads "data.csv"'
    ),
    "(WITH RECURSIVE pg_settings AS (SELECT 1 AS i FROM pg_settings UNION ALL SELECT i FROM pg_settings) FROM pg_settings)": (
        'reads "pg_settings"'
    ),
    "decoys.read_decoy(x)": 'names read_decoy, which reads "decoy.csv"',
    "(SELECT count(*) FROM decoys.rows_of_decoy())": 'names rows_of_decoy, which reads "decoy.csv"',
    "(SELECT count(*) FROM sqlite_scan('a.db', 't'))": "calls sqlite_scan",
    "of_extension(x)": "calls of_extension",
    "length('1.2.3.4'::INET::VARCHAR)": "has type inet, which is none of those that DuckDB itself or an attached database has",
    "CAST(NULL AS STRUCT(a INET)).a IS NULL": "has type inet",
    "TRY_CAST(NULL AS decoys.inet[]) IS NULL": "has type inet",
    "CAST(NULL AS elsewhere) IS NULL": "has type elsewhere",
    "length(make_type('INET')::VARCHAR)": "calls make_type",
    "from_json('{}', '\"INET\"') IS NULL": "calls from_json",
    "json_transform('{}', '\"INET\"') IS NULL": "calls json_transform",
    "(SELECT count(*) FROM glob('*'))": "calls glob",
    "(SELECT count(*) FROM query('SELECT 1'))": "calls query",
    "(SELECT count(*) FROM query_table('t'))": "calls query_table",
    "(SELECT count(*) FROM duckdb_secrets())": "calls duckdb_secrets",
    "(SELECT count(*) FROM (SHOW TABLES))": "calls SHOW",
    "length(current_setting('home_directory'))": "calls current_setting",
    "length(getenv('HOME'))": "calls getenv",
    "length(current_query())": "calls current_query",
    "(SELECT count(*) FROM pg_catalog.pg_settings)": 'reads "pg_settings", a view of DuckDB\'s own',
    "(SELECT count(*) FROM sqlite_master)": 'reads "sqlite_master", a view of DuckDB\'s own',
    "(SELECT count(*) FROM duckdb_logs)": 'reads "duckdb_logs", a view of DuckDB\'s own',
    "(SELECT count(*) FROM information_schema.tables)": 'reads "tables", a view of DuckDB\'s own',
    "(SELECT count(*) FROM of_duckdb)": 'names of_duckdb, which reads "pragma_database_list"',
    "st_reads('/etc/hostname')": "calls st_reads, which is none of the functions that DuckDB itself has",
    "system.main.nextval('s')": "calls nextval",
    "x.setseed()": "calls setseed",
    "length(json_serialize_plan('FROM read_csv(''a'')'))": "calls json_serialize_plan",
    "list_transform([x], lambda v: spatial(v))[1]": "calls spatial, which is none of the functions that DuckDB itself has",
    "max(x) FILTER (getenv('HOME') = '') OVER ()": "calls getenv",
    "harmless(getenv('HOME'), 1)": "calls getenv",
    "reader('/etc/hostname')": "names reader, which calls read_text",
    "deeper(x)": "names deeper, which names reader, which calls read_text",
    "(SELECT count(*) FROM files)": "names files, which calls glob",
    "(SELECT count(*) FROM of_rows('a'))": "names of_rows, which calls read_csv",
    "(SELECT max(b) FROM generated)": "names generated, which calls current_setting",
    "harmless(x)": "calls harmless without all of its arguments",
    "length(repeat('[', 9)::JSON::VARIANT::VARCHAR)": "has type variant, for which DuckDB may end the process",
    "length(CAST(NULL AS STRUCT(a VARIANT[]))::VARCHAR)": "has type variant, for which DuckDB may end the process",
    "json_contains(repeat('[', 9), repeat('[', 9))::INT": "calls json_contains",
}
DEFINED = """
    CREATE MACRO harmless(a, b := 1) AS a + b; CREATE MACRO reader(f) AS (SELECT max(length(content)) FROM read_text(f));
    CREATE VIEW of_duckdb AS FROM pragma_database_list; CREATE TABLE columns AS SELECT 1 AS z;
    CREATE MACRO deeper(a) AS a + reader('/etc/hostname'); CREATE VIEW files AS FROM glob('/etc/*');
    CREATE VIEW harmless_view AS SELECT max(x) AS z FROM t; CREATE MACRO of_rows(f) AS TABLE FROM read_csv(f);
    CREATE SCHEMA decoys; CREATE TABLE decoys."decoy.csv"(v INTEGER); CREATE TYPE decoys.elsewhere AS ENUM ('a'); USE decoys;
    CREATE MACRO read_decoy(a) AS a + (SELECT max(v) FROM "decoy.csv"); CREATE MACRO rows_of_decoy() AS TABLE FROM "decoy.csv";
    CREATE VIEW of_decoy AS SELECT count(*) AS n FROM "decoy.csv"; USE a.main; CREATE TYPE mood AS ENUM ('a');
    CREATE MACRO sqlite_scan(a, b) AS 1; CREATE MACRO of_extension(a) AS TABLE SELECT 1 AS v;
    CREATE TABLE generated(a INTEGER, b INTEGER GENERATED ALWAYS AS (length(current_setting('threads')::VARCHAR)));
"""


def test_what_is_one_expression_and_stays_inside_is_evaluated(con: grouplearn.Connection) -> None:
    con.native.execute(DEFINED)
    for text in SINGLE:
        con.native.execute(FEATURE, [text])
        assert len(con.execute("EVALUATE MODEL m ON t").fetchall()) == 3, text


@pytest.mark.parametrize("trust", [False, True])
def test_what_is_not_one_expression_is_refused(con: grouplearn.Connection, trust: bool) -> None:
    con.execute(f"SET grouplearn_trust = {trust}")
    for text in SEVERAL:
        con.native.execute(FEATURE, [text])
        for statement in ("EVALUATE MODEL m ON t", "ALTER MODEL m RENAME TO n"):
            told = refusal(con, statement)
            assert told.startswith('feature "x" of model "m" is not one expression: '), text
            assert len(told) < 500


def test_what_reaches_outside_is_refused_until_trusted(con: grouplearn.Connection) -> None:
    con.native.execute(DEFINED)
    for text, reason in OUTSIDE.items():
        con.native.execute(FEATURE, [text])
        told = refusal(con, "EVALUATE MODEL m ON t")
        assert told.startswith(f'feature "x" of model "m" {reason}'), told
        assert told.endswith("SET grouplearn_trust = true.")
        con.execute("DESCRIBE MODEL m")
    con.native.execute(FEATURE, ["reader('/etc/hostname')"])
    con.execute("SET grouplearn_trust = true")
    assert len(con.execute("EVALUATE MODEL m ON t").fetchall()) == 3
    con.execute("RESET grouplearn_trust")
    refusal(con, "EVALUATE MODEL m ON t")


def test_a_function_of_the_users_is_not_a_macro_of_the_file(con: grouplearn.Connection) -> None:
    called: list[float] = []
    con.execute("SHOW MODELS").fetchall()

    def danger(a: float) -> float:
        called.append(a)
        return a

    con.create_function("danger", danger)
    con.native.execute("CREATE MACRO danger(a) AS TABLE SELECT 1 AS v")
    con.native.execute(FEATURE, ["danger(x)"])
    refusal(con, "EVALUATE MODEL m ON t")
    assert not called


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


def test_a_name_off_the_path_stands_for_nothing(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.native.execute(
        f"ATTACH '{tmp_path}/b.duckdb' AS b; CREATE TABLE b.main.\"data.csv\" AS SELECT 1 AS i; CREATE SCHEMA b.data;"
        "CREATE TABLE b.data.csv AS SELECT 1 AS i; CREATE MACRO b.main.getenv(a) AS 'x'"
    )
    for text in ("(SELECT count(*) FROM 'data.csv')", "(SELECT count(*) FROM data.csv)", "length(getenv('HOME'))"):
        con.native.execute(FEATURE, [text])
        refusal(con, "EVALUATE MODEL m ON t")
    con.native.execute(FEATURE, ["(SELECT count(*) FROM b.data.csv)"])
    assert len(con.execute("EVALUATE MODEL m ON t").fetchall()) == 3


def test_a_macro_that_is_not_on_the_path_is_found_by_use(con: grouplearn.Connection) -> None:
    con.native.execute("CREATE MACRO mine(a) AS a + 1; ATTACH ':memory:' AS other; USE other")
    con.native.execute(FEATURE.replace("grouplearn.models", "a.grouplearn.models"), ["mine(x)"])
    told = refusal(con, "EVALUATE MODEL a.main.m ON a.main.t")
    assert told.startswith('feature "x" of model "m" calls mine, a macro of a.main, where names are not looked for now')
    assert "\n\nHint: USE the database that the model is in: " in told
    con.execute("USE a")
    assert len(con.execute("EVALUATE MODEL m ON t").fetchall()) == 3


@pytest.mark.parametrize(
    "text", ["DOUBLE) || CAST(1 AS INTEGER", "INTEGER --", "", "1", "DOUBLE)::INTEGER", "INTEGER), (1", "x\0"]
)
def test_types_are_types(con: grouplearn.Connection, text: str) -> None:
    con.native.execute("UPDATE grouplearn.models SET keys = [{'name': 'g', 'sql': 'g', 'type': ?}]", [text])
    for statement in ("EVALUATE MODEL m ON t", "ALTER MODEL m RENAME TO n"):
        assert 'the type of key "g" of model "m" is not a type' in refusal(con, statement)
    with pytest.raises(NotTrusted, match="is not a type"):
        con.model("m").report()


def test_predict_looks_before_it_evaluates(con: grouplearn.Connection) -> None:
    con.native.execute(FEATURE, ["1); SELECT (1"])
    with pytest.raises(duckdb.Error, match="is not one expression"):
        con.execute("SELECT predict('m', t) FROM t").fetchall()


def test_predict_asks_for_trust_again_when_it_is_taken_back(con: grouplearn.Connection) -> None:
    con.native.execute(FEATURE, ["(SELECT max(length(content)) FROM read_text('/etc/hostname'))"])
    for trust in (None, True, False, True, False):
        con.execute("RESET grouplearn_trust" if trust is None else f"SET grouplearn_trust = {trust}")
        if trust:
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
    from grouplearn.catalog import models, store

    stored = models.load_definition(con.native, "a", "main", "m")
    assert stored is not None
    with pytest.raises(Error, match="identity"):
        store.write(con.native, stored.definition, None, replace=True, identity="x'::UUID; SELECT 1; --")  # type: ignore[arg-type]


def test_memory_of_what_was_trained_is_bounded_and_of_all_texts(con: grouplearn.Connection) -> None:
    memory = fragments._Memory(2)
    for number in range(3):
        memory.add("", bytes([number]))
    assert [memory.has("", bytes([number])) for number in range(3)] == [False, True, True]
    con.execute(TRAIN.format("n", "x"))
    hostile = "x + length(getenv('HOME'))"
    con.native.execute(FEATURE + " WHERE model_name = 'n'", [hostile])  # an identity that this process knows
    assert "calls getenv" in refusal(con, "EVALUATE MODEL n ON t")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ("", '(WITH "\u017fecret.csv" AS (SELECT 1 AS v) SELECT max(v) FROM "secret.csv")'),
        ('CREATE TABLE "\u017fecret.csv"(v INTEGER)', '(SELECT max(v) FROM "secret.csv")'),
        ("CREATE VIEW vs AS FROM 'secret.csv'; CREATE VIEW v\u017f AS SELECT 1 AS v", "(SELECT max(v) FROM vs)"),
        ("CREATE VIEW v\u017f AS SELECT 1 AS v; CREATE VIEW vs AS FROM 'secret.csv'", "(SELECT max(v) FROM vs)"),
    ],
)
def test_names_are_the_same_where_duckdb_takes_them_for_the_same(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.csv").write_text("v\n4242\n")
    con.native.execute(made)
    con.native.execute(FEATURE, [text])
    assert "secret.csv" in refusal(con, "EVALUATE MODEL m ON t")


def test_a_database_whose_name_is_only_alike_is_another(con: grouplearn.Connection) -> None:
    con.native.execute(
        "ATTACH ':memory:' AS s; CREATE SCHEMA s.grouplearn; CREATE VIEW s.grouplearn.models AS SELECT 1 AS a;"
        "CREATE TABLE s.grouplearn.groups(a INTEGER)"
    )
    con.native.execute("ATTACH ':memory:' AS \u017f; CREATE TABLE \u017f.t AS FROM t")
    con.execute("USE \u017f")
    con.execute(TRAIN.format("m", "x"))
    assert con.execute("EVALUATE MODEL \u017f.main.m ON t").fetchall()
    with pytest.raises(Error, match=r'model "m"|in database "s" are not read'):
        con.execute("EVALUATE MODEL s.main.m ON t")


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


def test_what_names_the_same_often_is_gone_through_once(con: grouplearn.Connection) -> None:
    con.native.execute("CREATE MACRO c0(a) AS a + 1; CREATE MACRO d0(a) AS a + 1")
    for number in range(1, 31):
        con.native.execute(f"CREATE MACRO c{number}(c{number - 1}) AS c{number - 1} + c{number - 1}")
        con.native.execute(f"CREATE MACRO d{number}(a) AS d{number - 1}(a) + d{number - 1}(a)")
    con.native.execute(FEATURE, ["c30(x)"])
    assert len(con.execute("EVALUATE MODEL m ON t").fetchall()) == 3
    con.native.execute(FEATURE, ["d30(x) + length(getenv('HOME'))"])  # DuckDB itself would go through it 2 ** 30 times
    assert "calls getenv" in refusal(con, "EVALUATE MODEL m ON t")


def test_what_is_too_long_is_refused(con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_MOST_NODES", 100)
    con.native.execute(FEATURE, ["x" + " + x" * 99])
    assert "is too long to be checked: with what it names it has more than 100 parts" in refusal(
        con, "EVALUATE MODEL m ON t"
    )


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


def test_long_sums_are_read_as_far_as_duckdb_reads_them(con: grouplearn.Connection) -> None:
    for text in ("+".join(["x"] * 400), "+".join(["x"] * 900), "+".join(["x"] * 800) + "+ length('{[\\\"]}, :')"):
        con.native.execute(FEATURE, [text])
        assert len(con.execute("EVALUATE MODEL m ON t").fetchall()) == 3
    con.native.execute(FEATURE, ["+".join(["x"] * 800) + "+ length(getenv('HOME'))"])
    assert "calls getenv" in refusal(con, "EVALUATE MODEL m ON t")
    for text in ("+".join(["x"] * 1100), "(" * 20_000 + "x" + ")" * 20_000):
        con.native.execute(FEATURE, [text])
        told = refusal(con, "EVALUATE MODEL m ON t")
        assert 'feature "x" of model "m" is nested too deeply to be checked: more than 1000 levels' in told
        assert "harm" not in told


def test_json_is_read_the_same_at_any_depth() -> None:
    text = '{"a": [1, -2.5e3, "x\\"{,:]", [], {}, {"b": null, "c": [true, {"": "\\u00e9"}]}], "d": "a", "e": {"f": {}}}'
    assert fragments._read_deep(text) == json.loads(text)


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
        " CREATE TABLE grouplearn.schema_version (version INTEGER); INSERT INTO grouplearn.schema_version VALUES (3)",
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


@pytest.mark.parametrize("schema", ["apart", "sales.eu", "ev,il", 'ev"il', " x", '"q"', 'x"."y', "Ä B"])
def test_names_are_looked_for_in_the_current_schema_whatever_its_name(
    con: grouplearn.Connection, elsewhere, schema: str
) -> None:
    quoted = '"' + schema.replace('"', '""') + '"'
    con.execute(
        TRAIN.format("n", "x * (SELECT max(a) FROM rates) AS f").replace(
            "TRAIN", "CREATE TABLE rates AS SELECT 1 AS a; TRAIN"
        )
    )
    con.execute(f"CREATE SCHEMA {quoted}")
    con.execute(f"CREATE VIEW {quoted}.rates AS SELECT 42 AS a FROM read_text('/none')")
    elsewhere()
    con.execute(f"USE a.{quoted}")
    for statement in ("EVALUATE MODEL main.n ON main.t", "SELECT predict_value('main.n', t) FROM main.t AS t"):
        with pytest.raises(duckdb.Error, match="which calls read_text"):
            con.execute(statement).fetchall()
    con.execute(f"CREATE MACRO {quoted}.current_database() AS error('ran')")
    for statement in ("SHOW RUNS", "SHOW MODELS", "DESCRIBE MODEL main.n"):
        assert "hides DuckDB's own" in refusal(con, statement)


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
