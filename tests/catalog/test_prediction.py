"""The macro, the function and plain arithmetic agree on every encoder, task, group level and missing value."""

import math
import re
import subprocess
import sys
import threading

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from handmade import (
    GroupOutcome,
    create_source,
    definition,
    entries,
    failed_outcome,
    group_outcome,
    linear_artifact,
    outcome,
    rollup_groups,
    rollup_outcome,
)

import grouplearn
from grouplearn.catalog.models import load_definition
from grouplearn.catalog.records import (
    HyperparameterColumn,
    ItemColumn,
    KeyColumn,
    ModelDefinition,
    RunOutcome,
)
from grouplearn.data.dataset import Group, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.registry import features_of
from grouplearn.errors import DataError
from grouplearn.models.forms.trees import trees as tree_form
from grouplearn.models.label import LABELLED, NUMBER, SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.state import Artifact
from grouplearn.prediction import functions, scoring
from grouplearn.prediction import prediction as predicting
from grouplearn.prediction.scoring import load_scorer, scorer_of
from grouplearn.store import writer as store
from grouplearn.train.job import GroupFacts
from grouplearn.train.results.trials import TrialResult


def write(con: duckdb.DuckDBPyConnection, model: ModelDefinition, run: RunOutcome) -> None:
    con.execute("BEGIN")
    store.write(con, model, run, replace=False)
    con.execute("COMMIT")


def by_hand(model: ModelDefinition, known: dict, row: dict, extra: str) -> tuple[object, ...]:
    """Return (scores or None, level) of one row of ``t`` by arithmetic on plain numbers, from the entries by group."""
    keys = (row["carrier"], None if row["dest"] is None else str(row["dest"]))
    masked = [
        (level, tuple(key if place in kept else None for place, key in enumerate(keys)))
        for level, kept in enumerate(model.sets)
    ]
    if model.missing_group != "parent":
        masked = masked[:1]
    entry = next((known[each] for each in masked if each in known), None)
    if entry is None:
        return None, None
    level = ("carrier, dest", "carrier", "()")[entry.group.level]
    x = encoded(entry.facts.fitted, row, extra)
    if x is None:
        return None, level
    artifact = entry.trials[entry.best].artifact
    scores = artifact.tensors["weights"] @ np.array(x) + artifact.tensors["intercept"]
    if model.label == NUMBER:
        return scores, level
    if model.label == TWO_CLASSES:
        return np.array([1 - 1 / (1 + math.exp(-scores[0])), 1 / (1 + math.exp(-scores[0]))]), level
    probabilities = np.zeros(3)
    probabilities[list(entry.facts.classes)] = np.exp(scores) / np.exp(scores).sum()
    return probabilities, level


def encoded(fitted, row: dict, bucket) -> list[float] | None:
    x: list[float] = []
    for item in fitted:
        value = {"x1": row["x1"], "x2": None if row["x2"] is None else row["x2"] * 2, "x3": row["x3"]}.get(
            item.item.name
        )
        if item.item.kind == "numeric":
            if value is None or not math.isfinite(value):
                value = item.fill
            if value is None:
                return None
            x.append((value - item.center) / item.scale)
        elif item.item.encoder == "onehot":
            x += [float(row["color"] == category) for category in item.categories]
        elif item.item.encoder == "ordinal":
            if row["size"] not in item.categories:
                return None
            x.append(float(item.categories.index(row["size"])))
        else:
            x += [float(bucket == number) for number in range(4)]
    return x


@pytest.mark.examples(4)
@pytest.mark.parametrize("missing_group", ["parent", "null"])
@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
def test_macro_function_and_arithmetic_agree(con, label, missing_group):
    model = definition(label, missing_group=missing_group)
    run = rollup_outcome(model)
    write(con, model, run)
    rows = con.sql("SELECT t.*, hash(tail) % 4 AS bucket FROM t ORDER BY i").to_arrow_table().to_pylist()
    macro = con.sql("FROM m_predict(t) ORDER BY i").to_arrow_table().to_pylist()
    function = con.sql("SELECT predict('m', t) AS p FROM t ORDER BY i").to_arrow_table().column(0).to_pylist()
    assert len(macro) == len(function) == len(rows) == 400
    known = {(entry.group.level, entry.group.keys): entry for entry in entries(run) if entry.best is not None}
    levels = set()
    for row, in_macro, in_function in zip(rows, macro, function, strict=True):
        scores, level = by_hand(model, known, row, row.pop("bucket"))
        levels.add((level, scores is None))
        assert in_macro["model_level"] == in_function["model_level"] == level
        assert row.keys() <= in_macro.keys()
        if scores is None:
            assert in_macro["prediction"] is None
            assert in_function["prediction"] is in_function["value"] is in_function["probability"] is None
            assert in_function["probabilities"] is None
            assert in_macro.get("probability") is in_macro.get("probabilities") is None
            continue
        if label == NUMBER:
            assert in_macro["prediction"] == pytest.approx(scores[0], abs=1e-9)
            assert in_function["value"] == pytest.approx(scores[0], abs=1e-9)
            assert float(in_function["prediction"]) == in_function["value"]
            continue
        winner = model.classes[int(np.argmax(scores))]
        assert in_function["prediction"] == winner
        assert dict(in_function["probabilities"]) == pytest.approx(
            dict(zip(model.classes, scores, strict=True)), abs=1e-9
        )
        if label == TWO_CLASSES:
            assert in_macro["prediction"] is (winner == "true")
            assert in_macro["probability"] == pytest.approx(scores[1], abs=1e-9)
            assert in_function["probability"] == pytest.approx(scores[1], abs=1e-9)
        else:
            assert in_macro["prediction"] == winner
            assert dict(in_macro["probabilities"]) == pytest.approx(
                dict(zip(model.classes, scores, strict=True)), abs=1e-9
            )
    expected = {"carrier, dest", "carrier", "()"} if missing_group == "parent" else {"carrier, dest"}
    assert {level for level, nothing in levels if level and not nothing} == expected
    assert (None in {level for level, _ in levels}) == (missing_group == "null")


