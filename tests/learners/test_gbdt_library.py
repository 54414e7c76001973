"""LightGBM's C API as we call it, against its own Python package."""

import gc

import lightgbm
import numpy as np
import pytest
import scipy.sparse

from grouplearn.data.shard import Shard
from grouplearn.learners.trees.lightgbm.binned_data import BinnedData
from grouplearn.learners.trees.lightgbm.booster import Booster
from grouplearn.learners.trees.lightgbm.library import LightGBMError

RNG = np.random.default_rng(3)
X = np.round(RNG.normal(size=(400, 4)), 2)
X[:, 3] = RNG.integers(0, 6, size=400)
X[RNG.random(X.shape) < 0.05] = np.nan
CLASSES = RNG.integers(0, 3, size=400).astype(float)
Y = np.nan_to_num(X[:, 0]) * 3 + CLASSES + 5 * (np.nan_to_num(X[:, 3]) % 4 < 2)
WEIGHT = RNG.uniform(0.5, 2, size=400)
FIXED = {"num_threads": 1, "verbosity": -1, "deterministic": True, "force_col_wise": True, "seed": 5}
PARAMETERS = {
    "regression": {**FIXED, "objective": "regression", "metric": "rmse", "num_leaves": 7},
    "multiclass": {
        **FIXED,
        "objective": "multiclass",
        "num_class": 3,
        "metric": "multi_logloss",
        "bagging_fraction": 0.7,
    },
}
MATRICES = {
    "rows": X,
    "columns": np.asfortranarray(X),
    "strided": np.repeat(X, 2, axis=1)[:, ::2],
    "single": X.astype(np.float32),
    "sparse": scipy.sparse.csr_matrix(X),
    "long": scipy.sparse.csr_matrix(
        (
            scipy.sparse.csr_matrix(X).data,
            scipy.sparse.csr_matrix(X).indices.astype(np.int64),
            scipy.sparse.csr_matrix(X).indptr.astype(np.int64),
        ),
        shape=X.shape,
    ),
}


def label(task):
    return Y if task == "regression" else CLASSES


def theirs(task, x, rounds=12, **options):
    data = lightgbm.Dataset(x, label(task), weight=WEIGHT, **options)
    valid = lightgbm.Dataset(x[:100], label(task)[:100], reference=data)
    curve = {}
    watch = lightgbm.record_evaluation(curve)
    booster = lightgbm.train(PARAMETERS[task], data, rounds, valid_sets=[valid], callbacks=[watch])
    return booster, next(iter(curve["valid_0"].values()))


def ours(task, x, rounds=12, categorical=()):
    data = BinnedData(Shard(x, label(task), WEIGHT), categorical, PARAMETERS[task])
    valid = BinnedData(Shard(x[:100], label(task)[:100], np.ones(100)), categorical, PARAMETERS[task], data)
    booster = Booster.on(data, PARAMETERS[task])
    booster.watch(valid)
    del data, valid
    gc.collect()  # the booster still needs them
    curve = []
    for _ in range(rounds):
        assert not booster.update()
        curve.append(booster.watched_metric())
    return booster, curve


@pytest.mark.examples(3)
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("task", PARAMETERS)
def test_it_boosts_what_the_package_boosts(task, matrix):
    x = MATRICES[matrix]
    expected, expected_curve = theirs(task, x)
    booster, curve = ours(task, x)
    assert curve == expected_curve
    assert trees(booster.to_text()) == trees(expected.model_to_string())
    assert np.array_equal(booster.predict(x).squeeze(), expected.predict(x))
    assert np.array_equal(booster.predict(x, raw=True).squeeze(), expected.predict(x, raw_score=True))
    assert np.array_equal(Booster.of_text(booster.to_text().encode()).gain(), expected.feature_importance("gain"))


def trees(text):
    """The package notes its own parameters, as num_iterations, below the trees."""
    head, _, tail = text.partition("\nparameters:")
    return head, tail.rpartition("end of parameters")[2]


def test_categories_and_first_iterations():
    expected, _ = theirs("regression", X, categorical_feature=[3])
    booster, _ = ours("regression", X, categorical=[3])
    assert "cat_threshold=" in booster.to_text()
    assert booster.to_text(5).partition("\nparameters:")[0] == expected.model_to_string(5).partition("\nparameters:")[0]
    assert booster.iterations == 12


@pytest.mark.parametrize("task", PARAMETERS)
def test_running_predictions_are_those_of_the_trees(task):
    booster, _ = ours(task, X)
    np.testing.assert_allclose(booster.running(0), booster.predict(X), rtol=1e-12)
    np.testing.assert_allclose(booster.running(1), booster.predict(X[:100]), rtol=1e-12)


def test_a_long_text_comes_whole_and_back():
    booster, _ = ours("multiclass", X, rounds=60)
    text = booster.to_text()
    assert len(text) > 1 << 16
    again = Booster.of_text(text.encode())
    assert again.n_outputs == 3
    assert again.to_text() == text
    assert np.array_equal(again.predict(X), booster.predict(X))
    assert again.predict(X[:0]).shape == (0, 3)


def test_refusals_are_in_the_words_of_lightgbm():
    seven = BinnedData(Shard(X, CLASSES + 7, np.ones(len(X))), (), PARAMETERS["multiclass"])
    with pytest.raises(LightGBMError, match="Label must be in"):
        Booster.on(seven, PARAMETERS["multiclass"])
    with pytest.raises(LightGBMError, match="doesn't specify the number of classes"):
        Booster.of_text(b"no model")
    booster, _ = ours("regression", X)
    with pytest.raises(LightGBMError, match="number of features"):
        booster.predict(X[:, :2])
