"""Models whose rows in the catalog cannot be: every statement says so in our words, and DROP MODEL is rid of them."""

import hashlib
import re
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import damaging
import duckdb
import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy

import grouplearn
from grouplearn.catalog import models
from grouplearn.errors import DataError
from grouplearn.prediction.rows.row_reader import bucket_numbers

#: Damages that each did something else once: raised Python's errors, hung, or named nothing.
KNOWN = (
    ("models", "task", "'x'"),
    ("models", "items", "[struct_update({first}, position := 2000000000)]"),
    ("models", "sets", "[[7]]"),
    ("groups", "fills", "[]"),
    ("groups", "best", "20000"),
    ("trees", "depth", "20000"),
    ("layers", "layers", "20000"),
    ("units", "epoch", "NULL"),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damaged") / "whole.duckdb"
    damaging.make(path)
    return path


@pytest.fixture
def broken(whole: Path, tmp_path: Path) -> Path:
    shutil.copy(whole, tmp_path / "broken.duckdb")
    return tmp_path / "broken.duckdb"


@pytest.fixture
def con(broken: Path) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(str(broken), progress=False) as connection:
        yield connection


#: A damage, a statement, and what it says.
TOLD = {
    "depth": (
        ("trees", "depth", "20000"),
        "EVALUATE MODEL trees ON t",
        'model "trees" is damaged: in table broken.grouplearn.trees, depth is 20000, and it is 0 to 64.\n\n'
        "Hint: DROP MODEL trees removes it, TRAIN OR REPLACE MODEL trees trains it again",
    ),
    "layers": (("layers", "layers", "20000"), "EXPORT MODEL net TO '{to}'", "layers is 20000, and it is 1 to 8"),
    "level": (("groups", "level", "7"), "SELECT predict('line', t) FROM t", "a group has a level that the model does not have"),
    "groups twice": (("groups", "group_id", "0"), "EVALUATE MODEL line ON t", "two rows are the same group"),
    "nodes twice": (("nodes", "node", "1"), "EVALUATE MODEL trees ON t", "two rows are the same node"),
    "most": (("leaves", "most", "200000"), "EVALUATE MODEL leaves ON t", "most is 200000, and it is 2 to 65,536"),
    "cases": (
        ("leaves", "starts", "list_reverse(starts)"),
        "EXPORT MODEL leaves TO '{to}' (FORMAT sql)",
        "the cases of a number differ from those of its group",
    ),
    "leaves": (("leaves", "addends", "[0.5]"), "EXPORT MODEL leaves TO '{to}' (FORMAT sql)", "a set or a leaf is missing"),
    "starts": (("groups", "starts", "list_reverse(starts)"), "EVALUATE MODEL line ON t", "not those of its encoders"),
    "task": (
        ("models", "task", "'x'"),
        "DESCRIBE MODEL net",
        "task is 'x', and it is one of binary, multiclass, regression, clustering, projection",
    ),
    "buckets": (
        ("models", "items", "list_transform(items, lambda i: struct_update(i, buckets := 2000000000))"),
        "DESCRIBE MODEL line",
        "has 2000000000 buckets, and at most 4,194,304",
    ),
    "fewer buckets": (
        ("models", "items", "list_transform(items, lambda i: struct_update(i, buckets := least(i.buckets, 3)))"),
        "SELECT predict('line', t) FROM t",
        "the feature columns of a group differ from those of its encoders",
    ),
    "classes": (
        ("groups", "classes", "[NULL, NULL]"),
        "EVALUATE MODEL net ON t",
        "the classes of a group differ from those of the model",
    ),
    "position": (
        ("models", "items", "list_transform(items, lambda i: struct_update(i, position := 2000000000))"),
        "SELECT predict('net', t) FROM t",
        "an item is at position 2000000000 of",
    ),
    "same names": (
        ("models", "items", "list_transform(items, lambda i: struct_update(i, name := 'a'))"),
        "EXPORT MODEL line TO '{to}' (FORMAT onnx)",
        "two items have the same name",
    ),
    "array": (("models", "label_type", "'DOUBLE[999999999]'"), "DESCRIBE MODEL line", "an array has 100,000 values"),
    "statement": (("models", "statement", "'SELECT 1'"), "RETRY FAILED MODEL {failed}", "the statement is not one TRAIN"),
    "names": (
        ("models", "hyperparameters", "list_transform(hyperparameters, lambda i: struct_update(i, name := 'nothing'))"),
        "RETRY FAILED MODEL trees",
        "its configurations differ from those of the model",
    ),
    "metrics": (
        ("models", "metrics", "list_resize(metrics, 2000, metrics[1])"),
        "DESCRIBE MODEL line",
        "metrics is longer than there can be",
    ),
    "a long name": (
        ("models", "items", f"list_transform(items, lambda i: struct_update(i, name := repeat('x', {1 << 24})))"),
        "DESCRIBE MODEL line",
        "items is longer than there can be",
    ),
    "a long set": (("models", "sets", f"[range({(1 << 20) + 1})::INTEGER[]]"), "DESCRIBE MODEL net", "sets is longer than"),
    "no name": (
        ("models", "hyperparameters", "list_transform(hyperparameters, lambda i: struct_update(i, name := ''))"),
        "DESCRIBE MODEL trees",
        "a hyperparameter has no name",
    ),
    "keys twice": (
        ("groups", "keys", "list_transform(keys, lambda k: NULL::VARCHAR)"),
        "EVALUATE MODEL line ON t",
        "two groups have the same keys",
    ),
    "classes of numbers": (
        ("groups", "classes", "[0]"),
        "EXPORT MODEL line TO '{to}' (FORMAT onnx)",
        "a group has classes, and the label has none",
    ),
    "rows": (("groups", "n_rows", "9223372036854775807"), "EVALUATE MODEL line ON t", "or more than there can be"),
    "rows that nobody counted": (("groups", "n_rows", "NULL"), "EVALUATE MODEL line ON t", "how many rows a group has"),
    "activation": (("layers", "activation", "''"), "EVALUATE MODEL net ON t", "an activation that there is not"),
    "weights": (("layers", "weights", "[[1.0], [1.0, 2.0]]"), "EVALUATE MODEL net ON t", "not as many weights each"),
    "bias": (("layers", "bias", "[1.0]"), "EVALUATE MODEL net ON t", "or not one bias"),
    "configs": (("configs", "config", "7"), "DESCRIBE MODEL line", "configurations are not numbered from 0 on"),
    "a long list": (
        ("configs", "parameters", f"MAP {{'hidden_layers': '[' || repeat('1, ', {1 << 23}) || '1]'}}"),
        "DESCRIBE MODEL net",
        "in table broken.grouplearn.configs, lists in parameters are longer than there can be",
    ),
}  # fmt: skip


@pytest.mark.examples(3)
@pytest.mark.parametrize("name", TOLD)
def test_what_is_damaged_is_named(broken: Path, tmp_path: Path, name: str) -> None:
    damage, statement, told = TOLD[name]
    assert damaging.damage(broken, *damage)
    with duckdb.connect(str(broken)) as plain:
        plain.execute("UPDATE grouplearn.trials SET status = 'failed' WHERE config = 0")
    with (
        grouplearn.connect(str(broken), progress=False) as con,
        pytest.raises(grouplearn.Error, match=re.escape(told)),
    ):
        con.execute(statement.format(to=tmp_path / "to", failed="line")).fetchall()


def test_all_parameters_together_are_not_longer_than_there_can_be(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("UPDATE grouplearn.configs SET parameters = map_concat(parameters, MAP {'other': repeat('x', 1000)})")
    con.execute("DESCRIBE MODEL trees").fetchall()
    monkeypatch.setattr(models, "_MOST_BYTES", 2000)  # of two configurations
    with pytest.raises(grouplearn.Error, match=r"configs, parameters are longer than there can be"):
        con.execute("DESCRIBE MODEL trees").fetchall()


@pytest.mark.parametrize("kind", ["onnx", "safetensors", "sql"])
def test_a_text_that_is_not_utf8_is_named(broken: Path, tmp_path: Path, kind: str) -> None:
    text = "list_transform({column}, lambda c: list_transform(c, lambda each: each || 'QZQZQZQZ'))"
    assert damaging.damage(broken, "groups", "categories", text)
    with duckdb.connect(str(broken)) as plain:
        plain.execute("CHECKPOINT")
    assert damaging.patch(broken, b"QZQZQZQZ", b"Q\xff\xfe\x80\xc3\xed\xa0\x80")
    with grouplearn.connect(str(broken), progress=False) as con:
        for statement in (
            f"EXPORT MODEL line TO '{tmp_path / 'to'}' (FORMAT {kind})",
            "SELECT predict('line', t) FROM t",
        ):
            with pytest.raises(grouplearn.Error, match=r'model "line" is damaged: in table .*, a text is not UTF-8'):
                con.execute(statement).fetchall()


@pytest.mark.parametrize("name", ["len", "list_aggr"])
def test_a_model_is_not_called_damaged_where_a_macro_hides_what_looks_at_it(name: str) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i % 3 AS g, i AS x, i % 7 AS y FROM range(30) AS r(i)")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g")
        con.execute(f"CREATE TEMP MACRO {name}(a) AS NULL, (a, b) AS NULL")
        with pytest.raises(DataError, match=f'cannot be read while macro "temp"."main"."{name}" hides'):
            con.execute("EVALUATE MODEL m ON t")
        con.execute(f"DROP MACRO temp.main.{name}")
        assert len(con.execute("EVALUATE MODEL m ON t").fetchall()) == 3


@pytest.mark.examples(2)
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known[0]}.{known[1]}")
def test_a_damaged_model_is_dropped_and_replaced(broken: Path, known: tuple[str, str, str]) -> None:
    assert damaging.damage(broken, *known)
    with grouplearn.connect(str(broken), progress=False) as con:
        assert len(con.execute("SHOW MODELS").fetchall()) == 5
        for name in ("line", "trees", "leaves", "net"):
            con.execute(
                f"TRAIN OR REPLACE MODEL {name} USING linear_regression PREDICT y FEATURES (x) FROM t"
            ).fetchall()
        assert len(con.execute("FROM line_predict(t)").fetchall()) == 90
    with duckdb.connect(str(broken)) as plain:  # what was damaged is gone with it
        left = plain.execute(f"SELECT count(*) FROM grouplearn.{known[0]}").fetchall()
    assert damaging.damage(broken, *known) or left == [(0,)]
    with grouplearn.connect(str(broken), progress=False) as con:
        con.execute("DROP MODEL line, trees, leaves, net").fetchall()
        assert [row[0] for row in con.execute("SHOW MODELS").fetchall()] == ["other"]