def test_scores_beyond_the_range_of_exp(con):
    items = (ItemColumn(Item("x", "numeric", 0), "CAST(x AS DOUBLE)", "DOUBLE"),)
    con.execute("CREATE TABLE big AS SELECT unnest([-1e6, -1e3, 0, 1e3, 1e6, 1e308]) AS x")
    for label, weights in ((TWO_CLASSES, [[3.0]]), (SEVERAL_CLASSES, [[3.0], [-3.0], [0.0]])):
        model = definition(label, name=label.name, items=items, keys=(), sets=((),), configs=({},), hyperparameters=())
        artifact = Artifact("tensors", {"weights": np.array(weights), "intercept": np.zeros(len(weights))})
        classes = tuple(range(len(model.classes)))
        facts = GroupFacts((FittedItem(items[0].item),), classes, 6, 0, 0)
        entry = GroupOutcome(Group(0, 0, (), ((0, 6),)), (TrialResult(0, "done", artifact=artifact),), facts, 0)
        write(con, model, outcome([entry]))
        macro = con.sql(f"FROM {label.name}_predict(big)").to_arrow_table().to_pylist()
        function = con.sql(f"SELECT predict('{label.name}', big) AS p FROM big").to_arrow_table().column(0).to_pylist()
        for left, right in zip(macro, function, strict=True):
            assert str(left["prediction"]).lower() == str(right["prediction"]).lower()
            if label == TWO_CLASSES:
                assert left["probability"] == pytest.approx(right["probability"], abs=1e-9)
                assert left["probability"] == pytest.approx(float(left["x"] > 0) if left["x"] else 0.5)
            elif left["probabilities"] is None:
                assert right["probabilities"] is None  # infinity minus infinity
            else:
                assert dict(left["probabilities"]) == pytest.approx(dict(right["probabilities"]), abs=1e-9)


KEY_CASES = [
    ("BIGINT", "i % 3", ["0", "1", None]),
    ("DATE", "DATE '2020-01-01' + CAST(i % 3 AS INTEGER)", ["2020-01-01", "2020-01-02", None]),
    ("DOUBLE", "[0.1, 1e300, -0.0][i % 3 + 1]", ["0.1", "1e+300", "0.0"]),
    ("BOOLEAN", "[true, false, NULL][i % 3 + 1]", ["true", "false", None]),
    ("TIMESTAMP", "TIMESTAMP '2020-01-01 00:00:00.5' + INTERVAL (i % 3) DAY", ["2020-01-01 00:00:00.5", None]),
    ("DECIMAL(9,2)", "CAST(i % 3 AS DECIMAL(9,2)) / 1", ["0.00", "1.00"]),
]


@pytest.mark.examples(4)
@pytest.mark.parametrize(("kind", "sql", "values"), KEY_CASES, ids=[case[0] for case in KEY_CASES])
def test_typed_keys(con, kind, sql, values):
    model = definition(keys=(KeyColumn("k", f"CAST({sql} AS {kind})", kind),), sets=((0,),))
    groups = [Group(number, 0, (value,), ((0, 9),)) for number, value in enumerate(values)]
    run = outcome([group_outcome(model, group, group.id) for group in groups])
    write(con, model, run)
    shown = con.sql("SELECT DISTINCT typeof(k) FROM m").fetchall()
    assert shown == [(kind,)]
    macro = con.sql("SELECT i, prediction, model_level FROM m_predict(t) ORDER BY i").fetchall()
    function = con.sql(
        "SELECT i, predict('m', t).value, predict('m', t).model_level, predict('m', t).group_id FROM t ORDER BY i"
    ).fetchall()
    assert [row[:2] for row in macro] == [
        (row[0], pytest.approx(row[1], abs=1e-9) if row[1] is not None else None) for row in function
    ]
    assert [row[2] for row in macro] == [row[2] for row in function]
    seen = {row[3] for row in function}
    assert {number for number, value in enumerate(values) if value is not None} <= seen


