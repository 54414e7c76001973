"""Networks of the user's own in SQL: trained, stored, predicted with, on features and labels that are arrays."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import grouplearn

_SPEC = importlib.util.spec_from_file_location(
    "_cityscapes", Path(__file__).parents[2] / "benchmarks" / "_cityscapes.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
cityscapes = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(cityscapes)


def dense(problem: Any, config: Any) -> nn.Module:
    width = config["width"]
    return nn.Sequential(nn.Linear(problem.n_features, width), nn.Tanh(), nn.Linear(width, problem.n_outputs))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    grouplearn.register("unet", cityscapes.unet, hyperparameters={"width": 4}, tasks="classification")
    grouplearn.register("dense", dense, hyperparameters={"width": {"default": 8, "low": 1, "high": 64}})
    yield
    for name in ("unet", "dense"):
        grouplearn.unregister(name)


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        yield connection


@pytest.fixture
def pictures(con: grouplearn.Connection) -> grouplearn.Connection:
    """Pictures as bytes, as an array of fixed length and as a list; masks as bytes and as a list; one number of each."""
    cityscapes.pictures(con, "raw", 120, size=8, cities=3)
    numbers = "list_transform(regexp_extract_all(hex({0}), '..'), lambda h: CAST('0x' || h AS UTINYINT))"
    con.execute(
        f"CREATE TABLE pictures AS SELECT city, image, mask, {numbers.format('mask')} AS classes, "
        f"list_transform({numbers.format('image')}, lambda v: v / 255) AS list, CAST(list AS DOUBLE[192]) AS fixed, "
        "list_avg(list) AS brightness, list_avg(classes) > 1.2 AS busy FROM raw"
    )
    return con


SEGMENT = """
TRAIN OR REPLACE MODEL seg USING unet PREDICT mask FEATURES (image) FROM pictures GROUP BY city
OVER GRID ((learning_rate, width) IN ((0.01, 4), (0.001, 2))) WITH (epochs = 6, batch_size = 8)
"""


def test_a_unet_learns_masks_of_pictures(pictures: grouplearn.Connection) -> None:
    rows = pictures.execute(SEGMENT).fetchall()
    assert [row[-2] for row in rows] == ["done"] * 3
    names = [column[0] for column in pictures.execute("FROM seg").description]
    assert [name for name in names if name.startswith("train")] == ["train_log_loss", "train_accuracy", "train_f1"]
    found = pictures.execute(
        "SELECT typeof(prediction), prediction, classes, city FROM seg_predict(pictures)"
    ).fetchall()
    kinds, predicted, classes, _ = zip(*found, strict=True)
    assert set(kinds) == {"UTINYINT[64]"}
    assert (np.array(predicted) == np.array(classes)).mean() > 0.75
    best = pictures.execute("SELECT avg(train_accuracy) FROM seg WHERE is_best").fetchall()
    assert best[0][0] == pytest.approx((np.array(predicted) == np.array(classes)).mean(), abs=0.05)
    scalar = pictures.execute("SELECT predict('seg', pictures).predicted FROM pictures").fetchall()
    assert [list(row[0]) for row in scalar] == [list(map(float, row)) for row in predicted]


def test_a_model_outlives_its_process_but_not_its_network(tmp_path: Path) -> None:
    with grouplearn.connect(tmp_path / "street.duckdb", progress=False) as con:
        cityscapes.pictures(con, "pictures", 60, size=8, cities=2)
        con.execute(SEGMENT)
        known = con.execute("SELECT prediction FROM seg_predict(pictures)").fetchall()
        formats = con.execute(
            "SELECT DISTINCT format FROM grouplearn.artifacts SEMI JOIN grouplearn.models USING (model)"
        ).fetchall()
        assert formats == [("tensors",)]
    with grouplearn.connect(tmp_path / "street.duckdb", progress=False) as con:
        assert con.execute("SELECT prediction FROM seg_predict(pictures)").fetchall() == known
        grouplearn.unregister("unet")
        with pytest.raises(grouplearn.Error) as error:
            con.execute("SELECT prediction FROM seg_predict(pictures)").fetchall()
        assert 'model "seg" was trained with the learner unet, which is not registered in this process' in str(
            error.value
        )
        assert "Hint: grouplearn.register('unet', make_module=...), or " in str(error.value)
        grouplearn.register("unet", dense, hyperparameters={"width": 4})
        with pytest.raises(grouplearn.Error, match="the module of unet gives outputs of shape"):
            con.execute("SELECT prediction FROM seg_predict(pictures)").fetchall()
        grouplearn.register("unet", cityscapes.unet, hyperparameters={"width": 4})
        assert con.execute("SELECT prediction FROM seg_predict(pictures)").fetchall() == known


def models(con: grouplearn.Connection, clauses: str, options: str = "") -> list[Any]:
    con.execute(f"TRAIN OR REPLACE MODEL m {clauses} FROM pictures GROUP BY city WITH (epochs = 2, seed = 5{options})")
    return con.execute(
        "SELECT group_id, config, sha256 FROM grouplearn.artifacts SEMI JOIN grouplearn.models USING (model) ORDER BY ALL"
    ).fetchall()


def test_lists_and_arrays_are_the_same_features_and_labels(pictures: grouplearn.Connection) -> None:
    by_lists = models(pictures, "USING unet PREDICT classes FEATURES (list)")
    assert models(pictures, "USING unet PREDICT classes::UTINYINT[64] FEATURES (fixed)") == by_lists
    assert len(by_lists) == 3


def test_bytes_and_lists_of_the_same_values_predict_the_same(pictures: grouplearn.Connection) -> None:
    models(pictures, "USING unet PREDICT mask FEATURES (image AS x)")
    by_bytes = pictures.execute("SELECT prediction FROM m_predict(pictures)").fetchall()
    pictures.execute("CREATE VIEW lists AS SELECT * REPLACE (list AS image) FROM pictures")
    assert pictures.execute("SELECT prediction FROM m_predict(lists)").fetchall() == by_bytes


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("clauses", "kind"),
    [
        ("PREDICT brightness + 0 AS light FEATURES (image, zscore(brightness * brightness))", "DOUBLE"),
        ("PREDICT busy FEATURES (fixed)", "BOOLEAN"),
        ("PREDICT list[1:5]::FLOAT[5] AS corner FEATURES (image)", "DOUBLE[5]"),
        ("PREDICT list_transform(classes, lambda c: c > 1) AS upper FEATURES (list)", "BOOLEAN[64]"),
        ("PREDICT list_transform(classes, lambda c: c::INTEGER - 3) AS shifted FEATURES (list)", "DOUBLE[64]"),
    ],
)
def test_labels_of_every_kind(pictures: grouplearn.Connection, clauses: str, kind: str) -> None:
    models(pictures, f"USING dense {clauses}")
    assert pictures.execute("SELECT DISTINCT status FROM m").fetchall() == [("done",)]
    found = pictures.execute(
        "SELECT DISTINCT typeof(prediction), prediction IS NULL FROM m_predict(pictures)"
    ).fetchall()
    assert found == [(kind, False)]


def test_whole_numbers_are_classes_where_the_statement_says_so(pictures: grouplearn.Connection) -> None:
    clauses = "USING dense PREDICT list_transform(classes, lambda c: c::INTEGER - 3) AS shifted FEATURES (list)"
    models(pictures, clauses, ", task = 'classification'")
    found = pictures.execute("SELECT DISTINCT unnest(prediction) AS c, typeof(c) FROM m_predict(pictures) ORDER BY 1")
    assert set(found.fetchall()) <= {(value, "INTEGER") for value in (-3, -2, -1, 0)}
    assert pictures.execute("SELECT classes FROM grouplearn.models").fetchall() == [(["-3", "-2", "-1", "0"],)]


@pytest.mark.thorough
def test_the_same_model_in_process_and_on_ray_whole_and_split(con: grouplearn.Connection) -> None:
    cityscapes.pictures(con, "pictures", 300, size=32, cities=1)
    con.execute("UPDATE pictures SET city = hash(image) % 3")
    clauses = "USING unet PREDICT mask FEATURES (image)"
    known = models(con, clauses, ", executor = 'local', operator = 'group_task_parallel', batch_size = 64, width = 2")
    for executor, operator in (("local", "gap"), ("ray", "gap"), ("ray", "model_task_parallel")):
        options = f", executor = '{executor}', operator = '{operator}', workers = 2, batch_size = 64, width = 2"
        assert models(con, clauses, options) == known
        kinds = {
            kind
            for (kind,) in con.execute(
                "SELECT DISTINCT kind FROM grouplearn.units SEMI JOIN grouplearn.models USING (model)"
            ).fetchall()
        }
        assert ("train" in kinds) == (operator == "gap")
    models(con, clauses, ", executor = 'ray', operator = 'data_parallel', workers = 2, batch_size = 64, width = 2")
    assert con.execute("SELECT DISTINCT status FROM m").fetchall() == [("done",)]


@pytest.mark.parametrize("learner", ["mlp", "gbdt"])
def test_built_in_learners_take_arrays_as_columns(con: grouplearn.Connection, learner: str) -> None:
    con.execute(
        "CREATE TABLE t AS SELECT i % 2 AS g, [hash(i) % 97 / 97, hash(i, 1) % 97 / 97] AS x, x[1] > x[2] AS y "
        "FROM range(200) AS r(i)"
    )
    shared = f"USING {learner} PREDICT y FROM t GROUP BY g VALIDATE NONE"
    con.execute(f"TRAIN MODEL a {shared} FEATURES (x)")
    con.execute(f"TRAIN MODEL b {shared} FEATURES (x[1] AS p, x[2] AS q)")
    a, b = (con.execute(f"SELECT train_log_loss FROM {name} ORDER BY g").fetchall() for name in "ab")
    assert np.array(a) == pytest.approx(np.array(b), abs=0.05)
    found = con.execute("SELECT count(*) FROM a_predict(t) WHERE prediction = y").fetchall()
    assert found[0][0] > 150 or learner == "mlp"
    if learner == "gbdt":
        names = con.execute("SELECT DISTINCT feature FROM a_importance ORDER BY 1").fetchall()
        assert names == [("x[1]",), ("x[2]",)]


def test_rows_without_a_picture_are_skipped_and_groups_without_a_mask_fail(pictures: grouplearn.Connection) -> None:
    pictures.execute("UPDATE pictures SET image = NULL WHERE city = 0 AND brightness > 0.5")
    pictures.execute("UPDATE pictures SET mask = NULL WHERE city = 1 AND rowid % 2 = 0")
    (missing,), (unknown,), (rows,) = (
        pictures.execute(f"SELECT count(*) FROM pictures WHERE {where}").fetchall()[0]
        for where in ("image IS NULL", "mask IS NULL", "city = 1")
    )
    models(pictures, "USING unet PREDICT mask FEATURES (image) ON NULL LABEL ERROR")
    found = pictures.execute(
        "SELECT n_skipped FROM grouplearn.groups SEMI JOIN grouplearn.models USING (model) ORDER BY group_id"
    ).fetchall()
    assert found == [(missing,), (None,), (0,)]
    (error,) = pictures.execute("SELECT error FROM m WHERE status = 'failed'").fetchall()[0]
    assert error == f"the label is NULL in {unknown} of {rows} rows; hint: ON NULL LABEL SKIP leaves such rows out"
    nulls = pictures.execute("SELECT count(*) FROM m_predict(pictures) WHERE prediction IS NULL").fetchall()
    assert nulls == [(missing + rows,)]


def test_a_group_fails_with_what_the_module_said(pictures: grouplearn.Connection) -> None:
    def picky(problem: Any, config: Any) -> nn.Module:
        if problem.n_classes != 2:
            raise ValueError(f"only two classes, not {problem.n_classes}")
        return dense(problem, {"width": 3})

    grouplearn.register("dense", picky)
    models(pictures, "USING dense PREDICT mask FEATURES (image)")
    reason = "make_module of dense raised ValueError: only two classes, not 4"
    assert pictures.execute("SELECT DISTINCT status, error FROM m").fetchall() == [("failed", reason)]


MISTAKES = {
    "TRAIN MODEL m USING dense PREDICT busy FEATURES (fixed) FROM pictures OVER GRID (widht IN (4, 8))": """
