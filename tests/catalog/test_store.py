"""What is written, what is shown, what is in the way, and that a transaction undoes all of it."""

import dataclasses
import hashlib

import duckdb
import numpy as np
import pytest
from handmade import definition, entries, failed_outcome, group_outcome, outcome, rollup_groups, rollup_outcome

from grouplearn.catalog import models
from grouplearn.catalog.models import load_definition
from grouplearn.catalog.records import HyperparameterColumn, KeyColumn, ModelDefinition, RunOutcome, StoredModel
from grouplearn.catalog.rows import artifacts
from grouplearn.catalog.views import best_sql
from grouplearn.data.dataset import Group
from grouplearn.data.tensors import tensor_bytes
from grouplearn.errors import DataError, ModelExists, NotSupportedHere
from grouplearn.models.label import LABELLED, SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.state import Artifact
from grouplearn.schedule.messages import BlockRange
from grouplearn.store import writer as store
from grouplearn.store.objects import exists
from grouplearn.train.job import LostWork

MEMORY = ("memory", "main")


def write(con: duckdb.DuckDBPyConnection, model: ModelDefinition, run: RunOutcome, replace: bool = False) -> None:
    con.execute("BEGIN")
    try:
        store.write(con, model, run, replace=replace)
    except BaseException:
        con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")


def stored(con: duckdb.DuckDBPyConnection) -> StoredModel:
    model = load_definition(con, *MEMORY, "m")
    assert model is not None
    return model


def objects(con: duckdb.DuckDBPyConnection) -> set[str]:
    query = """
        SELECT view_name FROM duckdb_views() WHERE NOT internal
        UNION SELECT function_name FROM duckdb_functions() WHERE regexp_matches(function_name, '_(predict|drift)$')
          AND function_type = 'table_macro'
        UNION SELECT schema_name FROM duckdb_schemas() WHERE schema_name = 'grouplearn'"""
    return {row[0] for row in con.execute(query).fetchall()}


ALL = {
    "m", "m_weights", "m_curves", "m_importance", "m_features", "m_schedule", "m_versions", "m_history", "m_predict",
    "m_drift", "grouplearn",
}  # fmt: skip


@pytest.mark.usefixtures("commented")
def test_every_table_and_column_is_typed_and_tables_are_documented(con):
    store.ensure_schema(con, None)
    store.ensure_schema(con, "memory")
    tables = con.execute("SELECT table_name, comment FROM duckdb_tables() WHERE schema_name = 'grouplearn'").fetchall()
    assert {name for name, _ in tables} == {
        "models", "groups", "configs", "trials", "curves", "artifacts", "states", "refreshed", "watermarks", "units",
        "errors", "profiles", "held_out", "trees", "nodes", "layers", "factors", "leaves",
        "schema_version", "combinations", "past_models", "history",
    }  # fmt: skip
    assert all(comment for _, comment in tables)


def test_model_table(con):
    model = definition(TWO_CLASSES)
    groups = rollup_groups()
    found = [failed_outcome(model, groups[0], "a single class"), *(group_outcome(model, g, g.id) for g in groups[1:])]
    write(con, model, outcome(found))
    columns = con.sql("FROM m")
    assert dict(zip(columns.columns, map(str, columns.types), strict=True)) == {
        "carrier": "VARCHAR", "dest": "BIGINT", "model_level": "VARCHAR", "l1": "DOUBLE", "l2": "DOUBLE",
        "n_rows": "BIGINT", "n_train": "BIGINT", "n_valid": "BIGINT", "n_skipped": "BIGINT", "status": "VARCHAR",
        "train_log_loss": "DOUBLE", "valid_log_loss": "DOUBLE", "train_auc": "DOUBLE", "valid_auc": "DOUBLE",
        "train_accuracy": "DOUBLE", "valid_accuracy": "DOUBLE", "train_f1": "DOUBLE", "valid_f1": "DOUBLE",
        "epochs": "INTEGER", "converged": "BOOLEAN", "seconds": "DOUBLE", "is_best": "BOOLEAN", "error": "VARCHAR",
    }  # fmt: skip
    rows = con.sql(
        "SELECT carrier, dest, model_level, l1, n_rows, status, train_log_loss, valid_auc, is_best, error FROM m"
        " ORDER BY model_level = '()', model_level = 'carrier', carrier NULLS FIRST, dest, l1"
    ).fetchall()
    assert rows[:6] == [
        (None, None, "carrier, dest", 0.0, 100, "done", 0.5, None, False, None),
        (None, None, "carrier, dest", 0.5, 100, "done", 0.51, None, True, None),
        ("AA", 1, "carrier, dest", 0.0, 100, "failed", None, None, False, "a single class"),
        ("AA", 1, "carrier, dest", 0.5, 100, "failed", None, None, False, "a single class"),
        ("NULL", 2, "carrier, dest", 0.0, 100, "done", 0.5, None, False, None),
        ("NULL", 2, "carrier, dest", 0.5, 100, "done", 0.51, None, True, None),
    ]
    assert con.sql("SELECT group_id, config, reason FROM grouplearn.errors").fetchall() == [(0, None, "a single class")]
    best = con.sql(best_sql(con, stored(con).definition, stored(con).id, "memory", validated=True)).fetchall()
    assert len(best) == 6
    assert [row[-2] for row in best] == ["done"] * 5 + ["failed"]
    assert best[-1][3:5] == (None, None)
    assert best[-1][-1] == "a single class"