HOSTILE = ["it's", 'say "hi"; DROP TABLE t; --', "line\nbreak", "🛩️", "x" * 65_536, "NULL", "", "%s {0} $1 ?", "a\\b"]


def test_hostile_names_and_values(con):
    con.register("given", pa.table({"k": [*HOSTILE, None]}))
    con.execute("""CREATE TABLE "odd; 'table'" AS SELECT k, k AS color, 1.0 AS "src" FROM given""")
    items = (
        ItemColumn(Item("src", "numeric", 0), "CAST(src AS DOUBLE)", "DOUBLE"),
        ItemColumn(Item("color", "category", 0, "onehot"), "CAST(color AS VARCHAR) -- a comment", "VARCHAR"),
    )
    name = 'm\'; "DROP"\n🛩️'
    classes = tuple(HOSTILE[:5])
    model = definition(
        SEVERAL_CLASSES,
        name=name,
        items=items,
        keys=(KeyColumn('k "q"; --', "k", "VARCHAR"),),
        sets=((0,),),
        classes=classes,
        statement="TRAIN\n'quoted';",
        configs=({"it's": "va'lue"},),
        hyperparameters=(HyperparameterColumn("it's", "VARCHAR"),),
    )
    fitted = (FittedItem(items[0].item), FittedItem(items[1].item, categories=tuple(sorted(HOSTILE))))
    features = tuple(features_of(fitted))
    facts = GroupFacts(fitted, (0, 1, 2, 3, 4), 1, 0, 0)
    found = []
    for number, key in enumerate([*HOSTILE, None]):
        artifact = linear_artifact(np.random.default_rng(number), 5, len(features))
        trial = TrialResult(0, "done", artifact=artifact)
        found.append(GroupOutcome(Group(number, 0, (key,), ((0, 1),)), (trial,), facts, 0))
    write(con, model, outcome(found))
    quoted = '"' + name.replace('"', '""') + '"'
    macro_name = '"' + (name + "_predict").replace('"', '""') + '"'
    macro = con.sql(f"""SELECT k, prediction, probabilities FROM {macro_name}("odd; 'table'")""").fetchall()
    reference = quoted.replace("'", "''")
    function = con.sql(f"""SELECT k, predict('{reference}', o) FROM "odd; 'table'" AS o""").fetchall()
    assert [row[0] for row in macro] == [*HOSTILE, None]
    for (_, prediction, probabilities), (_, other) in zip(macro, function, strict=True):
        assert prediction == other["prediction"]
        assert probabilities == pytest.approx(other["probabilities"], abs=1e-9)
    assert {row[0] for row in con.sql(f'SELECT "k ""q""; --" FROM {quoted}').fetchall()} == {*HOSTILE, None}
    assert con.sql(f"""SELECT DISTINCT "it's" FROM {quoted}""").fetchall() == [("va'lue",)]


def test_missing_group_error_names_the_group(con):
    model = definition(missing_group="error")
    write(con, model, rollup_outcome(model))
    with pytest.raises(duckdb.Error, match='model "m" has no model for group carrier = NULL, dest = 1'):
        con.sql("FROM m_predict(t)").fetchall()
    with pytest.raises(duckdb.Error, match='model "m" has no model for group carrier = '):
        con.sql("SELECT predict('m', t) FROM t").fetchall()
    assert len(con.sql("WITH few AS (FROM t WHERE carrier = 'AA' AND dest = 1) FROM m_predict(few)").fetchall()) == 34


def test_a_failed_group_falls_back_to_its_parent(con):
    model = definition()
    groups = rollup_groups()
    found = [failed_outcome(model, groups[0], "a single class"), *(group_outcome(model, g, g.id) for g in groups[1:])]
    write(con, model, outcome(found))
    query = "SELECT DISTINCT model_level FROM m_predict(t) WHERE carrier = 'AA' AND dest = 1"
    assert con.sql(query).fetchall() == [("carrier",)]


def test_a_column_named_like_the_macro_parameter(con):
    con.execute("CREATE TABLE named AS SELECT 2.0 AS src")
    items = (ItemColumn(Item("src", "numeric", 0), "CAST(src * 10 AS DOUBLE)", "DOUBLE"),)
    model = definition(items=items, keys=(), sets=((),))
    entry = group_outcome(model, Group(0, 0, (), ((0, 1),)), 0)
    write(con, model, outcome([entry]))
    tensors = entry.trials[1].artifact.tensors
    assert con.sql("SELECT prediction FROM m_predict(named)").fetchall() == [
        (pytest.approx(20 * tensors["weights"][0, 0] + tensors["intercept"][0]),)
    ]


PLAIN_CLIENT = """
import sys, duckdb
con = duckdb.connect(sys.argv[1], read_only=True)
rows = con.sql("SELECT count(prediction), avg(probability), any_value(typeof(prediction)) FROM m_predict(t)").fetchall()
assert not any(name.startswith("grouplearn") for name in sys.modules)
print(rows)
"""


