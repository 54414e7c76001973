"""The promises a user relies on, through the connection: names, transactions, other processes, one prediction everywhere."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from helpers.learners import OF_ROWS

import grouplearn
from grouplearn.learners import registry
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute(
            "CREATE TABLE points AS SELECT i % 3 AS g, (i * 37 % 101) / 20 AS x, (i * 53 % 97) / 20 AS z, "
            "['a', 'b', 'c', NULL][1 + i % 4] AS kind, 2 * x - z + g AS y, y > 1.5 AS big, "
            "['low', 'mid', 'high'][1 + (y > 0)::INT + (y > 3)::INT] AS band FROM range(240) AS t(i)"
        )
        yield connection


LABELS = {NUMBER: "y", TWO_CLASSES: "big", SEVERAL_CLASSES: "band"}
SMALL = {"gbdt": "num_iterations = 4, min_data_in_leaf = 5", "mlp": "epochs = 2, hidden_layers = [3]"}
PAIRS = [(name, label) for name in OF_ROWS for label in LABELS if label in registry.learner(name).declaration.labels]


@pytest.mark.examples(3)
@pytest.mark.parametrize(("name", "label"), PAIRS)
def test_macro_and_function_and_evaluation_agree(con: grouplearn.Connection, name: str, label: Label) -> None:
    options = f"WITH ({SMALL[name]})" if name in SMALL else ""
    target = "y + 10" if name == "poisson_regression" else LABELS[label]  # counts and rates are not negative
    con.execute(
        f"TRAIN MODEL m USING {name} PREDICT {target} "
        f"FEATURES (zscore(x), impute(z), onehot(kind), hash(kind, 3)) FROM points GROUP BY ROLLUP (g) VALIDATE NONE {options}"
    )
    con.execute(
        "CREATE TABLE probe AS FROM points UNION ALL BY NAME SELECT 99 AS g, 1.0 AS x, NULL AS z, 'new' AS kind"
    )
    column, field = ("prediction", "value") if label == NUMBER else ("probability", "probability")
    if label == SEVERAL_CLASSES:
        column, field = "probabilities['mid']", "probabilities['mid']"
    differing = con.execute(
        f"SELECT count(*), count({column}), max(abs({column} - predict('m', p).{field})), "
        f"count(*) FILTER (p.prediction::VARCHAR IS DISTINCT FROM predict('m', p).prediction), "
        f"count(*) FILTER (p.model_level IS DISTINCT FROM predict('m', p).model_level), count(DISTINCT model_level) "
        "FROM m_predict(probe) AS p"
    ).fetchall()[0]
    assert differing[0] == differing[1] == 241
    assert differing[2] <= 1e-6
    assert differing[4:] == (0, 2)
    if label != NUMBER:  # texts of a DOUBLE may differ in their last digit
        assert differing[3] == 0
    metric = "rmse" if label == NUMBER else "log_loss"
    trained = con.execute(f"SELECT g, train_{metric} FROM m WHERE model_level = 'g' ORDER BY g").fetchall()
    evaluated = con.execute("EVALUATE MODEL m ON points").df()
    assert [(row[0], pytest.approx(row[1], abs=1e-9)) for row in trained] == list(
        evaluated[["g", metric]].sort_values("g").itertuples(index=False, name=None)
    )


def test_a_plain_duckdb_process_predicts_with_fallback(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with grouplearn.connect(path, progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i % 2 AS g, i % 7 AS x, (i % 7) * 3 + i % 2 AS y FROM range(140) AS r(i)")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY ROLLUP (g)")
    program = (
        "import sys, duckdb\n"
        f"con = duckdb.connect({str(path)!r}, read_only=True)\n"
        "con.execute('CREATE TEMP TABLE new AS SELECT unnest([0, 1, 7, NULL]) AS g, 5 AS x')\n"
        "print(con.execute('SELECT g, round(prediction, 6), model_level FROM m_predict(new) ORDER BY ALL').fetchall())\n"
        "print('grouplearn' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "[(0, 15.0, 'g'), (1, 16.0, 'g'), (7, 15.5, '()'), (None, 15.5, '()')]",
        "False",
    ]


HOSTILE = ['a"b', "a'b", "a;DROP TABLE points;--", "line\nbreak", "🙂 ü", "select", "  ", "x" * 65_536]


@pytest.mark.examples(3)
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_any_text_is_a_model_name_and_a_group_value(con: grouplearn.Connection, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    value = "'" + name.replace("'", "''") + "'"
    con.execute(
        f"CREATE TABLE named AS SELECT CASE WHEN i % 2 = 0 THEN {value} END AS g, i AS x, 2 * i AS y FROM range(40) AS t(i)"
    )
    con.execute(f"TRAIN MODEL {quoted} USING linear_regression PREDICT y FEATURES (x) FROM named GROUP BY g")
    assert con.execute(f"SELECT g, status FROM {quoted} ORDER BY g NULLS LAST").fetchall() == [
        (name, "done"),
        (None, "done"),
    ]
    macro = '"' + name.replace('"', '""') + '_predict"'
    assert con.execute(f"SELECT count(*) FROM {macro}(named) WHERE abs(prediction - y) < 1e-6").fetchall() == [(40,)]
    con.execute(f"ALTER MODEL {quoted} RENAME TO plain")
    con.execute(f"ALTER MODEL plain RENAME TO {quoted}")
    con.execute(f"DROP MODEL {quoted}")
    assert con.execute("SELECT count(*) FROM points").fetchall() == [(240,)]
    assert con.execute("SELECT count(*) FROM grouplearn.models").fetchall() == [(0,)]


def test_train_sees_the_transaction_and_is_undone_with_it(con: grouplearn.Connection) -> None:
    con.begin()
    con.execute("INSERT INTO points SELECT 7, x, z, kind, 5 * x, big, band FROM points WHERE g = 0")
    con.execute("CREATE TEMP TABLE extra AS FROM points WHERE g = 7")
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM extra GROUP BY g")
    assert con.execute("SELECT g, round(predict_value('m', extra) - y, 6) FROM extra LIMIT 1").fetchall() == [(7, 0.0)]
    con.rollback()
    assert con.execute("SHOW MODELS").fetchall() == []
    assert con.execute("SELECT count(*) FROM points").fetchall() == [(240,)]


def test_a_failing_statement_leaves_no_transaction_open(con: grouplearn.Connection) -> None:
    with pytest.raises(grouplearn.BindError):
        con.execute("TRAIN MODEL m USING linear_regression PREDICT nothing FROM points")
    con.begin()
    con.rollback()


def test_a_read_only_database_is_refused_before_training(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as native:
        native.execute("CREATE TABLE t AS SELECT range AS x, range AS y FROM range(10)")
    with grouplearn.connect(path, read_only=True, progress=False) as con:
        with pytest.raises(grouplearn.ReadOnlyError) as caught:
            con.execute(
                "TRAIN MODEL m USING linear_regression PREDICT y FROM (SELECT error('rows were read') AS x, 1 AS y)"
            )
        assert str(caught.value) == (
            'database "shop" is read-only: a model cannot be stored in it, so nothing was trained\n\n'
            "LINE 1: TRAIN MODEL m USING linear_regression PREDICT y FROM (SELECT error('rows were read') AS x, 1 AS y)\n"
            "                    ^\n\n"
            "Hint: Open it without read_only, or name another one."
        )


def test_a_model_of_a_read_only_database_stays(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with grouplearn.connect(path, progress=False) as con:
        con.execute("CREATE SCHEMA gone")
        for name in ("m", "gone.m"):
            con.execute(
                f"TRAIN MODEL {name} USING linear_regression PREDICT y FROM (SELECT range AS x, range AS y FROM range(9))"
            )
        con.execute("DROP SCHEMA gone CASCADE")
    with grouplearn.connect(path, read_only=True, progress=False) as con:
        for statement in ("DROP MODEL m", "ALTER MODEL m RENAME TO n", "DROP MODEL gone.m"):
            kind, _, name = statement.split()[:3]
            with pytest.raises(grouplearn.ReadOnlyError) as caught:
                con.execute(statement)
            assert str(caught.value) == (
                f'database "shop" is read-only: its models cannot be changed\n\nLINE 1: {statement}\n'
                f"        {' ' * len(f'{kind} MODEL ')}{'^' * len(name)}"
                "\n\nHint: Open it without read_only."
            )


def test_models_live_in_other_schemas_and_databases(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.execute("CREATE SCHEMA lab")
    con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS other")
    for place in ("lab", "other.main", "other"):
        con.execute(
            f"TRAIN OR REPLACE MODEL {place}.m USING linear_regression PREDICT y FEATURES (x) FROM points GROUP BY g"
        )
        assert con.execute(f"SELECT count(*) FROM {place}.m_predict(points)").fetchall() == [(240,)]
    shown = con.execute("SHOW MODELS").df()
    assert sorted(zip(shown["database"], shown["schema"], shown["model"], strict=True)) == [
        ("memory", "lab", "m"),
        ("other", "main", "m"),
    ]


def test_parameters_reach_every_clause(con: grouplearn.Connection) -> None:
    statement = (
        "TRAIN MODEL m USING linear_regression PREDICT y * ? FEATURES (x + ? AS x) FROM points WHERE g < ? "
        "OVER GRID (l2 IN (?, ?)) VALIDATE SAMPLE ?%"
    )
    con.execute(statement, [2, 0.5, 2, 0, 1, 20])
    assert con.execute("SELECT l2, n_rows FROM m ORDER BY l2").fetchall() == [(0.0, 160), (1.0, 160)]
    con.execute("DROP MODEL m")
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FROM points WHERE kind = $kind", {"kind": "a"})
    assert con.execute("SELECT n_rows FROM m").fetchall() == [(60,)]


def test_a_model_is_replaced_only_when_asked(con: grouplearn.Connection) -> None:
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM points")
    with pytest.raises(grouplearn.ModelExists):
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (z) FROM points")
    con.execute("CREATE OR REPLACE MODEL m USING linear_regression TARGET y FEATURES (z) FROM points OPTIONS (l2 = 1)")
    assert con.execute("SELECT feature FROM m_weights ORDER BY ALL").fetchall() == [("(intercept)",), ("z",)]


def test_a_table_of_the_users_is_never_replaced(con: grouplearn.Connection) -> None:
    with pytest.raises(grouplearn.ModelExists, match='table "points" already exists'):
        con.execute("TRAIN OR REPLACE MODEL points USING linear_regression PREDICT y FEATURES (x) FROM points")
    assert con.execute("SELECT count(*) FROM points").fetchall() == [(240,)]


def test_many_classes_and_long_ones_are_cut_where_they_are_listed(con: grouplearn.Connection) -> None:
    con.execute(
        "CREATE TABLE many AS SELECT i % 30 + 10 AS y, repeat('k', 100) || i % 2 AS z, i AS x FROM range(90) AS r(i)"
    )
    con.execute("TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (x) FROM many WITH (epochs = 1)")
    con.execute("TRAIN MODEL n USING logistic_regression PREDICT z FEATURES (x) FROM many WITH (epochs = 1)")
    few = ", ".join(str(number) for number in range(10, 30))
    assert dict(con.execute("DESCRIBE MODEL m").fetchall())["classes"] == f"{few}, … (30 in all)"
    assert dict(con.execute("DESCRIBE MODEL n").fetchall())["classes"] == ", ".join(["k" * 60 + "…"] * 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2, 3], "the statement has no parameters 2, 3, and a value was given"),
        ([1, 2], "the statement has no parameter 2, and a value was given"),
        ([], "no value was given for parameter 1"),
        ({"a": 1}, "no value was given for parameter 1"),
    ],
)
def test_as_many_values_as_parameters(con: grouplearn.Connection, values: Any, message: str) -> None:
    with pytest.raises(grouplearn.BindError) as caught:
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM points WITH (l2 = ?)", values)
    assert caught.value.message == message


def test_a_transaction_that_cannot_write_is_refused_before_a_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    statement = "TRAIN MODEL m USING linear_regression PREDICT y FROM t"
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT range AS x, range * 2 AS y FROM range(100)")
        con.execute("BEGIN TRANSACTION READ ONLY")
        with monkeypatch.context() as patch:
            patch.setattr("grouplearn.statements.workflow.planning.statistics", None)  # what reads first
            with pytest.raises(grouplearn.ReadOnlyError) as error:
                con.execute(statement)
        assert error.value.message.startswith(
            'this transaction cannot write to database "memory": a model cannot be stored in it, so nothing was trained'
        )
        con.execute("ROLLBACK")
        con.execute("BEGIN")
        con.execute(statement)
        con.execute("COMMIT")
        assert con.execute("SELECT status FROM m").fetchall() == [("done",)]


def test_our_statements_inside_others_take_parameters_and_run_in_order() -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, 2 * i AS y FROM range(40) AS r(i)")
        con.execute(
            "WITH c AS (FROM t WHERE x < ?) TRAIN MODEL m USING linear_regression PREDICT y FROM c WHERE x > ?", [30, 9]
        )
        assert con.execute("SELECT n_rows FROM m").fetchall() == [(20,)]
        inside = "SELECT ?, n_rows FROM (EVALUATE MODEL m ON (FROM t WHERE x < ?)) WHERE n_rows > ?"
        assert con.execute(inside, ["a", 10, 3]).fetchall() == [("a", 10)]
        kept = "CREATE TABLE e AS EVALUATE MODEL m ON t; INSERT INTO e EVALUATE MODEL m ON t; SELECT count(*) FROM e"
        assert con.execute(kept).fetchall() == [(2,)]
        assert con.sql("SELECT model FROM (SHOW MODELS)").fetchall() == [("m",)]
