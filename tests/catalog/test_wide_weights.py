"""Models of more columns than rows set: what is stored of them, and the same predictions by every road."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import safetensors
from helpers.thorough import every_other

import grouplearn
from grouplearn.catalog.rows import artifacts
from grouplearn.data.dataset import Item
from grouplearn.data.encoding import wide
from grouplearn.data.encoding.encoder import FittedItem
from grouplearn.data.encoding.registry import encoder_of, widths_of
from grouplearn.errors import BindError, DataError
from grouplearn.models.state import Artifact

#: Groups have words of their own, NULL lists, empty ones, NULLs in them, and words that occur twice.
ROWS = """
CREATE TABLE t AS SELECT i, i % 3 AS g, i % 7 AS x, 'u' || i * 7 % 50 + g * 30 AS visitor,
  CASE WHEN i % 11 > 0 THEN list_transform(range(i % 5), lambda k:
    CASE WHEN k <> 3 THEN 'w' || (i * 31 + k * 2) % 60 + g * 20 END) || ['w1', 'w1'][1 : i % 4] END AS words,
  [1 + i % 9000, 9001 + i % 50] AS places, [1.5, i % 3 - 0.5] AS sizes,
  x * 0.3 + i * 7 % 50 % 4 > 2.0 AS late, ['low', 'mid', 'high'][1 + i // 3 % (3 - g % 2)] AS kind, x * 2.0 + i % 5 AS cost
FROM range(1500) AS r(i)
"""
FEATURES = "zscore(x), hash(visitor, 1000000), hash(words, 1073741824) AS h, sparse(places, sizes, 100000) AS s, onehot(g) AS o"
TASKS = {
    "late": ("logistic_regression", "probability", "p.probability"),
    "kind": ("logistic_regression", "map_values(probabilities)", "map_values(p.probabilities)"),
    "cost": ("linear_regression", "prediction", "p.value"),
}
OTHERS = """
CREATE TABLE fresh AS FROM t WHERE i % 5 = 0
UNION ALL BY NAME SELECT 5000 AS i, 1 AS g, 3 AS x, 'nobody' AS visitor, ['never', NULL, 'seen'] AS words,
  [77777] AS places, [1] AS sizes
UNION ALL BY NAME SELECT 5001 AS i, 99 AS g, 3 AS x
UNION ALL BY NAME SELECT 5002 AS i, 2 AS g, 3 AS x, NULL AS visitor, [] AS words, [] AS places, [] AS sizes
"""


@pytest.fixture(scope="module")
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(":memory:", progress=False) as connection:
        connection.execute(ROWS)
        connection.execute(OTHERS)
        yield connection


def train(
    con: grouplearn.Connection, label: str, options: str = "l2 = 1", features: str = FEATURES, rest: str = ""
) -> None:
    statement = f"USING {TASKS[label][0]} PREDICT {label} FEATURES ({features}) FROM t GROUP BY g"
    con.execute(f"TRAIN OR REPLACE MODEL m {statement} {rest} WITH ({options})").fetchall()


def by_macro(con: Any, label: str, source: str = "fresh") -> list[tuple[Any, ...]]:
    return con.execute(f"SELECT i, {TASKS[label][1]}, model_level FROM m_predict({source}) ORDER BY i").fetchall()


def by_function(con: Any, label: str, source: str = "fresh") -> list[tuple[Any, ...]]:
    query = f"SELECT i, predict('m', r) AS p FROM {source} AS r"
    return con.execute(f"SELECT i, {TASKS[label][2]}, p.model_level FROM ({query}) ORDER BY i").fetchall()


def same(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> None:
    assert [(number, level) for number, _, level in left] == [(number, level) for number, _, level in right]
    known = [value is None for _, value, _ in left]
    assert known == [value is None for _, value, _ in right]
    found, other = (
        np.concatenate([np.atleast_1d(value) for _, value, _ in each if value is not None]) for each in (left, right)
    )
    assert found.tolist() == pytest.approx(other.tolist(), rel=1e-12, abs=1e-12)


SOLVERS = ("l2 = 1", "l2 = 1, solver = 'coordinate_descent', epochs = 4", "l2 = 1, solver = 'sgd', epochs = 2")


@pytest.mark.examples(2)
@pytest.mark.parametrize(("label", "options"), every_other(product(TASKS, SOLVERS)))
def test_every_road_has_the_same_predictions(
    con: grouplearn.Connection, tmp_path: Path, label: str, options: str
) -> None:
    train(con, label, options, rest="VALIDATE NONE")
    macro = by_macro(con, label)
    same(macro, by_function(con, label))
    assert [value for number, value, _ in macro if number in (5000, 5001, 5002)][1] is None
    metric = {"late": "log_loss", "kind": "log_loss", "cost": "rmse"}[label]
    judged = con.execute(f"SELECT g, {metric} FROM (EVALUATE MODEL m ON t) ORDER BY g").fetchall()
    measured = con.execute(f"SELECT g, train_{metric} FROM m ORDER BY g").fetchall()
    assert [value for _, value in judged] == pytest.approx([value for _, value in measured], rel=1e-9)
    con.execute(f"EXPORT MODEL m TO '{tmp_path}/native'").fetchall()
    con.execute(f"EXPORT MODEL m TO '{tmp_path}/sql' (FORMAT sql)").fetchall()
    with duckdb.connect() as other:
        other.execute(ROWS)
        other.execute(OTHERS)
        other.execute((tmp_path / "sql" / "model.sql").read_text())
        same(macro, by_macro(other, label))
    with grouplearn.connect(":memory:", progress=False) as other:
        other.execute(ROWS)
        other.execute(OTHERS)
        other.execute(f"IMPORT MODEL m FROM '{tmp_path}/native'").fetchall()
        assert by_macro(other, label) == macro
        same(macro, by_function(other, label))
        weights = "SELECT * FROM m_weights ORDER BY ALL"
        assert other.execute(weights).fetchall() == con.execute(weights).fetchall()
    with pytest.raises(grouplearn.Error, match="is a list"):
        con.execute(f"EXPORT MODEL m TO '{tmp_path}/onnx' (FORMAT onnx)").fetchall()


def test_only_what_is_not_zero_is_stored(con: grouplearn.Connection) -> None:
    train(con, "cost", "l1 = 40, solver = 'coordinate_descent'")
    (sizes,) = con.execute(
        "SELECT sum(len(flatten(a.places))), sum(len(flatten(a.nonzeros))), max(len(a.weights)), max(len(g.features)),"
        " bool_and(NOT list_contains(flatten(a.nonzeros), 0)) FROM grouplearn.artifacts AS a JOIN grouplearn.groups AS g"
        " USING (model, group_id) WHERE model = (SELECT model FROM grouplearn.models WHERE model_name = 'm')"
    ).fetchall()
    shown = con.execute("SELECT count(*), count(*) FILTER (weight <> 0) FROM m_weights").fetchall()
    narrow, groups = 2, 3  # x and its own column of g, beside an intercept
    seen = con.execute("SELECT count(DISTINCT (g, visitor)) FROM t").fetchall()[0][0]
    assert 0 < sizes[0] == sizes[1] < seen
    assert sizes[2:] == (narrow, narrow, True)
    assert shown[0][0] == sizes[0] + groups * (narrow + 1)
    importance = con.execute("SELECT feature, importance FROM m_importance WHERE g = 0 AND importance > 0").fetchall()
    weights = con.execute(
        "SELECT feature, abs(weight) FROM m_weights WHERE g = 0 AND weight <> 0 AND feature <> '(intercept)'"
    )
    assert sorted(importance) == sorted(weights.fetchall())


def test_names_are_those_of_the_columns(con: grouplearn.Connection) -> None:
    train(
        con,
        "cost",
        features='x, hash(visitor, 5000) AS v, sparse(places, sizes, 100000) AS "s\'q", hash(words, 9999) AS w',
    )
    expected = {
        f"v[{bucket}]"
        for (bucket,) in con.execute("SELECT md5_number_lower(visitor) % 5000 FROM t WHERE g = 1").fetchall()
    }
    expected |= {f"s'q[{place}]" for (place,) in con.execute("SELECT unnest(places) FROM t WHERE g = 1").fetchall()}
    expected |= {
        f"w[{bucket}]"
        for (bucket,) in con.execute(
            "SELECT md5_number_lower(word) % 9999 FROM (SELECT unnest(words) AS word FROM t WHERE g = 1) WHERE word IS NOT NULL"
        ).fetchall()
    }
    found = {name for (name,) in con.execute("SELECT feature FROM m_weights WHERE g = 1").fetchall()}
    assert found <= {"x", "(intercept)", *expected}
    assert len(expected - found) < 20  # some weights are 0


def threshold(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(wide, "WIDE_COLUMNS", columns)


NARROW = (
    "x, hash(visitor, 8), hash(words, 6) AS h, sparse(few, sizes, 3) AS s, multihot(words) AS m, onehot(visitor) AS o"
)


WIDE = ["wide_hash", "wide_hash", "wide_sparse", "wide_multihot", "wide_onehot"]


@pytest.mark.examples(2)
@pytest.mark.parametrize(("label", "options"), every_other(product(TASKS, SOLVERS), 1))
def test_both_forms_have_the_same_bits_where_all_columns_are_set(
    monkeypatch: pytest.MonkeyPatch, label: str, options: str
) -> None:
    found = []
    with grouplearn.connect(":memory:", progress=False) as con:
        con.execute(ROWS)
        con.execute("ALTER TABLE t ADD COLUMN few INT[]; UPDATE t SET few = [1 + i % 2, 3]")
        con.execute("CREATE TABLE fresh AS FROM t WHERE i % 2 = 0")
        for columns in (4096, 2):
            threshold(monkeypatch, columns)
            train(con, label, options, NARROW)
            encoders = con.execute("SELECT unnest(items).encoder FROM grouplearn.models").fetchall()
            assert [name for (name,) in encoders if name.startswith("wide")] == (WIDE if columns == 2 else [])
            weights = con.execute("FROM m_weights WHERE weight <> 0 ORDER BY ALL").fetchall()
            importance = con.execute("FROM m_importance WHERE importance <> 0 ORDER BY ALL").fetchall()
            found.append((weights, importance, by_macro(con, label), by_function(con, label)))
    narrow, wide_form = found
    assert narrow[:2] == wide_form[:2]
    assert narrow[3] == wide_form[3]
    same(narrow[2], wide_form[2])


@pytest.mark.parametrize("label", TASKS)
def test_rows_of_single_values(con: grouplearn.Connection, label: str) -> None:
    train(con, label, features="x, hash(visitor, 1000000), onehot(g) AS o, hash(i % 40, 5000) AS n")
    same(by_macro(con, label), by_function(con, label))


def test_many_categories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with grouplearn.connect(":memory:", progress=False) as con:
        con.execute(ROWS)
        con.execute(OTHERS)
        features = "onehot(visitor) AS o, multihot(words) AS m, ordinal(kind) AS k"
        options = "l1 = 3, solver = 'coordinate_descent', epochs = 20"
        found, weights = [], []
        for columns in (4096, 20):
            threshold(monkeypatch, columns)
            train(con, "cost", options, features)
            found.append(by_macro(con, "cost"))
            same(found[-1], by_function(con, "cost"))
            weights.append(con.execute("SELECT g, feature, weight FROM m_weights ORDER BY ALL").fetchall())
        same(*found)
        kept = [row for row in weights[0] if row[2] or row[1] in ("k", "(intercept)")]
        assert weights[1] == kept
        assert len(kept) < len(weights[0])
        con.execute(f"EXPORT MODEL m TO '{tmp_path}/sql' (FORMAT sql)").fetchall()
        with duckdb.connect() as other:
            other.execute(ROWS)
            other.execute(OTHERS)
            other.execute((tmp_path / "sql" / "model.sql").read_text())
            same(found[1], by_macro(other, "cost"))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_stored_comes_back_as_it_was(seed: int) -> None:
    """Of random items and weights, a wide form that is stored scores as the model with all of its columns."""
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    fitted, outputs = [], draw.randrange(1, 4)
    for number in range(draw.randrange(1, 6)):
        if draw.random() < 0.5:
            buckets = draw.choice((1, 7, 1 << 30))
            seen = np.unique(numbers.integers(0, buckets, draw.randrange(5)))
            fitted.append(
                FittedItem(Item(f"w{number}", "hash", number, "wide_hash", buckets=buckets), columns=seen.tobytes())
            )
        else:
            fitted.append(FittedItem(Item(f"n{number}", "hash", number, "hash", buckets=draw.randrange(1, 4))))
    width = sum(widths_of(fitted))
    weights = numbers.normal(size=(outputs, width)) * (numbers.random((1, width)) < 0.6)
    artifact = Artifact("tensors", {"weights": weights, "intercept": numbers.normal(size=outputs)})
    stored = artifacts.store_weights(artifact, fitted)
    # What the catalog says of wide items is that they are such; their columns come with the model.
    bare = [FittedItem(item.item) for item in fitted]
    back, own = artifacts.with_columns(stored, artifacts.restore(stored, "x"), bare, "x")
    assert back.tensors["intercept"].tobytes() == artifact.tensors["intercept"].tobytes()
    kept, at = [], 0
    for before, after in zip(fitted, own, strict=True):
        encoder, (width,) = encoder_of(before.item), widths_of([before])
        part = weights[:, at : at + width]
        chosen = (part != 0).any(axis=0) if encoder.wide else np.ones(width, bool)
        assert encoder.numbers(after).tolist() == encoder.numbers(before)[chosen].tolist()
        kept.append(part[:, chosen])
        at += width
    assert back.tensors["weights"].tobytes() == np.concatenate(kept, axis=1).tobytes()


def test_groups_of_few_and_of_many_levels(con: grouplearn.Connection) -> None:
    con.execute(
        "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT cost FEATURES (x, hash(words, 100000) AS h) FROM t"
        " GROUP BY ROLLUP (g) OVER GRID (l2 IN (1, 10)) VALIDATE FOLDS 3"
    ).fetchall()
    assert con.execute("SELECT DISTINCT status FROM m").fetchall() == [("done",)]
    macro = by_macro(con, "cost")
    same(macro, by_function(con, "cost"))
    assert {level for _, _, level in macro} == {"g", "()"}  # a group that is not there goes to all rows
    assert con.execute("SELECT count(*) FROM (DESCRIBE MODEL m) WHERE value LIKE '%h (hash)%'").fetchall() == [(1,)]


def test_one_hash_is_exported_to_onnx_and_safetensors(con: grouplearn.Connection, tmp_path: Path) -> None:
    import onnxruntime

    con.execute(
        "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT cost FEATURES (hash(visitor, 16777216) AS v) FROM t"
        " WITH (l2 = 1)"
    ).fetchall()
    con.execute(f"EXPORT MODEL m TO '{tmp_path}/onnx' (FORMAT onnx)").fetchall()
    con.execute(f"EXPORT MODEL m TO '{tmp_path}/tensors' (FORMAT safetensors)").fetchall()
    rows = con.execute("SELECT md5_number_lower(visitor) % 16777216, prediction FROM m_predict(t) LIMIT 40").fetchall()
    session = onnxruntime.InferenceSession(str(next(Path(tmp_path, "onnx").glob("*.onnx"))))
    given = np.array([[bucket] for bucket, _ in rows] + [[-1]], np.int64)
    (predicted,) = session.run(["prediction"], {"v": given})
    assert predicted.ravel()[:-1].tolist() == pytest.approx([value for _, value in rows], rel=1e-12)
    path = next(Path(tmp_path, "tensors").glob("*.safetensors"))
    with safetensors.safe_open(str(path), "numpy") as file:
        names, weights = json.loads(file.metadata()["features"]), file.get_tensor("weights").ravel()
        intercept = float(file.get_tensor("intercept")[0])
    known = dict(zip(names, weights.tolist(), strict=True))
    assert [known[f"v[{bucket}]"] + intercept for bucket, _ in rows] == pytest.approx([value for _, value in rows])


# --- items that were not wide, damage -------------------------------------------------------------------------------


def test_retry_of_a_model_whose_items_were_not_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    features = "x, hash(visitor, 5000) AS v"
    with grouplearn.connect(":memory:", progress=False) as con:
        con.execute(ROWS)
        con.execute(OTHERS)
        con.execute("UPDATE t SET cost = NULL WHERE g = 1 AND i = 4")
        threshold(monkeypatch, 1 << 22)
        train(con, "cost", features=features, rest="ON NULL LABEL ERROR")
        threshold(monkeypatch, 4096)
        con.execute("UPDATE t SET cost = 1 WHERE i = 4")
        con.execute("RETRY FAILED MODEL m").fetchall()
        assert con.execute("SELECT count(*) FROM m_weights").fetchall() == [(3 * 5_002,)]
        same(by_macro(con, "cost"), by_function(con, "cost"))


CHANGES: dict[str, tuple[str, str]] = {
    "another place": ("places = [places[1], list_transform(places[2], lambda p: p + 1)]", "do not match their SHA-256"),
    "another weight": (
        "nonzeros = [nonzeros[1], list_transform(nonzeros[2], lambda w: w + 1)]",
        "do not match their SHA-256",
    ),
    "a weight less": ("nonzeros = [nonzeros[1], nonzeros[2][2:]]", "weights and columns differ in number"),
    "a place that is NULL": ("places = [places[1], [NULL] || places[2][2:]]", "weights and columns differ in number"),
    "no places": ("places = NULL", "weights and columns differ in number"),
    "an item less": ("places = [places[2]], nonzeros = [nonzeros[2]]", "weights and columns differ in number"),
}


def test_damaged_weights_are_told() -> None:
    with grouplearn.connect(":memory:", progress=False) as con:
        con.execute(ROWS)
        con.execute(OTHERS)
        train(con, "cost", features="x, hash(words, 100000) AS h")
        con.execute("CREATE TABLE whole AS FROM grouplearn.artifacts")
        for changed, message in CHANGES.values():
            con.execute("DELETE FROM grouplearn.artifacts; INSERT INTO grouplearn.artifacts FROM whole")
            con.execute(f"UPDATE grouplearn.artifacts SET {changed} WHERE group_id = 1")
            for statement in ("SELECT predict('m', t) FROM t", "EVALUATE MODEL m ON t"):
                with pytest.raises(grouplearn.Error, match=message):
                    con.execute(statement).fetchall()


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([[5, 4]], "are not numbers below 10 in ascending order"),
        ([[4, 4]], "are not numbers below 10 in ascending order"),
        ([[-1, 4]], "are not numbers below 10 in ascending order"),
        ([[4, 10]], "are not numbers below 10 in ascending order"),
        ([[4, 9], []], "it has columns of 2 items, and the model has 1"),
    ],
)
def test_columns_that_cannot_be(places: list[list[int]], message: str) -> None:
    fitted = FittedItem(Item("h", "hash", 0, "wide_hash", buckets=10))
    listed = [np.array(each, np.int64) for each in places]
    stored = artifacts.StoredArtifact("linear", np.empty(0), np.ones(1), None, "", listed, [np.ones(2)])
    model = Artifact("tensors", {"weights": np.ones((1, 2)), "intercept": np.ones(1)})
    with pytest.raises(DataError, match=message):
        artifacts.with_columns(stored, model, [fitted], "x")


# --- limits --------------------------------------------------------------------------------------------------------


def test_other_learners_take_fewer_columns(con: grouplearn.Connection) -> None:
    statement = "TRAIN MODEL other USING gbdt PREDICT cost FEATURES (hash(visitor, {})) FROM t"
    with pytest.raises(BindError) as error:
        con.execute(statement.format(4_194_305))
    assert str(error.value).startswith("gbdt takes at most 4,194,304 columns of one item, got 4,194,305")
    assert f"\n{' ' * len('LINE 1: ' + statement.split('{')[0])}^^^^^^^\n" in str(error.value)
    with pytest.raises(BindError, match="buckets must be a whole number from 1 to 1073741824, got 1073741825"):
        con.execute(statement.format(1_073_741_825))


def refused(con: grouplearn.Connection, statement: str) -> str:
    with pytest.raises(BindError) as error:
        con.execute(statement)
    return str(error.value)


def test_what_does_not_fit_is_refused_before_rows_are_read(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Callable[..., Any] = pytest.fail
    con.execute("CREATE OR REPLACE TABLE many AS SELECT [i, i + 1] AS words, i % 9 AS y FROM range(6000) AS r(i)")
    statement = (
        "TRAIN MODEL large USING linear_regression PREDICT y FEATURES ({}) FROM many WITH (memory_limit = '300MB'{})"
    )
    with monkeypatch.context() as patch:
        patch.setattr("grouplearn.statements.train.extract", read)
        for features in ("hash(words, 1000000)", "multihot(words)"):
            message = refused(con, statement.format(features, ""))
            assert message.startswith("linear_regression by moments takes about ")
            assert "columns; the limit is 300 MB" in message
            assert "Hint: WITH (solver = 'coordinate_descent') takes about" in message
        assert "by moments" in refused(con, statement.format("hash(words[1], 1000000)", ", l1 = 1"))
    # Columns of one value are kept apart without the zeros between them, and the hint is good advice.
    con.execute(statement.format("hash(words[1], 1000000)", ", l2 = 1")).fetchall()
    con.execute("DROP MODEL large")
    con.execute(statement.format("multihot(words)", ", solver = 'coordinate_descent', epochs = 2")).fetchall()


def test_a_group_that_does_not_fit_fails_and_the_others_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grouplearn.train.rows.chosen.memory_limit", lambda: 50_000_000)
    with grouplearn.connect(":memory:", progress=False) as con:
        con.execute(
            "CREATE TABLE many AS SELECT i < 100 AS small, [i, i + 1] AS words, i % 9 AS y FROM range(3000) AS r(i)"
        )
        con.execute(
            "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (hash(words, 1000000) AS h) FROM many GROUP BY small"
            " WITH (l2 = 1)"
        ).fetchall()
        (failed, done) = con.execute("SELECT status, error FROM m ORDER BY small").fetchall()
        assert done == ("done", None)
        assert failed[0] == "failed"
        assert failed[1].endswith("columns, and there are 50 MB; hint: WITH (solver = 'coordinate_descent')")


def test_weights_that_are_zero_for_one_class_are_not_shown() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT ['w' || i % 7] AS words, 'c' || if(i % 7 < 3, i % 7, hash(i) % 3) AS y"
            " FROM range(400) AS r(i)"
        )
        con.execute(
            "TRAIN MODEL m USING linear_svm PREDICT y FEATURES (hash(words, 5000)) FROM t"
            " WITH (l1 = 4, solver = 'coordinate_descent')"
        )
        shown = con.execute("SELECT weight FROM m_weights WHERE feature <> '(intercept)'").fetchall()
        assert 0 < len(shown) < 21
        assert (0.0,) not in shown
