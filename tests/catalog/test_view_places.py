"""Where DuckDB looks for what a view names: where the view is, also for functions that nobody has written."""

from pathlib import Path

import duckdb
import pytest
from helpers.thorough import THOROUGH
from strangers import FEATURE, refusal

import grouplearn

#: What is made in schema s with a macro that would be run, and the view that would run it.
HIDING = {
    "a word for a function": ("get_current_timestamp()", "SELECT current_timestamp AS z"),
    "another word": ("current_user()", "SELECT user AS z"),
    "what SUMMARIZE calls": ("avg(a)", "SELECT avg AS z FROM (SUMMARIZE main.t)"),
    "a row of a table": ("struct_pack(g, x, y)", "SELECT t AS z FROM main.t LIMIT 1"),
    "a macro of DuckDB's own": ("list_aggr(a, b)", "SELECT list_sum([1]) AS z"),
    "syntax of its body": ('"if"(a, b, c)', "SELECT split_part('a', 'b', 1) AS z"),
    "an operator of its body": ('"/"(a, b)', "SELECT weighted_avg(x, y) AS z FROM main.t"),
}


@pytest.fixture(params=["default", "attached"])
def place(request: pytest.FixtureRequest) -> str:
    return request.param


def told(con: grouplearn.Connection, place: str, made: str, feature: str) -> list[str]:
    """Return why EVALUATE and ``predict`` refuse a model of the database ``a``, which is the default one or only attached."""
    con.execute(made)
    con.native.execute(FEATURE, [feature])
    if place == "attached":
        con.execute("ATTACH ':memory:' AS mine; USE mine")
    with pytest.raises(duckdb.Error) as refused:
        con.execute("SELECT predict('a.main.m', t).value FROM a.main.t AS t").fetchall()
    return [refusal(con, "EVALUATE MODEL a.main.m ON a.main.t"), str(refused.value)]


@pytest.mark.parametrize(
    ("case", "place"),
    [
        (case, place)
        for number, case in enumerate(HIDING)
        for place in (("default", "attached") if THOROUGH else (("default", "attached")[number % 2],))
    ],
)
def test_no_macro_beside_a_view_hides_what_it_calls_unseen(
    strange: grouplearn.Connection, tmp_path: Path, place: str, case: str
) -> None:
    hiding, view = HIDING[case]
    (tmp_path / "secret").write_text("42")
    reads = f"(SELECT max(content) FROM read_text('{tmp_path}/secret'))"
    made = f"CREATE SCHEMA s; CREATE VIEW s.v AS {view}; CREATE MACRO s.{hiding} AS {reads}"
    name = hiding.partition("(")[0].strip('"')
    for reason in told(strange, place, made, "x + (SELECT count(z) FROM a.s.v)"):
        assert f"names v of a.s, where macro {name} hides DuckDB's own" in reason


DECOYS = {
    "a view of another schema": (
        "CREATE SCHEMA s; CREATE SCHEMA s2; CREATE TABLE s.{0}(v INTEGER); CREATE TABLE s2.{0}(v INTEGER); USE s2;"
        " CREATE VIEW w AS FROM {0}; USE s; CREATE VIEW vv AS FROM s2.w; USE main; DROP TABLE s2.{0}",
        "x + (SELECT max(v) FROM a.s.vv)",
    ),
    "a view of the main schema": (
        "CREATE SCHEMA s; CREATE TABLE main.{0}(v INTEGER); CREATE TABLE s.{0}(v INTEGER); USE s; CREATE VIEW w AS FROM {0};"
        " USE main; CREATE VIEW vv AS FROM s.w; DROP TABLE s.{0}; ATTACH ':memory:' AS b; USE b",
        "x + (SELECT max(v) FROM a.main.vv)",
    ),
}