def test_predicts_in_a_plain_duckdb_process(tmp_path):
    path = tmp_path / "flights.db"
    con = duckdb.connect(str(path))
    create_source(con)
    model = definition(TWO_CLASSES)
    write(con, model, rollup_outcome(model))
    here = con.sql(
        "SELECT count(prediction), avg(probability), any_value(typeof(prediction)) FROM m_predict(t)"
    ).fetchall()
    con.close()
    moved = path.rename(tmp_path / "renamed.db")
    done = subprocess.run([sys.executable, "-c", PLAIN_CLIENT, str(moved)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(here)
    assert here[0][0] > 200


def test_a_macro_read_from_another_database_says_so(tmp_path):
    con = duckdb.connect(str(tmp_path / "one.db"))
    create_source(con)
    model = definition()
    write(con, model, rollup_outcome(model))
    con.execute(f"ATTACH '{tmp_path / 'two.db'}' AS two")
    store.ensure_schema(con, "two")
    con.execute("USE two")
    with pytest.raises(duckdb.Error, match='model "m" is not in the database that m_predict reads'):
        con.sql("FROM one.m_predict('one.main.t')").fetchall()
    con.close()


def test_a_model_in_another_database_and_schema(con, tmp_path):
    con.execute(f"ATTACH '{tmp_path / 'models.db'}' AS models; CREATE SCHEMA models.\"my schema\"")
    model = definition(catalog="models", schema="my schema")
    write(con, model, rollup_outcome(model))
    macro = con.sql('SELECT i, prediction FROM models."my schema".m_predict(t) ORDER BY i').fetchall()
    assert con.sql("SELECT i, predict_value('models.\"my schema\".m', t) FROM t ORDER BY i").fetchall() == [
        (i, value if value is None else pytest.approx(value)) for i, value in macro
    ]
    assert con.sql('SELECT count(*) FROM models."my schema".m').fetchall() == [(12,)]
    assert con.sql("SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'grouplearn'").fetchall() == [(1,)]


@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
def test_a_model_that_is_not_declared_linear_predicts_through_the_function(con, opaque, label):
    """The same weights, stored as safetensors: m_predict, predict and the pure SQL macro agree."""
    groups = rollup_groups()
    linear, own = definition(label, name="plain"), definition(label, name="opaque", learner=opaque(label))
    run = outcome([group_outcome(linear, group, group.id) for group in groups])
    write(con, linear, run)
    write(con, own, run)
    assert con.sql("SELECT DISTINCT format FROM grouplearn.artifacts ORDER BY 1").fetchall() == [
        ("linear",),
        ("tensors",),
    ]
    left = con.sql("FROM plain_predict(t) ORDER BY i").to_arrow_table()
    right = con.sql("FROM opaque_predict(t) ORDER BY i").to_arrow_table()
    assert left.schema == right.schema
    for column in ("prediction", "model_level", "probability"):
        if column in left.column_names:
            for a, b in zip(left.column(column).to_pylist(), right.column(column).to_pylist(), strict=True):
                assert a == (pytest.approx(b, abs=1e-9) if isinstance(b, float) else b)
    assert con.sql("SELECT count(*) FROM duckdb_views() WHERE view_name = 'opaque_weights'").fetchall() == [(0,)]


@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
def test_boosted_trees_predict_as_lightgbm_does(con, label):
    lightgbm = pytest.importorskip("lightgbm")
    items = (
        ItemColumn(Item("x1", "numeric", 0), "CAST(x1 AS DOUBLE)", "DOUBLE"),
        ItemColumn(Item("size", "category", 0, "ordinal"), "size", "VARCHAR"),
    )
    fitted = (FittedItem(items[0].item), FittedItem(items[1].item, categories=("L", "M", "S")))
    rows = con.sql("SELECT x1, size, y FROM t ORDER BY i").fetchall()
    places = {"L": 0.0, "M": 1.0, "S": 2.0}
    x = np.array([[math.nan if a is None else a, places.get(b, math.nan)] for a, b, _ in rows])
    y = np.array([row[2] for row in rows])
    learned = y if label == NUMBER else np.digitize(y, [0.0] if label == TWO_CLASSES else [-1.0, 1.0])
    objective = {"objective": label.name} | ({"num_class": 3} if label == SEVERAL_CLASSES else {})
    booster = lightgbm.train({**objective, "verbose": -1, "num_threads": 1}, lightgbm.Dataset(x, learned), 5)
    text = booster.model_to_string().encode()
    model = definition(label, learner="gbdt", items=items, keys=(), sets=((),))
    facts = GroupFacts(fitted, tuple(range(len(model.classes))), 400, 0, 0)
    trials = (TrialResult(0, "done", artifact=Artifact("lightgbm", text=text)),)
    write(con, model, outcome([GroupOutcome(Group(0, 0, (), ((0, 400),)), trials, facts, 0)]))
    column = {NUMBER: "prediction", TWO_CLASSES: "probability", SEVERAL_CLASSES: "map_values(probabilities)"}
    found = con.sql(f"SELECT {column[label]} FROM m_predict(t) ORDER BY i").fetchall()
    np.testing.assert_allclose(np.array([row[0] for row in found]), booster.predict(x), atol=1e-12)


def test_function_notices_drop_and_replace(con):
    model = definition()
    write(con, model, rollup_outcome(model))
    first = con.sql("SELECT predict_value('m', t) FROM t WHERE i = 3").fetchall()
    found = [group_outcome(model, group, group.id + 100) for group in rollup_groups()]
    con.execute("BEGIN")
    store.write(con, model, outcome(found), replace=True)
    con.execute("COMMIT")
    second = con.sql("SELECT predict_value('m', t) FROM t WHERE i = 3").fetchall()
    macro = con.sql("SELECT prediction FROM m_predict(t) WHERE i = 3").fetchall()
    assert second == [(pytest.approx(macro[0][0]),)] != first
    con.execute("BEGIN")
    assert store.drop(con, "memory", "main", "m")
    con.execute("COMMIT")
    with pytest.raises(duckdb.Error, match='model "m" does not exist'):
        con.sql("SELECT predict('m', t) FROM t").fetchall()


def test_function_sees_an_uncommitted_model_only_in_its_transaction(con):
    model = definition()
    con.execute("BEGIN")
    store.write(con, model, rollup_outcome(model), replace=False)
    inside = con.sql("SELECT predict_value('m', t) FROM t WHERE i = 3").fetchall()
    macro = con.sql("SELECT prediction FROM m_predict(t) WHERE i = 3").fetchall()
    assert inside == [(pytest.approx(macro[0][0]),)]
    con.execute("ROLLBACK")
    with pytest.raises(duckdb.Error, match='model "m" does not exist'):
        con.sql("SELECT predict('m', t) FROM t").fetchall()


def test_function_knows_what_its_transaction_has_renamed_and_dropped():
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i * 2.0 AS y FROM range(20) AS r(i)")
        for name, target in (("a", "y"), ("b", "y + 1000")):
            con.execute(f"TRAIN MODEL {name} USING linear_regression PREDICT {target} AS y FEATURES (x) FROM t")

        def first(model):
            query = f"SELECT round(predict_value('{model}', t), 6) FROM t WHERE x = 1"
            return con.execute(query).fetchall()[0][0]

        assert (first("a"), first("b")) == (2, 1002)
        con.execute("BEGIN; ALTER MODEL a RENAME TO c; ALTER MODEL b RENAME TO a; ALTER MODEL c RENAME TO b")
        assert (first("a"), first("b")) == (1002, 2)
        con.execute("ROLLBACK")
        assert (first("a"), first("b")) == (2, 1002)
        con.execute("BEGIN; TRAIN OR REPLACE MODEL a USING linear_regression PREDICT y + 5 AS y FEATURES (x) FROM t")
        con.execute("ALTER MODEL a RENAME TO d")
        assert first("d") == 7
        with pytest.raises(duckdb.Error, match='model "a" does not exist'):
            first("a")
        con.rollback()
        con.execute("BEGIN; DROP MODEL a")
        with pytest.raises(duckdb.Error, match=r'model "a" does not exist(?!.*"a")'):
            first("a")
        con.rollback()
        assert first("a") == 2


def test_function_that_needs_a_temporary_table_says_who_reads_it():
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE s AS SELECT i AS x, i * 2 AS y FROM range(20) AS r(i)")
        con.execute("CREATE TEMP TABLE rates AS SELECT 2.0 AS rate")
        con.execute(
            "TRAIN MODEL rated USING linear_regression PREDICT y FEATURES (x, (SELECT max(rate) FROM rates) AS rate) FROM s"
        )
        told = r"(?s)Table with name rates does not exist.*knows no temporary tables.*FROM <model>_predict\(...\) does"
        with pytest.raises(duckdb.Error, match=told):
            con.execute("SELECT predict_value('rated', s) FROM s").fetchall()


def test_a_query_for_the_macro_is_refused_with_a_hint():
    """DuckDB's own error says only that it may not be one."""
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE s AS SELECT i AS x, i * 2 AS y FROM range(20) AS r(i)")
        con.execute("TRAIN MODEL line USING linear_regression PREDICT y FEATURES (x) FROM s")
        with pytest.raises(duckdb.BinderException) as told:
            con.execute("FROM line_predict((SELECT * FROM s))")
        assert str(told.value).endswith(
            "\n\nHint: line_predict takes the name of a table, view or CTE: WITH r AS (SELECT ...) FROM line_predict(r)."
        )


@pytest.mark.parametrize(
    ("query", "call"),
    [
        ("SELECT p.x FROM s JOIN line_predict(s) p USING (x)", "line_predict('s')"),
        ("SELECT p.x FROM s JOIN main.LINE_predict(src := s) AS p USING (x)", "LINE_predict('s')"),
        ('SELECT p.x FROM "s s", line_predict("s s") p', "line_predict('s s')"),
        ("SELECT p.x FROM other.s JOIN line_predict(other.s) p USING (x)", "line_predict('other.s')"),
        ("SELECT (SELECT max(prediction) FROM line_predict(s)) FROM s", "line_predict('s')"),
        ("WITH c AS (FROM s) SELECT p.x FROM c JOIN line_predict(c) p USING (x)", "line_predict('c')"),
    ],
)
def test_a_macro_beside_its_table_is_told_to_take_its_name_in_quotes(query, call):
    """DuckDB takes ``s`` there for the columns of its rows; the name in quotes it does not."""
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE s AS SELECT i AS x, i * 2 AS y FROM range(20) AS r(i)")
        con.execute('CREATE SCHEMA other; CREATE TABLE other.s AS FROM s; CREATE TABLE "s s" AS FROM s')
        con.execute("TRAIN MODEL line USING linear_regression PREDICT y FEATURES (x) FROM s")
        for run in (con.execute, con.sql):
            with pytest.raises(duckdb.BinderException) as told:
                run(query)
            assert str(told.value).endswith(
                f"\n\nHint: Beside the table itself, give its name (no alias) in single quotes: {call}."
            )
        assert con.execute(re.sub(r"line_predict\(.*?\)", call, query, flags=re.IGNORECASE)).fetchall()
        with pytest.raises(duckdb.BinderException) as told:
            con.execute("SELECT * FROM s, query_table(s)")
        assert "Hint" not in str(told.value)


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("sort_predict(s, treshold := 0.3)", 'Did you mean "threshold"?'),
        ("main.Sort_predict(s, database := NULL, thresh => 0.3)", 'Did you mean "threshold"?'),
        ("line_predict(s, threshold := 0.3)", "Only predictions of two classes have a threshold."),
        ("line_predict(s, treshold := 0.3)", "Only predictions of two classes have a threshold."),
        ("line_predict(s, 3, 4)", None),
    ],
)
def test_a_parameter_that_the_macro_lacks_has_a_hint(call, hint):
    """DuckDB says what there is, and not which of the arguments it does not take."""
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE s AS SELECT i AS x, i * 2 AS y, i > 9 AS late FROM range(20) AS r(i)")
        con.execute("TRAIN MODEL line USING linear_regression PREDICT y FEATURES (x) FROM s")
        con.execute("TRAIN MODEL sort USING logistic_regression PREDICT late FEATURES (x) FROM s")
        for run in (con.execute, con.sql):
            with pytest.raises(duckdb.BinderException) as told:
                run(f"FROM {call}")
            assert str(told.value).partition("\n\nHint: ")[2] == (hint or "")


