"""Forests scored by the kernel: what LightGBM itself predicts from the same texts, whatever splits and objective they have."""

from typing import Any

import lightgbm
import numpy as np
import pytest

from grouplearn.kernels.scoring import linked
from grouplearn.kernels.trees import ASKS_RANGES, IN_ORDER, Forests
from grouplearn.learners.trees.nodes import FeatureColumns
from grouplearn.learners.trees.scoring import GroupTrees, compile_forests
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label

TASKS = {
    "regression": NUMBER,
    "poisson": NUMBER,
    "binary": TWO_CLASSES,
    "multiclass": SEVERAL_CLASSES,
}
AS_THEY_ARE = FeatureColumns(np.arange(4), np.full(4, -1))


def rows(seed: int, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of which some are missing or zero, and a category; what is to be learned of them."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, 4))
    x[random.random((n, 4)) < 0.2] = np.nan
    x[random.random(n) < 0.4, 1] = 0.0
    x[:, 3] = random.integers(0, 40, n)
    return x, np.nan_to_num(x[:, 0]) + np.nan_to_num(x[:, 1]) + np.sin(x[:, 3]) * 2


def boosted(seed: int, objective: str, rounds: int, n_classes: int = 3, **parameters: Any) -> lightgbm.Booster:
    x, score = rows(seed)
    y = {
        "poisson": np.round(np.exp(score / 2)),
        "binary": score > 0,
        "multiclass": np.digitize(score, np.linspace(-1, 1, n_classes - 1)),
    }.get(objective, score)
    given = {"objective": objective, "verbose": -1, "num_threads": 1, "min_data_in_leaf": 3}
    given |= {"min_data_per_group": 5, "cat_smooth": 1, "cat_l2": 1, **parameters}
    if objective == "multiclass":
        given["num_class"] = n_classes
    return lightgbm.train(given, lightgbm.Dataset(x, y.astype(float), categorical_feature=[3]), rounds)


def compiled(boosters: list[lightgbm.Booster], label: Label) -> tuple[Forests, Any]:
    texts = [GroupTrees(booster.model_to_string().encode(), AS_THEY_ARE, (0, 1, 2)) for booster in boosters]
    found = compile_forests(texts, label, 3)
    assert found is not None
    return found


@pytest.mark.parametrize("objective", TASKS)
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"num_leaves": 200},
        {"num_leaves": 2, "zero_as_missing": True},
        {"zero_as_missing": True},
        {"use_missing": False},
        {"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1},
        {"sigmoid": 2.0},
        {"max_cat_to_onehot": 50},
    ],
    ids=str,
)
def test_as_lightgbm_predicts(build: str, objective: str, parameters: dict[str, Any]) -> None:
    boosters = [boosted(seed, objective, rounds, **parameters) for seed, rounds in ((0, 4), (1, 1), (2, 6))]
    forests, link = compiled(boosters, TASKS[objective])
    x = np.concatenate([rows(seed)[0] for seed in (5, 6, 7)])
    x[0], x[1], x[2] = np.inf, -np.inf, np.nan
    group = np.random.default_rng(1).integers(0, 3, len(x)).astype(np.int32)
    expected = np.stack([booster.predict(x).reshape(len(x), -1) for booster in boosters])[group, np.arange(len(x))]
    found = linked(forests.scores(x, group), link)
    np.testing.assert_allclose(found[:, -expected.shape[1] :], expected, rtol=1e-12, atol=1e-14)


def test_a_row_does_not_depend_on_those_beside_it(build: str) -> None:
    """Neither on their groups nor on how many they are, nor on whether something is missing in them."""
    forests, _ = compiled(
        [
            boosted(0, "regression", 5),
            boosted(1, "regression", 5, num_leaves=99, min_data_in_leaf=1, min_data_per_group=999),
            boosted(2, "regression", 5, num_leaves=12, min_data_per_group=999),
            boosted(3, "regression", 5, max_cat_to_onehot=50),
        ],
        NUMBER,
    )
    assert set(forests.kinds.tolist()) == {ASKS_RANGES, IN_ORDER, ASKS_RANGES | IN_ORDER, 0}
    x, group = rows(9)[0], np.random.default_rng(2).integers(-1, 4, 300).astype(np.int32)
    together = forests.scores(x, group)
    alone = np.concatenate([forests.scores(x[row : row + 1], group[row : row + 1]) for row in range(len(x))])
    np.testing.assert_array_equal(alone, together)
    assert (np.isnan(together[:, 0]) == (group < 0)).all()


def test_classes_that_a_group_does_not_know() -> None:
    """A group of two classes of four has the trees of the second one; what it does not know has no share."""
    two, three = boosted(0, "binary", 3), boosted(1, "multiclass", 3)
    texts = [booster.model_to_string().encode() for booster in (two, three)]
    found = compile_forests(
        [GroupTrees(texts[0], AS_THEY_ARE, (1, 3)), GroupTrees(texts[1], AS_THEY_ARE, (0, 2, 3))], SEVERAL_CLASSES, 4
    )
    assert found is not None
    forests, link = found
    x = rows(8)[0]
    first = linked(forests.scores(x, np.zeros(len(x), np.int32)), link)
    np.testing.assert_allclose(first[:, [1, 3]], np.stack([1 - two.predict(x), two.predict(x)], axis=1), rtol=1e-12)
    second = linked(forests.scores(x, np.ones(len(x), np.int32)), link)
    np.testing.assert_allclose(second[:, [0, 2, 3]], three.predict(x), rtol=1e-12)
    assert not first[:, [0, 2]].any()
    assert not second[:, 1].any()


def test_columns_of_categories_are_one_number(build: str) -> None:
    """One-hot columns: the tree asks whether a category's column is above 0.5, the kernel for the category."""
    random = np.random.default_rng(4)
    category, number = random.integers(-1, 3, 400), random.normal(size=400)
    x = np.concatenate([number[:, None], category[:, None] == np.arange(3)], axis=1).astype(float)
    data = lightgbm.Dataset(x, number * (category == 1) + 2 * (category == 2))
    booster = lightgbm.train({"verbose": -1, "num_threads": 1, "min_data_in_leaf": 3}, data, 5)
    columns = FeatureColumns(np.array([0, 8, 8, 8]), np.array([-1, 0, 1, 2]))
    found = compile_forests([GroupTrees(booster.model_to_string().encode(), columns, ())], NUMBER, 0)
    assert found is not None
    line = np.zeros((400, 9))
    line[:, 0], line[:, 8] = number, np.where(category < 0, np.nan, category)
    scores = found[0].scores(line, np.zeros(400, np.int32))[:, 0]
    np.testing.assert_allclose(scores, booster.predict(x), rtol=1e-14, atol=1e-15)
    assert (found[0].kinds & IN_ORDER).all()


@pytest.mark.parametrize("parameters", [{"linear_tree": True}, {"objective": "cross_entropy"}, {"reg_sqrt": True}])
def test_what_the_kernel_does_not_know_is_left_to_lightgbm(parameters: dict[str, Any]) -> None:
    x, score = rows(0)
    given = {"objective": "regression", "verbose": -1, "num_threads": 1, **parameters}
    y = (score > 0).astype(float) if "objective" in parameters else score
    booster = lightgbm.train(given, lightgbm.Dataset(x, y, params={"linear_tree": "linear_tree" in parameters}), 2)
    text = GroupTrees(booster.model_to_string().encode(), AS_THEY_ARE, ())
    assert compile_forests([text], NUMBER, 0) is None
