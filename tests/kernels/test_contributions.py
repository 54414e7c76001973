"""What items add to the scores of trees, against LightGBM's pred_contrib and against all subsets of features."""

import itertools
from math import factorial
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
from builds import in_every_build

from grouplearn.learners.trees.contributions import TextContributions

N, D = 400, 8
CASES = {
    "numbers": {"objective": "regression"},
    "zero is missing": {"objective": "regression", "zero_as_missing": True},
    "two classes": {"objective": "binary", "num_leaves": 63},
    "classes": {"objective": "multiclass", "num_class": 3},
    "forest": {"objective": "regression", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
    "stumps": {"objective": "regression", "num_leaves": 2},
    "deep": {"objective": "regression", "num_leaves": 300, "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0},
    "nothing": {"objective": "regression", "min_gain_to_split": 1e300},
}


def rows() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    x = random.normal(size=(N, D))
    x[random.random((N, D)) < 0.1] = np.nan
    x[:, 3], x[random.random(N) < 0.3, 5] = random.integers(0, 70, N), 0
    known = np.nan_to_num(x)
    return x, known[:, 0] * 2 + np.isnan(x[:, 1]) * 3 + np.sin(known[:, 2] * 3) + known[:, 3] % 3 + known[:, 5] * known[
        :, 0
    ]


def trained(case: str) -> tuple[lgb.Booster, np.ndarray]:
    x, y = rows()
    parameters = {"verbose": -1, "min_data_in_leaf": 5, "seed": 1, "num_threads": 1, **CASES[case]}
    if "class" in case:
        y = np.digitize(y, [0, 3]) if case == "classes" else y > 2
    data = lgb.Dataset(x, y, categorical_feature=[3], params={"verbose": -1})
    return lgb.train(parameters, data, 15), x


@pytest.mark.parametrize("case", CASES)
def test_they_are_those_of_lightgbm(case: str) -> None:
    booster, x = trained(case)
    trees = TextContributions(booster.model_to_string().encode())
    count = len(trees.means)
    expected = booster.predict(x, pred_contrib=True).reshape(N, count, D + 1)
    if case == "forest":  # whose leaves LightGBM sums here, and averages in predictions
        expected = expected / booster.num_trees()
    item = np.arange(D, dtype=np.int32)
    for output in range(count):
        found = trees(x, np.full(N, output, np.int32), item, D)
        np.testing.assert_allclose(found, expected[:, output, :D], rtol=0, atol=1e-9)
        np.testing.assert_allclose(trees.means[output], expected[0, output, D], rtol=0, atol=1e-9)


def test_each_row_has_its_own_output_and_columns_of_an_item_are_summed() -> None:
    booster, x = trained("classes")
    trees = TextContributions(booster.model_to_string().encode())
    chosen = (np.arange(N) % 3).astype(np.int32)
    single = trees(x, chosen, np.arange(D, dtype=np.int32), D)
    item = np.array([0, 0, 1, 1, 1, 2, 2, 2], np.int32)
    together = trees(x, chosen, item, 3)
    np.testing.assert_allclose(
        together, np.stack([single[:, item == each].sum(axis=1) for each in range(3)], 1), atol=1e-12
    )
    for output in range(3):
        alone = trees(x, np.full(N, output, np.int32), np.arange(D, dtype=np.int32), D)
        np.testing.assert_array_equal(alone[chosen == output], single[chosen == output])


def _expected(tree: dict[str, Any], x: np.ndarray, known: frozenset[int]) -> float:
    """Return the mean over the leaves that a row may come to, where only these features are known."""
    if "leaf_value" in tree:
        return float(tree["leaf_value"])
    sides = tree["left_child"], tree["right_child"]
    if tree["split_feature"] in known:
        return _expected(sides[int(x[tree["split_feature"]] > tree["threshold"])], x, known)
    counts = [side.get("internal_count", side.get("leaf_count")) for side in sides]
    return sum(count * _expected(side, x, known) for side, count in zip(sides, counts, strict=True)) / sum(counts)


def test_they_are_shapley_values_of_all_subsets() -> None:
    random = np.random.default_rng(5)
    x = random.normal(size=(N, 4))
    data = lgb.Dataset(x, x[:, 0] * x[:, 1] + x[:, 2], params={"verbose": -1})
    booster = lgb.train({"verbose": -1, "num_threads": 1}, data, 3)
    found = TextContributions(booster.model_to_string().encode())(
        x[:5], np.zeros(5, np.int32), np.arange(4, dtype=np.int32), 4
    )
    trees = [each["tree_structure"] for each in booster.dump_model()["tree_info"]]
    for row in range(5):
        value = {
            subset: sum(_expected(tree, x[row], subset) for tree in trees)
            for size in range(5)
            for subset in map(frozenset, itertools.combinations(range(4), size))
        }
        for feature in range(4):
            total = sum(
                factorial(len(subset))
                * factorial(3 - len(subset))
                / factorial(4)
                * (value[subset | {feature}] - value[subset])
                for subset in value
                if feature not in subset
            )
            assert found[row, feature] == pytest.approx(total, abs=1e-12)


def test_every_build_has_the_same_bits() -> None:
    booster, x = trained("deep")
    trees = TextContributions(booster.model_to_string().encode())
    in_every_build(lambda: {"added": trees(x, np.zeros(N, np.int32), np.arange(D, dtype=np.int32), D)})