def test_function_errors_are_understandable(con):
    model = definition()
    write(con, model, rollup_outcome(model))
    with pytest.raises(duckdb.Error, match=r'model "mm" does not exist\n\nHint: Did you mean "m"\?'):
        con.sql("SELECT predict('mm', t) FROM t").fetchall()
    with pytest.raises(duckdb.Error, match='model "m" cannot read these rows: Referenced column "carrier" not found'):
        con.sql("SELECT predict('m', {'other': i}) FROM t").fetchall()
    con.execute("CREATE SCHEMA s")
    write(con, definition(schema="s"), rollup_outcome(model))
    assert con.sql("SELECT count(predict_value('m', t)) > 0 FROM t").fetchall() == [
        (True,)
    ]  # that of the default schema
    con.execute("CREATE SCHEMA neither; SET search_path = 'neither'")
    assert con.sql("SELECT count(predict_value('m', t)) > 0 FROM main.t").fetchall() == [
        (True,)
    ]  # that of main, in which DuckDB looks for a view last
    con.execute("SET search_path = 'main'")
    assert con.sql("SELECT count(predict_value('s.m', t)) > 0 FROM t").fetchall() == [(True,)]


def test_function_of_null_rows_null_models_and_several_models(con):
    binary, regression = definition(TWO_CLASSES, name="b"), definition(name="r")
    write(con, binary, rollup_outcome(binary))
    write(con, regression, rollup_outcome(regression))
    query = (
        "SELECT i, predict(CASE i % 3 WHEN 0 THEN 'b' WHEN 1 THEN 'r' END, CASE WHEN i % 5 > 0 THEN t END) AS p FROM t"
    )
    rows = con.sql(f"SELECT i, p, p.probability, p.value FROM ({query})").fetchall()
    for i, whole, probability, value in rows:
        assert (whole is None) == (i % 3 == 2 or i % 5 == 0)
        assert probability is None or i % 3 == 0
        assert value is None or i % 3 == 1
    assert sum(row[2] is not None for row in rows) > 50
    assert con.sql("SELECT predict('b', t) FROM t WHERE false").fetchall() == []


