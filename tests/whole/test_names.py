"""Names of models and tables mean the same thing wherever and whenever they are looked up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import grouplearn
from grouplearn.errors import BindError, DataError
from grouplearn.train.results.ledger import Ledger

#: The label of one group of two is missing at first.
ROWS = "SELECT i % 2 AS g, i AS x, CASE WHEN i <> 1 THEN {} * i END AS y FROM range(40) AS r(i)"
TRAIN = "TRAIN MODEL {} USING linear_regression PREDICT y FEATURES ({}) FROM {} GROUP BY g ON NULL LABEL ERROR"


@contextmanager
def databases() -> Iterator[grouplearn.Connection]:
    """Three databases: two have a table t, and the third is for models."""
    with grouplearn.connect(progress=False) as connection:
        for database in ("shop", "other", "p"):
            connection.execute(f"ATTACH ':memory:' AS {database}")
        for database, slope in (("shop", 2), ("other", 100)):
            connection.execute(f"CREATE TABLE {database}.t AS {ROWS.format(slope)}")
        yield connection


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with databases() as connection:
        yield connection


def rows(con: grouplearn.Connection, statement: str) -> list[Any]:
    return con.execute(statement).fetchall()


def status(con: grouplearn.Connection, model: str) -> list[Any]:
    return rows(con, f"SELECT g, status FROM {model} ORDER BY g")


FAILED, DONE = [(0, "done"), (1, "failed")], [(0, "done"), (1, "done")]

# --- RETRY ----------------------------------------------------------------------------------------------------------


def test_retry_reads_the_table_that_was_trained_on_or_says_where_it_is(con: grouplearn.Connection) -> None:
    con.execute("USE shop")
    con.execute(TRAIN.format("p.m", "x", "t"))
    con.execute("USE other")
    with pytest.raises(BindError) as error:
        con.execute("RETRY FAILED MODEL p.m")
    assert str(error.value) == (
        '"t" is not what it was when model "m" was trained\n'
        "Names were looked for in shop.main, and now in other.main\n\n"
        "LINE 1: RETRY FAILED MODEL p.m\n"
        "                           ^^^\n\n"
        "Hint: USE shop looks for them there again."
    )
    con.execute("USE shop")
    con.execute("UPDATE shop.t SET y = 2 WHERE y IS NULL")
    con.execute("RETRY FAILED MODEL p.m")
    assert status(con, "p.m") == DONE
    slopes = rows(con, "SELECT round(weight, 6) FROM p.m_weights WHERE feature = 'x'")
    assert slopes == [(2.0,), (2.0,)]


def test_retry_where_all_names_mean_the_same(con: grouplearn.Connection) -> None:
    """Names with their database do, and those that are nowhere on either path but in temp."""
    con.execute("USE shop")
    con.execute(f"CREATE TEMP TABLE mine AS {ROWS.format(3)}")
    con.execute("CREATE TEMP MACRO half(v) AS v / 2")
    source = "(WITH t AS (FROM mine) SELECT t.* FROM t JOIN (FROM shop.main.t) AS o USING (x) WHERE upper('a') = 'A')"
    con.execute(TRAIN.format("p.m", "half(x)", source))
    con.execute("USE other")
    con.execute("UPDATE mine SET y = 2 WHERE y IS NULL")
    con.execute("RETRY FAILED MODEL p.m")
    assert status(con, "p.m") == DONE


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("made", "features", "source", "name"),
    [
        ("CREATE MACRO {}.odd(v) AS v % 7", "x, odd(x)", "shop.t", "odd"),
        ("CREATE VIEW {0}.v AS FROM {0}.t", "x", "v", "v"),
        ("CREATE MACRO {0}.these() AS TABLE FROM {0}.t", "x", "these()", "these"),
        ("CREATE TABLE {0}.rates AS SELECT 1 AS r", "x, (SELECT max(r) FROM rates) + x", "shop.t", "rates"),
        ("CREATE SCHEMA {0}.s; CREATE TABLE {0}.s.t AS FROM {0}.t", "x", "s.t", "s.t"),
        ("CREATE TYPE {0}.size AS ENUM ('1', '2')", "x, onehot(CAST(1 AS VARCHAR)::size)", "shop.t", "size"),
        # what a macro of a third database reads is looked for where the macro is called
        ("USE {0}; CREATE OR REPLACE TEMP MACRO all_rows() AS TABLE FROM t", "x", "all_rows()", "t"),
        ("SELECT '{}'", "x", "query_table('t')", "query_table"),
    ],
)
def test_what_means_something_else_is_named(
    con: grouplearn.Connection, made: str, features: str, source: str, name: str
) -> None:
    for database in ("shop", "other"):
        for statement in made.format(database).split("; "):
            con.execute(statement)
    con.execute("USE shop")
    con.execute(TRAIN.format("p.m", features, source))
    con.execute("USE other")
    with pytest.raises(BindError, match=f'^"{name}" is not what it was when model "m" was trained'):
        con.execute("RETRY FAILED MODEL p.m")
    assert status(con, "p.m") == FAILED
    con.execute("USE shop")
    con.execute("UPDATE shop.t SET y = 2 WHERE y IS NULL")
    if "s.t" in made:
        con.execute("UPDATE shop.s.t SET y = 2 WHERE y IS NULL")
    con.execute("RETRY FAILED MODEL p.m")
    assert status(con, "p.m") == DONE


def test_several_schemas_are_looked_in_in_order(con: grouplearn.Connection) -> None:
    con.execute('CREATE SCHEMA shop."a.b"')
    con.execute("SET search_path = 'shop.\"a.b\",other'")
    con.execute(TRAIN.format("p.m", "x", "t"))
    found = rows(con, "SELECT search_path FROM p.grouplearn.models")
    assert found == [([{"database": "shop", "schema": "a.b"}, {"database": "other", "schema": "main"}],)]
    con.execute("UPDATE other.t SET y = 100 WHERE y IS NULL")
    con.execute("USE shop")
    with pytest.raises(BindError, match=r"and now in shop.main") as error:
        con.execute("RETRY FAILED MODEL p.m")
    assert error.value.hint == "SET search_path = 'shop.\"a.b\",other.main' looks for them there again."
    con.execute(error.value.hint.removesuffix(" looks for them there again."))
    con.execute("RETRY FAILED MODEL p.m")
    assert status(con, "p.m") == DONE


def test_the_models_own_database_is_found_under_every_name(tmp_path: Path) -> None:
    file, copy = tmp_path / "first.duckdb", tmp_path / "export"
    with grouplearn.connect(file, progress=False) as con:
        con.execute(f"CREATE TABLE t AS {ROWS.format(2)}")
        con.execute(TRAIN.format("m", "x", "t"))
        con.execute(f"EXPORT MODEL m TO '{copy}'")
        assert rows(con, "SELECT search_path FROM grouplearn.models") == [([{"database": None, "schema": "main"}],)]
    with grouplearn.connect(progress=False) as con:
        con.execute(f"ATTACH '{file}' AS elsewhere")
        con.execute(f"CREATE TABLE t AS {ROWS.format(100)}")
        with pytest.raises(BindError, match=r"Names were looked for in elsewhere.main, and now in memory.main"):
            con.execute("RETRY FAILED MODEL elsewhere.m")
        con.execute("UPDATE elsewhere.t SET y = 2 WHERE y IS NULL; USE elsewhere; RETRY FAILED MODEL m")
        assert status(con, "m") == DONE
        con.execute(f"USE memory; IMPORT MODEL m FROM '{copy}'")
        con.execute("UPDATE t SET y = 100 WHERE y IS NULL; RETRY FAILED MODEL m")
        assert status(con, "m") == DONE


def test_a_database_that_is_gone_is_asked_for(con: grouplearn.Connection) -> None:
    con.execute("USE shop")
    con.execute(TRAIN.format("p.m", "x", "t"))
    con.execute("USE other; DETACH shop")
    with pytest.raises(BindError) as error:
        con.execute("RETRY FAILED MODEL p.m")
    assert error.value.hint == "ATTACH database shop under that name. USE shop looks for them there again."


def test_a_resumed_run_keeps_where_its_train_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(self: Ledger, result: Any) -> None:
        raise KeyboardInterrupt

    with grouplearn.connect(tmp_path / "d.duckdb", progress=False) as con:
        con.execute(f"ATTACH ':memory:' AS shop; USE shop; CREATE TABLE t AS {ROWS.format(2)}")
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "add", dies)
            with pytest.raises(grouplearn.Error):
                con.execute(TRAIN.format("d.m", "x", "t") + " WITH (durable = true)")
        con.execute("USE d; RESUME MODEL m")
        assert rows(con, "SELECT search_path FROM grouplearn.models") == [([{"database": "shop", "schema": "main"}],)]


@pytest.mark.examples(4)
@pytest.mark.parametrize(
    "path",
    [
        "[]",
        "[NULL]",
        "[{'database': 'shop', 'schema': NULL}]",
        "[{'database': '', 'schema': 'main'}]",
        "[{'database': 'shop', 'schema': ''}]",
        "[{'database': 'shop', 'schema': repeat('a', 20_000)}]",
        "[{'database': 'shop', 'schema': chr(0)}]",
        "list_resize([{'database': 'shop', 'schema': 'main'}], 100_000, {'database': 'shop', 'schema': 'main'})",
    ],
)
def test_a_path_that_is_none_is_damage(con: grouplearn.Connection, path: str) -> None:
    con.execute("USE shop")
    con.execute(TRAIN.format("p.m", "x", "t"))
    con.execute(f"UPDATE p.grouplearn.models SET search_path = {path}")
    with pytest.raises(DataError, match=r"is damaged: in table p.grouplearn.models, search_path (has|is longer)"):
        con.execute("RETRY FAILED MODEL p.m")


def test_a_hostile_path_is_looked_at_and_never_run(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can have RETRY refused, and no more: not let in what another path would not, nor change where names are found."""
    con.execute("USE shop")
    con.execute(TRAIN.format("p.m", "x", "t"))
    monkeypatch.chdir(tmp_path)
    name = "x\"; COPY (SELECT 1) TO 'canary'; --"
    for database, schema in ((name, "main"), ("p", name), ("p", "x'; DROP TABLE shop.t; --")):
        con.execute("UPDATE p.grouplearn.models SET search_path = [{'database': ?, 'schema': ?}]", [database, schema])
        with pytest.raises(BindError, match=r'^"t" is not what it was') as error:
            con.execute("RETRY FAILED MODEL p.m")
        hint = error.value.hint or ""
        assert '"' + (name if name in (database, schema) else schema).replace('"', '""') + '"' in hint
    assert not (tmp_path / "canary").exists()
    assert rows(con, "SELECT current_setting('search_path')") == [("shop.main",)]