unknown hyperparameter "widht"
Hyperparameters of dense: width, optimizer, learning_rate, momentum, l1, l2, batch_size, precision

LINE 1: TRAIN MODEL m USING dense PREDICT busy FEATURES (fixed) FROM pictures OVER GRID (widht IN (4, 8))
                                                                                         ^^^^^

Hint: Did you mean "width"?""",
    "TRAIN MODEL m USING dense PREDICT busy FEATURES (fixed) FROM pictures WITH (width = 65)": """
width must be an integer between 1 and 64, got 65

LINE 1: TRAIN MODEL m USING dense PREDICT busy FEATURES (fixed) FROM pictures WITH (width = 65)
                                                                                            ^^""",
    "TRAIN MODEL m USING dens PREDICT busy FEATURES (fixed) FROM pictures": """
unknown learner "dens"
Learners: linear_regression, logistic_regression, poisson_regression, linear_svm, linear_learner, gbdt, random_forest, mlp, \
kmeans, pca, seasonal_naive, exponential_smoothing, theta, croston, arima, deepar, unet, \
dense

LINE 1: TRAIN MODEL m USING dens PREDICT busy FEATURES (fixed) FROM pictures
                            ^^^^

Hint: Did you mean "dense"?""",
    "TRAIN MODEL m USING unet PREDICT brightness::INTEGER FEATURES (image[1:n]) FROM mixed": """