def test_function_from_several_threads_and_cursors(con):
    model = definition(TWO_CLASSES)
    write(con, model, rollup_outcome(model))
    con.execute("CREATE TABLE many AS SELECT t.* FROM t, range(100)")
    expected = con.sql("SELECT sum(probability) FROM m_predict(many)").fetchall()[0][0]
    found: list[float] = []

    def run() -> None:
        cursor = con.cursor()
        functions.register_all(cursor)
        found.append(cursor.sql("SELECT sum(predict_probability('m', many)) FROM many").fetchall()[0][0])
        functions.release(cursor)
        cursor.close()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [pytest.approx(expected)] * 3


CLEAN_EXIT = """
import duckdb
from grouplearn.prediction import functions
from grouplearn.prediction import prediction as predicting
from grouplearn.store import writer as store
import sys; sys.path.insert(0, sys.argv[1])
from handmade import *
con = duckdb.connect()
con.execute("SET enable_progress_bar = false")  # a busy machine would see it
functions.register_all(con)
create_source(con)
model = definition()
store.write(con, model, rollup_outcome(model), replace=False)
other = con.cursor()
other.execute("SET enable_progress_bar = false")
functions.register_all(other)
print(con.sql("SELECT count(predict_value('m', t)) FROM t").fetchall())
print(other.sql("SELECT count(predict_value('m', t)) FROM t").fetchall())
if sys.argv[2] == "close":
    functions.release(con)
    con.close()
"""


