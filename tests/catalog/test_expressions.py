"""What an expression of somebody else's model may be, and what it may call."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import duckdb
import pytest
from handmade import ITEMS, definition
from helpers.thorough import THOROUGH
from strangers import FEATURE, TRAIN, refusal

import grouplearn
from grouplearn.catalog.checks import fragments
from grouplearn.catalog.lookup import names
from grouplearn.catalog.records import HyperparameterColumn, ItemColumn, KeyColumn
from grouplearn.errors import Error, NotTrusted


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
    "st_reads('/etc/hostname')": "calls st_reads, and there is no function or macro of that name now",
    "system.main.nextval('s')": "calls nextval",
    "x.setseed()": "calls setseed",
    "length(json_serialize_plan('FROM read_csv(''a'')'))": "calls json_serialize_plan",
    "list_transform([x], lambda v: spatial(v))[1]": "calls spatial, and there is no function or macro of that name now",
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
    "length(repeat('[', 9)::JSON::deep::VARCHAR)": "has type deep, which has members that DuckDB does not tell",
    "length(CAST(NULL AS of_deep)::VARCHAR)": "has type of_deep, which has members that DuckDB does not tell",
    "length(cast_to_type('[]'::JSON, NULL::JSON)::VARCHAR)": "calls cast_to_type",
    "length(variant_bytes_to_variant(NULL)::VARCHAR)": "calls variant_bytes_to_variant",
    '"="(MAP {1: 1}, [[1]])::INT': "calls =",
    '"is not distinct from"(x, 1)::INT': "calls is not distinct from",
    "__between(x, 1, 2)::INT": "calls __between",
    "(CAST(NULL AS INTEGER[100000][100000][100000]) IS NULL)::INT": "has a type with an array of more numbers",
    "(CAST(NULL AS STRUCT(a INTEGER[1000])[1000]) IS NULL)::INT": "has a type with an array of more numbers",
    "(CAST(NULL AS STRUCT(a INTEGER[60000], b INTEGER[60000])) IS NULL)::INT": "has a type with an array of more numbers",
    "(SELECT max(length(v::VARCHAR)) FROM variants)": 'reads "variants", which has a column of type variant',
}


DEFINED = """
    CREATE MACRO harmless(a, b := 1) AS a + b; CREATE MACRO reader(f) AS (SELECT max(length(content)) FROM read_text(f));
    CREATE TYPE deep AS VARIANT; CREATE TYPE of_deep AS STRUCT(a VARIANT); CREATE TABLE variants(v VARIANT[]);
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
    for number, text in enumerate(SEVERAL):
        statements = ("EVALUATE MODEL m ON t", "ALTER MODEL m RENAME TO n")
        con.native.execute(FEATURE, [text])
        for statement in statements if THOROUGH else [statements[(number + trust) % 2]]:
            told = refusal(con, statement)
            assert told.startswith('feature "x" of model "m" is not one expression: '), text
            assert len(told) < 500


def test_what_reaches_outside_is_refused_until_trusted(con: grouplearn.Connection) -> None:
    con.native.execute(DEFINED)
    for number, (text, reason) in enumerate(OUTSIDE.items()):
        con.native.execute(FEATURE, [text])
        told = refusal(con, "EVALUATE MODEL m ON t")
        assert told.startswith(f'feature "x" of model "m" {reason}'), told
        assert told.endswith("that predict does not." if "of that name now" in told else "SET grouplearn_trust = true.")
        if number % 10 == 0:
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
    monkeypatch.setattr(names, "_MOST_NODES", 100)
    con.native.execute(FEATURE, ["x" + " + x" * 99])
    assert "is too long to be checked: with what it names it has more than 100 parts" in refusal(
        con, "EVALUATE MODEL m ON t"
    )


@pytest.mark.thorough
def test_long_sums_are_read_as_far_as_duckdb_reads_them(con: grouplearn.Connection) -> None:
    for text in ("+".join(["x"] * 900), "+".join(["x"] * 400) + "+ length('{[\\\"]}, :')"):
        con.native.execute(FEATURE, [text])
        assert len(con.execute("EVALUATE MODEL m ON t").fetchall()) == 3
    con.native.execute(FEATURE, ["+".join(["x"] * 800) + "+ length(getenv('HOME'))"])
    assert "calls getenv" in refusal(con, "EVALUATE MODEL m ON t")
    con.native.execute(FEATURE, ["+".join(["x"] * 1100)])
    told = refusal(con, "EVALUATE MODEL m ON t")
    assert 'feature "x" of model "m" is nested too deeply to be checked: more than 1000 levels' in told
    assert "harm" not in told