feature "image[1:n]" has 119 arrays of 192 values and 1 of another length

LINE 1: TRAIN MODEL m USING unet PREDICT brightness::INTEGER FEATURES (image[1:n]) FROM mixed
                                                                       ^^^^^^^^^^

Hint: Take rows of one length: WHERE len(image[1:n]) = 192. For a list whose order means nothing \
write multihot(x) or hash(x, 64).""",
    "TRAIN MODEL m USING unet PREDICT mask[:n] FEATURES (image) FROM mixed": """
the label has 119 arrays of 64 values and 1 of another length

LINE 1: TRAIN MODEL m USING unet PREDICT mask[:n] FEATURES (image) FROM mixed
                                         ^^^^^^^^

Hint: Take rows of one length: WHERE len(mask[:n]) = 64.""",
    "TRAIN MODEL m USING dense PREDICT busy FEATURES (list[1:0] AS x) FROM pictures": """
feature "x" has empty arrays only

LINE 1: TRAIN MODEL m USING dense PREDICT busy FEATURES (list[1:0] AS x) FROM pictures
                                                         ^^^^^^^^^""",
    "TRAIN MODEL m USING unet PREDICT list FEATURES (image) FROM pictures": """
classes are whole numbers, and the label is an array of DOUBLE

LINE 1: TRAIN MODEL m USING unet PREDICT list FEATURES (image) FROM pictures
                                         ^^^^