@pytest.mark.parametrize("ending", ["close", "leave"])
def test_interpreter_exits_without_complaint(ending):
    folder = __file__.rsplit("/", 1)[0]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CLEAN_EXIT, folder, ending], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == done.stdout.splitlines()[1]


def test_a_forgotten_connection_lets_go_of_its_file(tmp_path):
    path = str(tmp_path / "f.db")
    con = duckdb.connect(path)
    functions.register_all(con)
    create_source(con)
    model = definition()
    write(con, model, rollup_outcome(model))
    con.sql("SELECT predict('m', t) FROM t").fetchall()
    del con
    script = "import duckdb, sys; duckdb.connect(sys.argv[1]).execute('CREATE TABLE other (i INT)')"
    subprocess.run([sys.executable, "-c", script, path], check=True)


@pytest.mark.parametrize("linear", [True, False])
def test_damaged_artifacts_are_refused(con, opaque, linear):
    model = definition() if linear else definition(learner=opaque(NUMBER))
    write(con, model, rollup_outcome(model))
    column = "weights = list_prepend(1.0, weights[2:])" if linear else "content = content[:20] || 'x'::BLOB"
    con.execute(f"UPDATE grouplearn.artifacts SET {column} WHERE group_id = 1")
    stored = load_definition(con, "memory", "main", "m")
    with pytest.raises(
        DataError, match=r"""the stored model of model "m", group \['NULL', '2'\] is damaged: its bytes do"""
    ):
        load_scorer(con, stored)
    with pytest.raises(duckdb.Error, match="do not match their SHA-256"):
        con.sql("SELECT predict('m', t) FROM t").fetchall()


def test_truncated_safetensors_with_a_matching_digest_are_refused(con, opaque):
    model = definition(learner=opaque(NUMBER))
    write(con, model, rollup_outcome(model))
    con.execute("UPDATE grouplearn.artifacts SET content = content[:20], sha256 = sha256(content[:20])")
    with pytest.raises(DataError, match="is damaged"):
        load_scorer(con, load_definition(con, "memory", "main", "m"))


def test_scorer_without_the_catalog_equals_the_stored_one(con):
    model = definition(SEVERAL_CLASSES)
    run = rollup_outcome(model)
    write(con, model, run)
    rows = con.sql("FROM t").to_arrow_table().to_struct_array().combine_chunks()
    stored = load_scorer(con, load_definition(con, "memory", "main", "m")).score(lambda: con, rows)
    assert scorer_of(model, run).score(lambda: con, rows).equals(stored)


def test_a_statement_finds_its_model_once_and_the_next_one_anew(con, monkeypatch):
    """Whatever keeps a statement: a prepared one and a relation see what was committed since, and a transaction its own."""
    con.execute("CREATE TABLE many AS SELECT t.* FROM t, range(30)")
    con.execute("CREATE TABLE other AS FROM t")
    searches = []
    find = predicting.find
    monkeypatch.setattr(predicting, "find", lambda *args: searches.append(args[1]) or find(*args))
    con.execute("SET threads = 1")

    def trained(shift: int, name: str = "m", schema: str = "main") -> float:
        model = definition(name=name, schema=schema)
        run = outcome([group_outcome(model, group, group.id + shift) for group in rollup_groups()])
        store.write(con, model, run, replace=True)
        macro = f"{schema}.{name}_predict"
        return con.sql(f"SELECT sum(prediction) FROM {macro}(many)").fetchall()[0][0]

    first = trained(0)
    query = "SELECT sum(predict_value('m', many)) FROM many"
    con.execute(f"PREPARE asked AS {query}")
    relation = con.sql(query)
    kept = [lambda: con.sql(query), lambda: con.execute("EXECUTE asked"), lambda: relation]
    for shift in (0, 10, 20):
        wanted = trained(shift)
        for ask in kept:
            searches.clear()
            assert ask().fetchall() == [(pytest.approx(wanted),)]
            assert searches == ["m"]
    con.execute("BEGIN")
    assert con.sql(query).fetchall() == [(pytest.approx(wanted),)]
    con.execute("ROLLBACK")
    con.execute("CREATE SCHEMA s")
    elsewhere = trained(5, schema="s")
    con.execute("BEGIN")
    assert con.sql(query).fetchall() == [(pytest.approx(wanted),)]
    con.execute("SET search_path = 's,main'")
    assert con.sql(query).fetchall() == [(pytest.approx(elsewhere),)]
    con.execute("ROLLBACK")
    assert first != wanted != elsewhere