@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
def test_weights_curves_and_importance(con, label):
    model = definition(label)
    run = rollup_outcome(model)
    write(con, model, run)
    few = entries(run)[1]  # ('NULL', 2), which lacks a class when there are three
    artifact = few.trials[1].artifact
    expected = {}
    for output, row in enumerate(artifact.tensors["weights"]):
        name = model.classes[few.facts.classes[output]] if label == SEVERAL_CLASSES else None
        expected |= {(name, feature): weight for feature, weight in zip(few.facts.features, row, strict=True)}
        expected[(name, "(intercept)")] = artifact.tensors["intercept"][output]
    of_class = "class" if label == SEVERAL_CLASSES else "NULL"
    found = con.sql(
        f"SELECT {of_class}, feature, weight FROM m_weights WHERE carrier = 'NULL' AND dest = 2 AND l1 = 0.5"
    ).fetchall()
    assert {(name, feature): weight for name, feature, weight in found} == expected
    assert len(found) == len(expected)
    assert con.sql(f"SELECT epoch, train_loss, valid_{model.metric} FROM m_curves LIMIT 2").fetchall() == [
        (1, 0.9, 0.8),
        (2, 0.7, None),
    ]
    importance = con.sql("SELECT feature, importance FROM m_importance WHERE dest = 2 AND is_best").fetchall()
    sizes = np.abs(artifact.tensors["weights"]).sum(axis=0)
    assert dict(importance) == pytest.approx(dict(zip(few.facts.features, sizes, strict=True)))


def test_names_that_collide_in_the_model_table(con):
    model = definition(
        keys=(KeyColumn("status", "carrier", "VARCHAR"), KeyColumn("L1", "dest", "BIGINT")),
        hyperparameters=(HyperparameterColumn("l1", "DOUBLE"),),
    )
    write(con, model, rollup_outcome(model))
    names = con.sql("FROM m").columns
    assert names[:5] == ["status", "L1", "model_level", "l1_1", "n_rows"]
    assert names[8] == "status_1"


def test_definition_comes_back_as_it_was(con):
    configs = (
        {"layers": (64, 32), "learning_rate": 0.1, "activation": "relu", "fit_intercept": True, "depth": None, "n": 3},
        {"layers": (), "learning_rate": 1e-300, "activation": "1", "fit_intercept": False, "depth": 4, "n": 2**40},
    )
    types = {"layers": "INTEGER[]", "learning_rate": "DOUBLE", "activation": "VARCHAR", "fit_intercept": "BOOLEAN",
             "depth": "INTEGER", "n": "BIGINT"}  # fmt: skip
    columns = tuple(HyperparameterColumn(name, kind) for name, kind in types.items())
    model = definition(SEVERAL_CLASSES, catalog="memory", configs=configs, hyperparameters=columns, keep_best=1, seed=7)
    write(con, model, rollup_outcome(model))
    stored = load_definition(con, "MEMORY", "Main", "M")
    assert stored is not None
    assert stored.definition == definition(
        SEVERAL_CLASSES, catalog="MEMORY", configs=configs, hyperparameters=columns, keep_best=1, seed=7
    )
    query = f"SELECT DISTINCT {', '.join(types)} FROM m WHERE activation = 'relu'"
    assert con.sql(query).fetchall() == [([64, 32], 0.1, "relu", True, None, 3)]
    described = dict(con.sql(models.describe_sql(stored)).fetchall())
    assert described["group by"] == "carrier VARCHAR, dest BIGINT"
    assert described["trials"] == "12"


def test_keep_best_keeps_the_artifacts_of_the_best_trials_only(con):
    model = definition(keep_best=1)
    write(con, model, rollup_outcome(model))
    assert con.sql("SELECT DISTINCT config FROM grouplearn.artifacts").fetchall() == [(1,)]
    assert con.sql("SELECT count(*), count(prediction) > 200 FROM m_predict(t)").fetchall() == [(400, True)]
    assert con.sql("SELECT count(*) FROM m WHERE status = 'done'").fetchall() == [(12,)]