# --- artifacts with a right checksum -------------------------------------------------------------------------------


def written(con: grouplearn.Connection, model: str, content: bytes) -> None:
    """Put bytes in the place of all artifacts of a model, with their digest."""
    con.execute(
        "UPDATE grouplearn.artifacts SET content = ?, sha256 = ? WHERE model ="
        f" (SELECT model FROM grouplearn.models WHERE model_name = '{model}')",
        [content, hashlib.sha256(content).hexdigest()],
    )


def content_of(con: grouplearn.Connection, model: str) -> bytes:
    query = (
        "SELECT a.content FROM grouplearn.artifacts AS a JOIN grouplearn.models AS m ON m.model = a.model"
        f" WHERE m.model_name = '{model}' ORDER BY a.group_id ASC"
    )
    found = con.execute(query).fetchall()[0][0]
    return bytes(found)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT predict('trees', t) FROM t",
        "EXPORT MODEL trees TO '{to}' (FORMAT onnx)",
        "EXPORT MODEL trees TO '{to}' (FORMAT lightgbm)",
        "EXPORT MODEL trees TO '{to}' (FORMAT sql)",
    ],
)
def test_trees_that_lead_in_circles(con: grouplearn.Connection, tmp_path: Path, statement: str) -> None:
    text = re.sub(rb"^left_child=\S+", b"left_child=0", content_of(con, "trees"), count=1, flags=re.MULTILINE)
    written(con, "trees", text)
    with pytest.raises(grouplearn.Error, match=r'the stored model of model "trees", group .* is damaged: '):
        con.execute(statement.format(to=tmp_path / "to")).fetchall()