def test_a_variant_is_read_where_it_is_cast() -> None:
    """Arrow makes a struct of it, whose metadata say what it was."""
    with grouplearn.connect(":memory:", progress=False) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 3 AS y, CASE WHEN i % 3 = 0 THEN 'a'::VARIANT ELSE (i % 3)::VARIANT END AS v"
            " FROM range(60) AS r(i)"
        )
        connection.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (onehot(v::VARCHAR)) FROM t")
        found = connection.execute("SELECT count(*) FILTER (abs(predict_value('m', t) - y) < 1e-6) FROM t").fetchall()
        assert found == [(60,)]


@pytest.mark.parametrize("features", ["x, z", "zscore(x), onehot(c), impute(z, 0), ordinal(c)"])
def test_networks_read_columns_without_sql_and_as_sql_reads_them(monkeypatch, features):
    con = grouplearn.connect(progress=False)
    con.execute(
        "CREATE TABLE seen AS SELECT i % 7 AS g, sin(i) AS x, CASE WHEN i % 11 > 0 THEN cos(i) END AS z,"
        " ['a', 'b', NULL, 'c'][i % 4 + 1] AS c, sin(i) + i % 3 AS y FROM range(700) AS r(i)"
    )
    con.execute(
        f"TRAIN MODEL m USING mlp PREDICT y FEATURES ({features}) FROM seen WHERE g < 5 AND c IS DISTINCT FROM 'c'"
        " GROUP BY ROLLUP (g) WITH (epochs = 2)"
    )
    query = "SELECT predict('m', seen) FROM seen"

    def refused(*_: object) -> None:
        raise AssertionError("rows were read by SQL")

    with monkeypatch.context() as without_sql:
        without_sql.setattr(scoring.Scorer, "_queried", refused)
        found = con.execute(query).fetchall()
    monkeypatch.setattr(scoring.Scorer, "_reader", lambda *_, **__: None)
    assert found == con.execute(query).fetchall()
    con.close()
    assert len({row["value"] for (row,) in found}) > 100


@pytest.mark.parametrize("objective", ["multiclass", "multiclassova"])
def test_trees_are_parsed_some_at_a_time(monkeypatch: pytest.MonkeyPatch, objective: str) -> None:
    """Of three classes and, in one group, of two, whose trees are the second one's or mirrored."""
    found = []
    for together in (tree_form._TOGETHER_BYTES, 0):
        monkeypatch.setattr(tree_form, "_TOGETHER_BYTES", together)
        with grouplearn.connect(progress=None) as con:
            con.execute(
                "CREATE TABLE t AS SELECT i % 4 AS g, i * 0.37 % 7 AS x, ['a', 'b', 'c'][i % 3 + 1] AS kind"
                " FROM range(240) AS r(i) WHERE i % 4 > 0 OR i % 3 < 2"
            )
            con.execute(
                "TRAIN MODEL m USING gbdt PREDICT kind FEATURES (x) FROM t GROUP BY g"
                f" WITH (num_iterations = 3, objective = '{objective}')"
            )
            found.append(con.execute("SELECT COLUMNS(*)::VARCHAR FROM m_predict(t) ORDER BY ALL").fetchall())
    assert found[0] == found[1]


@pytest.mark.parametrize("macro", ["shop.m_predict", '"shop".main."m_predict"'])
def test_a_macro_read_from_a_database_without_models_says_how_to_name_its_own(tmp_path, macro):
    with grouplearn.connect(tmp_path / "shop.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, 2 * i AS y FROM range(60) AS r(i)")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FROM t")
    with grouplearn.connect() as con:
        con.execute(f"ATTACH '{tmp_path}/shop.duckdb' AS shop (READ_ONLY)")
        for run in (con.execute, con.sql):
            with pytest.raises(duckdb.CatalogException) as error:
                run(f"FROM {macro}('shop.t')")
            assert str(error.value).endswith(
                f"\n\nHint: Name the database that has the model's tables: {macro}(..., database := 'shop')."
            )
        assert len(con.execute(f"FROM {macro}('shop.t', database := 'shop')").fetchall()) == 60