# --- m_predict ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", ["linear_regression", "gbdt"])
def test_the_macro_of_a_model_elsewhere_works_wherever_its_file_is(tmp_path: Path, learner: str) -> None:
    """It was trained into database p from another default one; DuckDB alone reads the file later, under other names."""
    file = tmp_path / "file.duckdb"
    with grouplearn.connect(progress=False) as con:
        con.execute(f"ATTACH '{file}' AS \"my p\"; CREATE TABLE t AS SELECT range AS x, 2 * range AS y FROM range(60)")
        con.execute(f'TRAIN MODEL "my p".m USING {learner} PREDICT y FEATURES (x) FROM t')
        expected = rows(con, 'FROM "my p".m_predict(t)')
        con.execute("TRAIN MODEL near USING linear_regression PREDICT y FEATURES (x) FROM t")
        assert rows(con, 'FROM "my p".m_predict(t)') == expected, "the default database has models of its own"
    with grouplearn.connect(file, progress=False) as con:  # which has our function, that predicts where SQL cannot
        con.execute("CREATE TABLE t AS SELECT range AS x, 2 * range AS y FROM range(60)")
        assert rows(con, "FROM m_predict(t)") == expected
    with duckdb.connect() as plain:
        plain.execute(f"ATTACH '{file}' AS other; ATTACH ':memory:' AS \"my p\"")
        with pytest.raises(duckdb.Error, match='does not exist because schema "grouplearn" does not exist'):
            plain.execute("FROM other.m_predict('other.t')")
        assert plain.execute("FROM other.m_predict('other.t', database := 'other')").fetchall() == expected
        plain.execute("USE other")
        assert plain.execute("FROM m_predict(t)").fetchall() == expected