def test_trees_that_are_too_deep_for_onnx(con: grouplearn.Connection, tmp_path: Path) -> None:
    export = f"EXPORT MODEL deep TO '{tmp_path / 'to'}' (FORMAT onnx)"
    con.execute(
        "TRAIN MODEL deep USING gbdt PREDICT y FEATURES (x) FROM t"
        " WITH (num_iterations = 1, num_leaves = 2, min_data_in_leaf = 1)"
    )
    text = content_of(con, "deep")
    written(con, "deep", chain(text, 501))
    with pytest.raises(grouplearn.Error, match=r"trees that ask more than 500 questions in a row have no ONNX form"):
        con.execute(export).fetchall()
    assert len(con.execute("SELECT predict('deep', t) FROM t").fetchall()) == 90
    written(con, "deep", chain(text, 500))
    con.execute(export).fetchall()


def chain(text: bytes, splits: int) -> bytes:
    """Return a model of one tree that asks so many questions in a row."""
    start, end = text.index(b"Tree=0\n"), text.index(b"end of trees\n")
    last = -splits - 1
    lists: dict[str, list[int]] = {
        "num_leaves": [splits + 1],
        "threshold": [*range(splits, 0, -1)],
        "left_child": [*range(1, splits), last],
        "right_child": [*range(-1, last, -1)],
        "decision_type": [2] * splits,
        **dict.fromkeys(("leaf_value", "leaf_weight", "leaf_count"), [1] * (splits + 1)),
        **dict.fromkeys(
            ("split_feature", "split_gain", "internal_value", "internal_weight", "internal_count"), [0] * splits
        ),
    }
    tree = text[start:end]
    for name, values in lists.items():
        line = f"{name}={' '.join(map(str, values))}".encode()
        tree = re.sub(rb"^" + name.encode() + rb"=.*$", line, tree, flags=re.MULTILINE)
    head = re.sub(rb"^tree_sizes=.*$", f"tree_sizes={len(tree)}".encode(), text[:start], flags=re.MULTILINE)
    return head + tree + text[end:]