Hint: Cast it, e.g. list::UTINYINT[].""",
    "TRAIN MODEL m USING unet PREDICT mask FEATURES (image) FROM pictures OPTIMIZE auc": """
metric auc is not for classification of arrays
Metrics of classification of arrays: log_loss, accuracy, f1, precision, recall, balanced_accuracy, brier

LINE 1: TRAIN MODEL m USING unet PREDICT mask FEATURES (image) FROM pictures OPTIMIZE auc
                                                                                      ^^^""",
    "TRAIN MODEL m USING unet PREDICT mask FEATURES (image) FROM pictures WITH (class_weight = 'balanced')": """
class_weight is for classes, and the label is an array

LINE 1: TRAIN MODEL m USING unet PREDICT mask FEATURES (image) FROM pictures WITH (class_weight = 'balanced')
                                                                                   ^^^^^^^^^^^^""",
    "TRAIN MODEL m USING unet PREDICT mask FEATURES (zscore(image)) FROM pictures": """
zscore of image, which is BLOB

LINE 1: TRAIN MODEL m USING unet PREDICT mask FEATURES (zscore(image)) FROM pictures
                                                               ^^^^^

Hint: zscore takes numbers; for this type write image, onehot(image), ordinal(image) or hash(image, 64).""",
    "TRAIN MODEL m USING mlp PREDICT list FEATURES (image) FROM pictures": """