# --- models ---------------------------------------------------------------------------------------------------------

#: Where each model is, and its slope.
PLACES = {"memory.main": 1, "shop.main": 2, "shop.s": 3, "p.main": 4}


@pytest.fixture(scope="module")
def everywhere() -> Iterator[grouplearn.Connection]:
    """Everywhere there is a model m, and in each place one that is nowhere else; for tests that change none of them."""
    with databases() as con:
        con.execute("CREATE SCHEMA shop.s; CREATE SCHEMA shop.empty; CREATE SCHEMA other.s")
        for place, slope in PLACES.items():
            for name in ("m", f"of_{slope}"):
                con.execute(
                    f"TRAIN MODEL {place}.{name} USING linear_regression PREDICT y FEATURES (x) FROM"
                    f" (SELECT x, x * {slope} AS y FROM shop.t)"
                )
        yield con


@pytest.fixture
def named(everywhere: grouplearn.Connection) -> Iterator[grouplearn.Connection]:
    models = "SELECT database, schema, model FROM (SHOW MODELS) ORDER BY ALL"
    before = rows(everywhere, models)
    yield everywhere
    everywhere.execute("RESET search_path")
    assert rows(everywhere, models) == before


def slope_of(con: grouplearn.Connection, model: str, slope: int | None) -> int | None:
    """Return the slope of the model that a name means for every statement and function; None where there is none.

    Of a macro, its tables are where the model of the ``slope`` is.
    """
    found = []
    where = {slope: place.split(".")[0] for place, slope in PLACES.items()}.get(slope or 0)
    for query in (
        f"SELECT DISTINCT round(predict_value('{model}', t)) FROM shop.main.t AS t WHERE x = 1",
        f"SELECT regexp_extract(value, 'x \\* (\\d)', 1) FROM (DESCRIBE MODEL {model}) WHERE property = 'statement'",
        f"SELECT weight FROM {model}_weights WHERE feature = 'x'",
        f"SELECT rmse FROM (EVALUATE MODEL {model} ON (SELECT x, x * {{}} AS y FROM shop.main.t))",
        f"SELECT round(prediction) FROM {model}_predict('shop.main.t', database := '{where}') WHERE x = 1",
    ):
        try:
            if "EVALUATE" in query:
                fits = rows(con, query.format(slope or 1))[0][0] < 1e-6  # with any other slope it is 1 and more
                found.append((slope or 1) if fits else 0)
            else:
                found.append(round(float(rows(con, query)[0][0])))
        except (grouplearn.Error, duckdb.Error) as error:
            if not any(told in str(error) for told in ("does not exist", "unknown model", "there is no schema")):
                raise
            found.append(None)
    assert len(set(found)) == 1, found
    return found[0]