def test_trees_of_an_export_are_looked_at(con: grouplearn.Connection, tmp_path: Path) -> None:
    written(con, "trees", content_of(con, "trees").replace(b"split_feature=0", b"split_feature=9"))
    con.execute(f"EXPORT MODEL trees TO '{tmp_path / 'to'}'").fetchall()
    with pytest.raises(grouplearn.Error, match=r"cannot be imported: .* is damaged: "):
        con.execute(f"IMPORT MODEL again FROM '{tmp_path / 'to'}'").fetchall()


NETWORK = {
    "activation": np.zeros(1),
    "weight_0": np.zeros((3, 6)),
    "bias_0": np.zeros(3),
    "weight_1": np.zeros((1, 3)),
    "bias_1": np.zeros(1),
}


@pytest.mark.examples(5)
@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        ({}, None),
        ({"weight_0": np.zeros((3, 7))}, "its tensor weight_0 is float64[3, 7], not float64[3, 6]"),
        ({"weight_1": np.zeros((1, 4))}, "its tensor weight_1 is float64[1, 4], not float64[1, 3]"),
        ({"weight_0": np.zeros((3, 6), np.float32)}, "its tensor weight_0 is float32[3, 6], not float64[3, 6]"),
        ({"bias_0": np.zeros((3, 1))}, "its tensor bias_0 is float64[3, 1], not float64[3]"),
        ({"activation": np.array([1e300])}, "its activation is number 1e+300 of 4"),
        ({"activation": np.array([np.nan])}, "its activation is number nan of 4"),
        ({"weight_9": np.zeros(1)}, "it has no tensor "),
        ({"other": np.zeros(1)}, "it has a tensor 'other'"),
    ],
)
def test_networks_of_another_shape(
    con: grouplearn.Connection, tensors: dict[str, np.ndarray], told: str | None
) -> None:
    written(con, "net", bytes(safetensors.numpy.save(NETWORK | tensors)))
    if told is None:
        assert len(con.execute("SELECT predict('net', t) FROM t").fetchall()) == 90
        return
    with pytest.raises(grouplearn.Error, match=re.escape(f"is damaged: {told}")):
        con.execute("SELECT predict('net', t) FROM t").fetchall()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 8, (1 << 62).to_bytes(8, "little") + b"{}", b"\x02" + bytes(7) + b"{}", b"\x10" + bytes(40)],
)
def test_tensors_that_are_none(con: grouplearn.Connection, content: bytes) -> None:
    written(con, "net", content)
    with pytest.raises(grouplearn.Error, match=r"is damaged: (it is no file of tensors|it has no layer)"):
        con.execute("SELECT predict('net', t) FROM t").fetchall()


def test_weights_that_are_not_one_per_column(con: grouplearn.Connection) -> None:
    weights, intercept = np.zeros(4), np.zeros(1)
    digest = hashlib.sha256(weights.tobytes() + intercept.tobytes()).hexdigest()
    con.execute(
        "UPDATE grouplearn.artifacts SET weights = ?, intercept = ?, sha256 = ? WHERE format = 'linear'",
        [weights.tolist(), intercept.tolist(), digest],
    )
    with pytest.raises(grouplearn.Error, match=re.escape("its tensor weights is float64[1, 4], not float64[1, 11]")):
        con.execute("SELECT predict('line', t) FROM t").fetchall()