def test_rollback_undoes_everything(con):
    model = definition()
    con.execute("BEGIN")
    store.write(con, model, rollup_outcome(model), replace=False)
    assert objects(con) == ALL
    con.execute("ROLLBACK")
    assert objects(con) == set()
    write(con, model, rollup_outcome(model))
    before = con.sql("FROM m").fetchall(), con.sql("FROM m_predict(t)").fetchall()
    con.execute("BEGIN")
    store.write(con, model, outcome([]), replace=True)
    assert con.sql("SELECT count(*) FROM m").fetchall() == [(0,)]
    con.execute("ROLLBACK")
    assert str((con.sql("FROM m").fetchall(), con.sql("FROM m_predict(t)").fetchall())) == str(before)


def test_rows_are_stored_where_duckdb_finds_no_variables(con):
    con.execute("SET python_enable_replacements = false")
    model = definition()
    write(con, model, rollup_outcome(model))
    assert con.sql("SELECT count(*) FROM m WHERE status = 'done'").fetchall() == [(12,)]


def test_replace_leaves_nothing_of_a_model_that_keeps_one_version(con):
    write(con, definition(), rollup_outcome(definition()))
    model = definition(TWO_CLASSES, keys=(), sets=((),), keep_versions=1)
    write(con, model, outcome([group_outcome(model, Group(0, 0, (), ((0, 5),)), 1)]), replace=True)
    assert objects(con) == ALL
    for table, count in (("models", 1), ("groups", 1), ("trials", 2), ("artifacts", 2), ("configs", 2), ("units", 1)):
        assert con.sql(f"SELECT count(*) FROM grouplearn.{table}").fetchall() == [(count,)]
    assert "probability" in con.sql("FROM m_predict(t)").columns


def test_drop(con):
    write(con, definition(), rollup_outcome(definition()))
    write(con, definition(name="other"), rollup_outcome(definition()))
    con.execute("BEGIN")
    assert not store.drop(con, *MEMORY, "unknown")
    assert store.drop(con, *MEMORY, "M")
    con.execute("COMMIT")
    assert objects(con) == {name.replace("m", "other", 1) for name in ALL - {"grouplearn"}} | {"grouplearn"}
    assert con.sql("SELECT count(*), count(DISTINCT model) FROM grouplearn.trials").fetchall() == [(12, 1)]
    assert store.names(con) == ["other"]


def test_macros_with_the_names_of_duckdbs_own_tables_are_not_asked(con):
    for name in ("duckdb_views", "duckdb_functions", "duckdb_tables", "duckdb_databases", "duckdb_schemas"):
        con.execute(f"CREATE TEMP MACRO {name}() AS TABLE SELECT 1 AS nothing")
    for replace in (False, True):
        write(con, definition(), rollup_outcome(definition()), replace)
    assert store.drop(con, *MEMORY, "m")


def test_drop_spares_what_the_user_put_in_place_of_a_view(con):
    write(con, definition(), rollup_outcome(definition()))
    con.execute("DROP VIEW m_curves; CREATE TABLE m_curves AS SELECT 42 AS mine")
    con.execute("BEGIN")
    assert store.drop(con, *MEMORY, "m")
    con.execute("COMMIT")
    assert con.sql("FROM m_curves").fetchall() == [(42,)]
    assert objects(con) == {"grouplearn"}


def test_rename_takes_views_and_macro_along(con):
    write(con, definition(), rollup_outcome(definition()))
    weights, predictions = (
        con.sql("FROM m_weights").fetchall(),
        con.sql("SELECT i, prediction FROM m_predict(t)").fetchall(),
    )
    con.execute("BEGIN")
    assert store.rename(con, *MEMORY, "m", "new one")
    assert not store.rename(con, *MEMORY, "m", "other")
    con.execute("COMMIT")
    assert objects(con) == {name.replace("m", "new one", 1) for name in ALL - {"grouplearn"}} | {"grouplearn"}
    assert con.sql('FROM "new one_weights"').fetchall() == weights
    assert con.sql('SELECT i, prediction FROM "new one_predict"(t)').fetchall() == predictions
    assert con.sql("SELECT count(predict_value('new one', t)) > 200 FROM t").fetchall() == [(True,)]
    con.execute("BEGIN")
    assert store.rename(con, *MEMORY, "new one", "NEW one")
    con.execute("COMMIT")
    assert store.names(con) == ["NEW one"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE M (i INT)", 'table "M" already exists'),
        ("CREATE VIEW m_weights AS SELECT 1", 'view "m_weights" already exists'),
        ("CREATE TABLE m_curves (i INT)", 'table "m_curves" already exists'),
        ("CREATE MACRO m_predict(x) AS x + 1", 'macro "m_predict" already exists'),
        ("CREATE MACRO m_predict(x) AS TABLE SELECT x", 'macro "m_predict" already exists'),
    ],
)
def test_objects_in_the_way(con, statement, message):
    con.execute(statement)
    conflict = exists(con, *MEMORY, "m")
    assert conflict is not None
    assert (conflict.message, conflict.is_model) == (message, False)
    for replace in (False, True):
        with pytest.raises(ModelExists, match=message):
            write(con, definition(), rollup_outcome(definition()), replace=replace)