#: What ends the stack of DuckDB's parser, or takes it minutes; each with the bound that it is beyond.
TOO_MUCH = {
    "@ " * 200_000 + "1": "too long: more than 4,000 words",
    "(SELECT max(1) FROM t" + ", t" * 200_000 + ")": "too long: more than 4,000 words",
    "(SELECT max(1) FROM 'a'" + ", 'a'" * 100_000 + ")": "too long: more than 20,000 words, numbers and commas",
    "(SELECT 1 FROM "
    + "(SELECT * FROM " * 50_000
    + "t"
    + ")" * 50_000
    + ")": "nested too deeply: more than 100 levels",
    "(SELECT 1 FROM " + "(" * 20_000 + "t" + ")" * 20_000 + ")": "nested too deeply: more than 100 levels",
    "(" * 20_000 + "x" + ")" * 20_000: "nested too deeply: more than 100 levels",
    "x" + " AND x" * 700_000: "too long: more than 1,048,576 characters",
    "$$'$$" + "- " * 50_000 + "$$'$$": "too long: more than 4,000 words",
    "E'\\'' + " + "@ " * 50_000 + "E'\\''": "too long: more than 4,000 words",
    "-- '\n" + "@ " * 50_000 + "-- '\n1": "too long: more than 4,000 words",
    "')))' || $$" + "((" * 100 + "1" + "))" * 100 + "$$": "nested too deeply: more than 100 levels",
    'x"OR"x' * 5_000: "too long: more than 4,000 words",
    "(SELECT 1 FROM t" + "JOIN t ON'a'" * 5_000 + ")": "too long: more than 4,000 words",
    "x" + ".\u0661" * 5_000: "too long: more than 4,000 words",
    "1" + "OR 1" * 5_000: "too long: more than 4,000 words",
    '"a' + '""' * 5 + '" + ' + "@ " * 50_000 + "1": "too long: more than 4,000 words",
}


@pytest.mark.examples(3)
@pytest.mark.parametrize("text", TOO_MUCH, ids=range(len(TOO_MUCH)))
def test_what_is_too_much_for_a_parser_is_not_parsed(con: grouplearn.Connection, text: str) -> None:
    con.native.execute(FEATURE, [text])
    for trust, statement in ((False, "EVALUATE MODEL m ON t"), (True, "SELECT predict_value('m', t) FROM t")):
        con.execute(f"SET grouplearn_trust = {trust}")
        with pytest.raises(duckdb.Error, match=f"is {TOO_MUCH[text]}"):
            con.execute(statement).fetchall()
    con.native.execute("UPDATE grouplearn.models SET label_type = ?", [f"DECIMAL({text}, 2)"])
    with pytest.raises(duckdb.Error, match="the type of the label of model"):
        con.execute("EVALUATE MODEL m ON t").fetchall()


def test_expressions_that_are_too_much_together(con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "MOST_TOGETHER", 100)
    con.native.execute(FEATURE, ["x + " * 60 + "x"])
    assert 'the expressions of model "m" have more than 100 words' in refusal(con, "EVALUATE MODEL m ON t")
    monkeypatch.setattr("grouplearn.bind.sql.bounds.MOST_TOGETHER", 100)
    with pytest.raises(Error, match="the expressions have more than 100 words, numbers and commas together"):
        con.execute(TRAIN.format("o", ", ".join(f"x + {number} AS x{number}" for number in range(30))))


def test_long_lists_of_values_are_not_too_much(con: grouplearn.Connection) -> None:
    for values in (range(9_000), [f"it''s a city, and ( not a bracket {number}" for number in range(5_000)]):
        listed = ", ".join(f"'{value}'" for value in values)
        con.native.execute(FEATURE, [f"x + (x::VARCHAR IN ({listed}))::INT"])
        assert len(con.execute("EVALUATE MODEL m ON t").fetchall()) == 3


def test_what_no_other_session_would_read_is_told_before_training(con: grouplearn.Connection) -> None:
    for text, told in {
        "(" * 150 + "x" + ")" * 150: "the expression is nested too deeply: more than 100 levels",
        f"greatest({', '.join(['x'] * 4100)})": "the expression is too long: more than 4,000 words",
    }.items():
        with pytest.raises(Error, match=told) as refused:
            con.execute(TRAIN.format("n", text))
        assert "LINE 1" in str(refused.value)
    for text in ("+".join(["x"] * 400), "(" * 90 + "x" + ")" * 90):
        con.execute(TRAIN.format("n", text))
        assert len(con.execute("EVALUATE MODEL n ON t").fetchall()) == 3
        con.execute("DROP MODEL n")


def test_json_is_read_the_same_at_any_depth() -> None:
    text = '{"a": [1, -2.5e3, "x\\"{,:]", [], {}, {"b": null, "c": [true, {"": "\\u00e9"}]}], "d": "a", "e": {"f": {}}}'
    assert fragments._read_deep(text) == json.loads(text)


@pytest.mark.examples(3)
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