a label of type DOUBLE[] cannot be predicted

LINE 1: TRAIN MODEL m USING mlp PREDICT list FEATURES (image) FROM pictures
                                        ^^^^

Hint: Take single values out of it, e.g. list[1].""",
}


def test_mistakes_are_pointed_at(pictures: grouplearn.Connection) -> None:
    pictures.execute(
        "CREATE TABLE mixed AS SELECT list AS image, classes AS mask, brightness, "
        "CASE row_number() OVER () WHEN 5 THEN 7 ELSE 192 END AS n FROM pictures"
    )
    for statement, told in MISTAKES.items():
        with pytest.raises(grouplearn.BindError) as error:
            pictures.execute(statement)
        assert str(error.value) == told.strip()


def test_what_arrays_cannot_do_yet_is_said(pictures: grouplearn.Connection) -> None:
    models(pictures, "USING unet PREDICT mask FEATURES (image)")
    with pytest.raises(grouplearn.BindError) as error:
        pictures.execute("EVALUATE MODEL m ON pictures")
    assert str(error.value).startswith('EVALUATE MODEL compares single values, and model "m" predicts arrays')
    pictures.execute("CREATE TABLE small AS SELECT 0 AS city, 'abc'::BLOB AS image")
    with pytest.raises(grouplearn.Error, match=r"takes 192 values of .*, and 1 of these rows have another number"):
        pictures.execute("SELECT prediction FROM m_predict(small)").fetchall()


def test_register_says_what_is_wrong() -> None:
    for call, said in [
        (lambda: grouplearn.register("mlp", dense), '"mlp" is a built-in learner; choose another name'),
        (
            lambda: grouplearn.register("my net", dense),
            "the name of a network is an identifier, such as my_unet, got 'my net'",
        ),
        (lambda: grouplearn.register("n", None), "make_module, and loss if given, must be functions"),
        (
            lambda: grouplearn.register("n", dense, hyperparameters={"epochs": 3}),
            "epochs is an option of TRAIN; name the hyp",
        ),
        (
            lambda: grouplearn.register("n", dense, hyperparameters=["width"]),
            "hyperparameters map names to defaults, such as {'width': 8}, got ['width']",
        ),
        (
            lambda: grouplearn.register("n", dense, tasks="segmentation"),
            "tasks are regression and classification, got ['segmentation']",
        ),
    ]:
        with pytest.raises(grouplearn.ProgrammingError) as error:
            call()
        assert str(error.value).startswith(f"register: {said}")
    with pytest.raises(grouplearn.ProgrammingError, match='no learner "n" is registered'):
        grouplearn.unregister("n")


def test_what_cannot_be_sent_to_workers_is_said(pictures: grouplearn.Connection) -> None:
    def connected(problem: Any, config: Any) -> nn.Module:
        assert pictures is not None
        return dense(problem, {"width": 3})

    grouplearn.register("dense", connected)
    with pytest.raises(grouplearn.TrainingError) as error:
        models(pictures, "USING dense PREDICT busy FEATURES (image)", ", executor = 'ray'")
    assert str(error.value).startswith("the network dense cannot be sent to worker processes: cannot pickle")


def test_networks_are_listed_and_described(con: grouplearn.Connection) -> None:
    listed = {row[0]: row[1:5] for row in con.execute("SHOW LEARNERS").fetchall()}
    assert listed["unet"] == (None, "binary, multiclass", "batches of rows", True)
    with pytest.raises(
        grouplearn.OperationalError, match="unet is a network of your own, whose costs depend on its rows"
    ):
        con.execute("CALIBRATE LEARNER unet")
    described = con.execute("DESCRIBE LEARNER dense").fetchall()
    assert described[0][:5] == (None, "width", "int", "8", ">= 1 and <= 64")


def test_registering_loads_no_torch() -> None:
    code = (
        "import sys, grouplearn; grouplearn.register('n', lambda problem, config: None); "
        "assert not {'torch', 'ray', 'lightgbm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