@pytest.mark.examples(2)
@pytest.mark.parametrize("schema", ["", "gone", "tanh", 'a"b'])
def test_a_model_in_a_schema_that_is_nowhere_is_dropped_by_its_name(schema: str) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE SCHEMA two; CREATE TABLE t AS SELECT i AS x, i * 2.0 AS y FROM range(9) AS r(i)")
        for name in ("m", "two.m"):
            con.execute(f"TRAIN MODEL {name} USING linear_regression PREDICT y FEATURES (x) FROM t")
        con.native.execute("UPDATE grouplearn.models SET schema_name = ? WHERE schema_name = 'main'", [schema])
        con.execute("DROP MODEL m").fetchall()
        assert con.execute("SELECT schema_name FROM grouplearn.models").fetchall() == [("two",)]
        con.execute("DROP MODEL m").fetchall()  # what was left of it where it had been
        assert (
            con.execute("SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal").fetchall()
            == []
        )
        with pytest.raises(grouplearn.Error, match="unknown model"):
            con.execute("DROP MODEL m").fetchall()
        assert "nothing was dropped" in str(con.execute("DROP MODEL IF EXISTS m").fetchall())


_OF_NOBODY = "UPDATE grouplearn.models SET learner = 'gbd'"


@pytest.mark.parametrize(
    ("learner", "damage"),
    [
        *((learner, "DELETE FROM grouplearn.configs") for learner in ("gbdt", "mlp", "linear_regression")),
        ("gbdt", _OF_NOBODY),
        ("mlp", _OF_NOBODY),
    ],
)
def test_models_without_configurations_or_of_an_unknown_learner(learner: str, damage: str) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i * 2.0 AS y FROM range(60) AS r(i)")
        con.execute(f"TRAIN MODEL m USING {learner} PREDICT y FEATURES (x) FROM t")
        con.native.execute(damage)
        for statement in ("DESCRIBE MODEL m", "EVALUATE MODEL m ON t", "ALTER MODEL m RENAME TO n"):
            with pytest.raises(DataError, match="is damaged: in table"):
                con.execute(statement)
        con.execute("DROP MODEL m")


def test_weights_of_an_unknown_learner() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i * 2.0 AS y FROM range(60) AS r(i)")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t")
        con.native.execute("UPDATE grouplearn.models SET learner = 'gbd'")
        assert "the learner gbd is not registered" in dict(con.execute("DESCRIBE MODEL m").fetchall())["prediction"]
        for statement in ("EVALUATE MODEL m ON t", "ALTER MODEL m RENAME TO n"):
            with pytest.raises(grouplearn.Error, match="the learner gbd"):
                con.execute(statement)
        con.execute("DROP MODEL m")


def test_a_report_of_more_weights_than_features(tmp_path: Path) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i * 2.0 AS y FROM range(60) AS r(i)")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t")
        con.native.execute("UPDATE grouplearn.artifacts SET weights = weights || weights")
        with pytest.raises(DataError, match="artifacts, a model has more weights"):
            con.model("m").report(str(tmp_path / "m.html"))


@pytest.mark.parametrize(
    "damage", [("models", "trained_at", "'290000-01-01'::TIMESTAMP"), ("groups", "model", "uuid()")]
)
def test_a_report_of_what_no_calendar_of_pythons_has_and_of_no_groups(
    broken: Path, damage: tuple[str, str, str]
) -> None:
    assert damaging.damage(broken, *damage)
    with grouplearn.connect(str(broken), progress=False) as con:
        for name in ("line", "trees", "leaves", "net"):
            assert "</html>" in con.model(name).report()


@pytest.mark.parametrize("bucket", [Decimal("0.5"), Decimal(4), Decimal(-2)])
def test_an_expression_that_gives_no_bucket_is_told(bucket: Decimal) -> None:
    definition, item = SimpleNamespace(catalog="shop", name="m"), SimpleNamespace(name="c", buckets=4)
    with pytest.raises(DataError, match=r"item .c. has 4 buckets, and its expression gives others"):
        bucket_numbers(definition, item, pa.array([bucket], pa.decimal128(9, 1)))
    assert list(bucket_numbers(definition, item, pa.array([Decimal(3), None], pa.decimal128(9, 1)))) == [3, -1]