def test_texts_that_are_in_order_in_one_place_are_looked_at_in_another(con: grouplearn.Connection) -> None:
    """An expression may end in a comment, and a type may not: laid end to end, the texts of both models are the same."""
    items = [ItemColumn(ITEMS[0].item, text, "DOUBLE") for text in ("g", "x", "FLOAT8", "INT4 --")]
    honest = definition(target_sql="y", keys=(), items=tuple(items), hyperparameters=(), label_type="DOUBLE")
    key, l2 = KeyColumn("g", "g", "INT4 --"), HyperparameterColumn("l2", "DOUBLE")
    hostile = definition(
        target_sql="y", keys=(key,), items=tuple(items[1:2]), hyperparameters=(l2,), label_type="FLOAT8"
    )
    for each in (honest, honest):
        fragments.check(con.native, each)
    with pytest.raises(NotTrusted, match="the type of key"):
        fragments.check(con.native, hostile)
    fragments.trained_here(honest)
    with pytest.raises(NotTrusted, match="the type of key"):
        fragments.check(con.native, hostile)


@pytest.mark.parametrize("text", ["'south'", "hash(x)", "struct_pack(a := x)", "[x]", "DATE '2020-01-01'"])
def test_an_expression_that_gives_no_number_is_told(con: grouplearn.Connection, text: str) -> None:
    con.native.execute(FEATURE, [text])
    for function in ("predict", "predict_value"):
        with pytest.raises(duckdb.Error, match=r'"m" is damaged: .* is numeric, and its expression gives'):
            con.execute(f"SELECT {function}('m', t) FROM t").fetchall()


TYPED = {
    "keys": "[{{'name': 'g', 'sql': 'g', 'type': '{}'}}]",
    "items": "list_transform(items, lambda x: struct_update(x, type := '{}'))",
    "label_type": "'{}'",
    "hyperparameters": "[{{'name': 'l2', 'type': '{}'}}]",
}


#: Types that a model may not have, and why.
STRANGE = {
    "INET": "which is none of those that DuckDB itself or an attached database has",
    "STRUCT(a INET[])": "which is none of those that DuckDB itself or an attached database has",
    "VARIANT": "for which DuckDB may end the process",
    "MAP(INTEGER, VARIANT)": "for which DuckDB may end the process",
    "JSON": "which has members that DuckDB does not tell",
}


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("column", "kind"),
    [pair for number, pair in enumerate(product(TYPED, STRANGE)) if THOROUGH or number % 3 == 0 or pair[1] == "INET"],
)
def test_types_of_a_model_are_of_duckdb_alone(con: grouplearn.Connection, column: str, kind: str) -> None:
    """For others DuckDB installs extensions, and a value may be as deep as the process has no stack for."""
    reason = STRANGE[kind]
    con.native.execute("CREATE TYPE json AS STRUCT(deep VARIANT)")
    con.native.execute(f"UPDATE grouplearn.models SET {column} = {TYPED[column].format(kind)}")
    with pytest.raises(duckdb.Error, match=f"has type.*{reason}"):
        con.execute("SELECT predict_value('m', t) FROM t").fetchall()
    for statement in ("EVALUATE MODEL m ON t", "ALTER MODEL m RENAME TO n", "RETRY FAILED MODEL m"):
        assert reason in refusal(con, statement)
    model = con.model("m")
    for show in (lambda: model.trials, lambda: model.weights, lambda: model.schedule, model.report, model._repr_html_):
        with pytest.raises(NotTrusted, match=reason):
            show()
    assert con.execute("DESCRIBE MODEL m").fetchall()


@pytest.mark.parametrize(
    "kind", ["ENUM('a', 'it''s')", "JSON", "STRUCT(a INTEGER)[]", "TIMESTAMP_NS", "MAP(VARCHAR, TIME)"]
)
def test_types_of_duckdb_are_taken(con: grouplearn.Connection, kind: str) -> None:
    text = kind.replace("'", "''")
    con.native.execute(f"UPDATE grouplearn.models SET hyperparameters = [{{'name': 'other', 'type': '{text}'}}]")
    assert len(con.execute("SELECT predict_value('m', t) FROM t").fetchall()) > 0


def test_trust_lets_a_model_have_any_type(con: grouplearn.Connection) -> None:
    con.native.execute("UPDATE grouplearn.models SET hyperparameters = [{'name': 'l2', 'type': 'VARIANT'}]")
    con.execute("SET grouplearn_trust = true")
    for _ in range(2):
        assert len(con.execute("SELECT predict_value('m', t) FROM t").fetchall()) > 0
        assert len(con.model("m").trials.fetchall()) > 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "list_aggregate([x], 'st_union_agg')",
            "calls st_union_agg, which is none of the functions that DuckDB itself has",
        ),
        ("[x].array_aggr('stats')", "calls stats"),
        ("aggregate([x], chr(115) || 'um')", "calls a function whose name is made, and not written"),
    ],
)
def test_an_aggregate_that_a_text_names_is_looked_at(con: grouplearn.Connection, text: str, reason: str) -> None:
    con.native.execute(FEATURE, [text])
    assert reason in refusal(con, "EVALUATE MODEL m ON t")
    con.native.execute(FEATURE, ["list_aggregate([x], 'sum') + list_sum([x])"])
    assert con.execute("EVALUATE MODEL m ON t").fetchall()