@pytest.mark.examples(4)
@pytest.mark.parametrize(
    ("path", "model", "slope"),
    [
        ("memory", "m", 1),
        ("memory", "shop.m", 2),
        ("memory", "shop.s.m", 3),
        ("memory", "of_2", None),
        ("memory", "p.of_4", 4),
        ("memory", "shop.of_3", None),
        ("memory", "s.of_3", None),
        ("shop", "m", 2),
        ("shop", "s.m", 3),
        ("shop.s", "m", 3),
        ("shop.s", "of_2", 2),
        ("shop.empty", "m", 2),
        ("other", "m", None),
        ("shop.empty,p", "m", 4),
        ("shop.empty,p", "of_2", 2),
        ("p,shop.s", "of_3", 3),
        ("shop,p", "of_4", 4),
        ("p,shop", "s.m", None),
        ("p,shop.s", "s.m", 3),
    ],
)
def test_a_model_is_found_as_its_view_is(
    named: grouplearn.Connection, path: str, model: str, slope: int | None
) -> None:
    named.execute(f"SET search_path = '{path}'")
    assert slope_of(named, model, slope) == slope


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("path", "model", "meant"),
    [
        ("memory", "of_2", "shop.of_2"),
        ("shop", "of_3", "s.of_3"),
        ("memory", "of_3", "shop.s.of_3"),
        ("p", "of_44", "of_4"),
        ("shop.s", "OF_4", "p.of_4"),
        ("other", "m", "memory.m"),
    ],
)
def test_a_model_that_may_be_meant_is_named_so_that_it_is_found(
    named: grouplearn.Connection, path: str, model: str, meant: str
) -> None:
    named.execute(f"SET search_path = '{path}'")
    for statement in ("DESCRIBE MODEL {}", "DROP MODEL {}", "EVALUATE MODEL {} ON shop.main.t"):
        with pytest.raises(BindError) as error:
            named.execute(statement.format(model))
        assert error.value.hint == f'Did you mean "{meant}"?'
        assert meant in error.value.message.partition("\nModels: ")[2].split(", ")
    with pytest.raises(duckdb.Error, match=f'model "{model}" does not exist\n\nHint: Did you mean "{meant}"'):
        rows(named, f"SELECT predict('{model}', t) FROM shop.main.t")
    named.execute(f"DESCRIBE MODEL {meant}")