@pytest.mark.parametrize("case", DECOYS)
def test_a_table_beside_an_outer_view_stands_for_no_file(
    strange: grouplearn.Connection, tmp_path: Path, place: str, case: str
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("v\n42\n")
    made, feature = DECOYS[case]
    strange.execute(made.format(f'"{secret}"'))
    strange.execute("USE a.main")
    if case == "a view of the main schema":
        place = "attached"  # as default database it has the table that DuckDB reads
    for reason in told(strange, place, "SELECT 1", feature):
        assert "which is no table or view of an attached database" in reason


def test_a_view_beside_other_macros_is_read(strange: grouplearn.Connection, place: str) -> None:
    strange.execute(
        "CREATE SCHEMA s; CREATE MACRO s.thrice(a) AS 3 * a; CREATE MACRO s.twice(a) AS 2 * a;"
        " CREATE VIEW s.v AS SELECT max(x) AS z FROM main.t; CREATE SCHEMA s2; CREATE VIEW s2.w AS FROM s.v"
    )
    strange.native.execute(FEATURE, ["x + (SELECT z FROM a.s2.w)"])
    if place == "attached":
        strange.execute("ATTACH ':memory:' AS mine; USE mine")
        strange.execute("CREATE SCHEMA s; CREATE TABLE t AS FROM a.main.t; CREATE VIEW s.v AS FROM a.s.v")
    assert len(strange.execute("EVALUATE MODEL a.main.m ON a.main.t").fetchall()) == 3


@pytest.mark.parametrize("by", ["a view", "USE"])
def test_a_database_before_a_name_is_looked_in_where_the_path_does(
    strange: grouplearn.Connection, tmp_path: Path, by: str
) -> None:
    """DuckDB looks for a.w in the schemas of a that the path has, that of a view among them, and in main if it has none."""
    (tmp_path / "secret").write_text("42")
    strange.execute(
        "CREATE SCHEMA s; CREATE TABLE w AS SELECT 5 AS v;"
        f" CREATE VIEW s.w AS SELECT size AS v FROM read_text('{tmp_path}/secret')"
    )
    strange.execute("CREATE MACRO direct() AS (SELECT max(v) FROM a.w); CREATE VIEW s.vv AS SELECT * FROM a.w")
    strange.native.execute(
        FEATURE, ["x + (SELECT max(v) FROM a.s.vv)" if by == "a view" else "x + (SELECT max(v) FROM a.w)"]
    )
    strange.execute("ATTACH ':memory:' AS mine; USE mine" if by == "a view" else "USE a.s")
    for statement in ("EVALUATE MODEL a.main.m ON a.main.t", "SELECT predict('a.main.m', t).value FROM a.main.t AS t"):
        with pytest.raises(duckdb.Error, match="names w, which calls read_text"):
            strange.execute(statement).fetchall()
    if by == "USE":
        strange.execute("USE a.main")
        assert len(strange.execute("EVALUATE MODEL a.main.m ON a.main.t").fetchall()) == 3


@pytest.mark.parametrize(("path", "name"), [("a.csvs", "a.csv"), ("a.main,b.a_schema", "a_schema.csv")])
def test_a_table_that_duckdb_does_not_look_at_stands_for_no_file(
    strange: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("v\n42\n")
    strange.execute("CREATE SCHEMA csvs; CREATE SCHEMA a_schema; CREATE TABLE a.main.csv(v INTEGER)")
    strange.execute("CREATE TABLE a.a_schema.csv(v INTEGER); ATTACH ':memory:' AS b; CREATE SCHEMA b.a_schema")
    strange.native.execute(FEATURE, [f"x + (SELECT max(v) FROM {name})"])
    strange.execute(f"SET search_path = '{path}'")
    reads = f'reads "{name}", which is no table or view of an attached database'
    assert reads in refusal(strange, "EVALUATE MODEL a.main.m ON a.main.t")


@pytest.mark.parametrize("of", ["view", "constraint"])
def test_texts_of_other_databases_are_not_read(strange: grouplearn.Connection, of: str) -> None:
    strange.native.execute(FEATURE, [f"x + length(pg_get_{of}def(1))"])
    assert f"calls pg_get_{of}def" in refusal(strange, "EVALUATE MODEL m ON t")


@pytest.mark.parametrize(
    "path", ["USE a", "SET search_path = 'a'", "SET search_path = 'a,main'", "SET search_path = 'main,a'"]
)
def test_an_entry_of_one_name_is_a_schema_where_a_database_has_that_name_too(
    strange: grouplearn.Connection, tmp_path: Path, path: str
) -> None:
    """DuckDB does not look in the database, whose table of that name is then no decoy for a file, or a macro, or a type."""
    (tmp_path / "x.csv").write_text("r\n77\n")
    file = f'"{tmp_path}/x.csv"'
    strange.native.execute(FEATURE, [f"x + (SELECT max(r) FROM {file})"])
    strange.native.execute(f"CREATE TABLE a.main.{file} AS SELECT 1 AS r")
    strange.execute("ATTACH ':memory:' AS own; CREATE SCHEMA own.a; USE own")
    strange.execute(path)
    with pytest.raises(duckdb.Error, match="which is no table or view of an attached database"):
        strange.execute("SELECT predict_value('a.main.m', t) FROM a.main.t AS t").fetchall()
    assert "which is no table or view" in refusal(strange, "EVALUATE MODEL a.main.m ON a.main.t")
    strange.execute("USE own; DROP SCHEMA own.a; USE a")
    assert strange.execute("EVALUATE MODEL a.main.m ON a.main.t").fetchall()