def test_a_model_in_the_way(con):
    assert exists(con, *MEMORY, "m") is None
    write(con, definition(), rollup_outcome(definition()))
    conflict = exists(con, *MEMORY, "M")
    assert conflict is not None
    assert conflict.is_model
    assert exists(con, *MEMORY, "m", replace=True) is None
    with pytest.raises(ModelExists, match='model "m" already exists'):
        write(con, definition(), rollup_outcome(definition()))
    con.execute("DROP VIEW m_weights; CREATE TABLE m_weights (i INT)")
    with pytest.raises(ModelExists, match='table "m_weights" already exists'):
        write(con, definition(), rollup_outcome(definition()), replace=True)
    con.execute("CREATE TABLE taken (i INT)")
    with pytest.raises(ModelExists, match='table "taken" already exists'):
        store.rename(con, *MEMORY, "m", "taken")


def test_show_models_has_the_same_columns_without_any(con):
    empty = con.sql(models.show_models_sql(con))
    assert empty.fetchall() == []
    assert store.names(con) == []
    assert exists(con, *MEMORY, "m") is None
    assert not store.drop(con, *MEMORY, "m")
    write(con, definition(), rollup_outcome(definition()))
    shown = con.sql(models.show_models_sql(con))
    assert (shown.columns, shown.types) == (empty.columns, empty.types)
    assert shown.fetchall()[0][:6] == ("m", "label", 6, "linear_regression", 2, 12)


def test_a_database_named_like_our_schema_is_refused(tmp_path):
    con = duckdb.connect(str(tmp_path / "grouplearn.db"))
    with pytest.raises(NotSupportedHere, match='a database named "grouplearn" cannot hold models'):
        store.ensure_schema(con, None)
    con.close()


def digest(content):
    return hashlib.sha256(content).hexdigest()


def test_artifacts_round_trip_and_refuse_damage():
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "weights": np.ones((1, 2)), "intercept": np.zeros(1)}
    content, text = tensor_bytes(tensors), b"tree\nversion=v4\n"
    linear = Artifact("tensors", {name: tensors[name] for name in ("weights", "intercept")})
    for artifact, stored in (
        (Artifact("tensors", tensors), artifacts.StoredArtifact("tensors", None, None, content, digest(content))),
        (linear, artifacts.store_weights(linear, ())),
        (Artifact("lightgbm", text=text), artifacts.StoredArtifact("lightgbm", None, None, text, digest(text))),
    ):
        back = artifacts.restore(stored, "here")
        assert (back.format, back.text) == (artifact.format, artifact.text)
        for name, value in back.tensors.items():
            np.testing.assert_array_equal(value, artifact.tensors[name])
        wrong = artifacts.StoredArtifact(stored.format, stored.weights, stored.intercept, stored.content, "0" * 64)
        with pytest.raises(DataError, match="the stored model of here is damaged: its bytes do not match"):
            artifacts.restore(wrong, "here")


def test_many_groups_load(con):
    model = definition(
        keys=(KeyColumn("k", "i", "BIGINT"),), sets=((0,),), configs=tuple({"l1": float(i)} for i in range(12))
    )
    run = outcome([group_outcome(model, Group(n, 0, (str(n),), ((0, 1),)), n) for n in range(1000)])
    write(con, model, run)
    assert con.sql("SELECT count(*), count(DISTINCT (k, l1)) FROM m").fetchall() == [(12_000, 12_000)]
    assert con.sql("SELECT count(*) FROM m_curves").fetchall() == [(24_000,)]


def test_what_was_lost_with_its_worker_is_in_the_schedule(con):
    result = rollup_outcome(definition())
    unit = result.units[0]
    lost = (LostWork(7, 0.5, 1.5), LostWork(8, 2.0, 2.5, 3, BlockRange(2, 4)))
    write(
        con, definition(), dataclasses.replace(result, units=(dataclasses.replace(unit, lost=lost), *result.units[1:]))
    )
    rows = con.execute(
        "SELECT unit, worker, started, ended, epoch, first_block, last_block FROM m_schedule WHERE kind = 'lost' ORDER BY ALL"
    ).fetchall()
    assert rows == [(unit.unit.id, 7, 0.5, 1.5, None, None, None), (unit.unit.id, 8, 2.0, 2.5, 4, 2, 4)]