def test_a_transactions_own_models_come_where_names_are_looked_for(named: grouplearn.Connection) -> None:
    named.execute("SET search_path = 'shop.s,p'; BEGIN")
    source = "(SELECT x, x * 9 AS y FROM shop.main.t)"
    train = f"TRAIN OR REPLACE MODEL {{}} USING linear_regression PREDICT y FEATURES (x) FROM {source}"
    value = "SELECT DISTINCT round(predict_value('{}', t)) FROM shop.main.t AS t WHERE x = 1"
    named.execute(train.format("shop.main.m"))
    assert rows(named, value.format("m")) == [(3,)], "that of shop.s comes first"
    assert rows(named, value.format("shop.m")) == [(9,)]
    named.execute("DROP MODEL shop.s.m")
    assert rows(named, value.format("m")) == [(4,)], "that of p"
    named.execute("ROLLBACK")
    assert rows(named, value.format("shop.m")) == [(2,)]


@pytest.mark.examples(2)
@pytest.mark.parametrize(("one", "other"), [("ä", "Ä"), ("straße", "strasse"), ("\u017f", "s")])
def test_names_that_duckdb_tells_apart_are_told_apart(one: str, other: str) -> None:
    """DuckDB takes A to Z for a to z, and no other letters for each other."""
    features = "SELECT DISTINCT feature FROM \"{}_weights\" WHERE feature <> '(intercept)'"
    with grouplearn.connect(progress=False) as con:
        con.execute(
            f'CREATE TABLE t AS SELECT i % 2 AS g, sin(i) AS "{one}", sin(i) * 2 + i AS "{other}" FROM range(40) r(i)'
        )
        con.execute(f'TRAIN MODEL "{one}" USING linear_regression PREDICT "{other}" FEATURES (*) FROM t GROUP BY g')
        assert con.execute(features.format(one)).fetchall() == [(one,)]
        con.execute(f'TRAIN MODEL "{other}" USING linear_regression PREDICT "{one}" FEATURES (*) FROM t GROUP BY g')
        con.execute(
            f'TRAIN MODEL by_key USING linear_regression PREDICT g FEATURES (*) FROM t GROUP BY "{one}" > 0 AS k'
        )
        assert con.execute(features.format("by_key")).fetchall() == [(other,)]
        for model in (one, other):
            by_macro = con.execute(f'SELECT prediction FROM "{model}_predict"(t) ORDER BY ALL').fetchall()
            by_function = con.execute(f"SELECT predict('{model}', t).value FROM t ORDER BY ALL").fetchall()
            assert by_macro == by_function
            assert con.execute(f'DESCRIBE MODEL "{model}"').fetchall() != []


def test_of_many_models_some_are_named(tmp_path: Path) -> None:
    """Somebody else's file may say that it has any number of them."""
    with grouplearn.connect(tmp_path / "a.duckdb", progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i * 2 AS y FROM range(20) AS r(i)")
        con.execute("TRAIN MODEL many USING linear_regression PREDICT y FROM t")
        con.native.execute(
            "INSERT INTO grouplearn.models SELECT models.* REPLACE (uuid() AS model, 'many' || i AS model_name)"
            " FROM grouplearn.models, range(20_000) AS r(i)"
        )
        with pytest.raises(grouplearn.BindError) as told:
            con.execute("DESCRIBE MODEL man")
        assert str(told.value).count("many") < 60
        assert "and 9,950 more" in str(told.value)
        assert con.execute("SELECT count(predict_value('many', t)) FROM t").fetchall() == [(20,)]


@pytest.mark.parametrize(
    ("clauses", "groups"),
    [
        ("GROUP BY x % 4 AS k HAVING k > 1", [(2,), (3,)]),
        ("GROUP BY x % 4 AS x HAVING x > 1 AND count(*) > 1", [(2,), (3,)]),
        ('GROUP BY ROLLUP (x % 2 AS "my k", x % 4 AS b) HAVING "my k" = 1 AND b IS NOT NULL', [(1, 1), (1, 3)]),
    ],
)
def test_having_knows_keys_by_their_names(clauses: str, groups: list[tuple[int, ...]]) -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i * 2.0 AS y FROM range(40) r(i)")
        con.execute(f"TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x AS f) FROM t {clauses} VALIDATE NONE")
        names = ", ".join(f"#{number + 1}" for number in range(len(groups[0])))
        assert con.execute(f"SELECT {names} FROM m ORDER BY ALL").fetchall() == groups
