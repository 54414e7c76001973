"""Trees as nodes: walking them gives what LightGBM predicts, whatever is missing, categorical or zero."""

from dataclasses import replace
from typing import Any

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.learners.trees.nodes import (
    ZERO,
    FeatureColumns,
    Nodes,
    count_leaves,
    nodes_of,
    parse_forest,
    parse_forests,
)

N_FEATURES, CATEGORIES = 4, 70


def walk(nodes: Nodes, slots: np.ndarray) -> np.ndarray:
    """Return the sums of the leaves that rows (n, slots) come to, per output: the rule that the SQL follows."""
    sums = np.zeros((len(slots), int(nodes.output.max()) + 1))
    for root, output in zip(nodes.roots.tolist(), nodes.output.tolist(), strict=True):
        at = np.full(len(slots), root)
        for _ in range(int(nodes.depth.max())):
            x = slots[np.arange(len(slots)), nodes.slot[at]]
            within = (x >= nodes.low[at]) & (x <= nodes.high[at])
            after = np.where(np.isnan(x), nodes.missing[at], np.where(within, nodes.inside[at], nodes.outside[at]))
            at = np.where(np.isnan(nodes.value[at]), after, at)
        sums[:, output] += nodes.value[at]
    return sums


def rows(rng: np.random.Generator, count: int, holes: float, zeros: float) -> np.ndarray:
    x = rng.normal(size=(count, N_FEATURES))
    x[:, 2] = rng.integers(0, CATEGORIES, count)
    x[rng.random(x.shape) < zeros] = 0
    x[rng.random(x.shape) < holes] = np.nan
    return x


def trained(seed: int, objective: str, parameters: dict[str, Any], holes: float) -> Any:
    rng = np.random.default_rng(seed)
    x = rows(rng, 250, holes, 0.1)
    y = np.nan_to_num(x[:, 0]) + np.nan_to_num(x[:, 2]) % 3
    y = {"regression": y, "binary": y > 1, "multiclass": np.clip(y, 0, 2.5).astype(int)}[objective]
    classes = {"num_class": 3} if objective == "multiclass" else {}
    given_all = {"objective": objective, "verbosity": -1, "num_threads": 1, "seed": seed, **classes, **parameters}
    data = lightgbm.Dataset(x, np.asarray(y, dtype=float), categorical_feature=[2])
    return lightgbm.train(given_all, data, 4)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    objective=st.sampled_from(["regression", "binary", "multiclass"]),
    holes=st.sampled_from([0.0, 0.2]),
    parameters=st.fixed_dictionaries(
        {
            "num_leaves": st.integers(2, 40),
            "min_data_in_leaf": st.sampled_from([1, 20, 200]),
            "zero_as_missing": st.booleans(),
            "use_missing": st.booleans(),
            "max_cat_to_onehot": st.sampled_from([1, 100]),
            "min_data_per_group": st.just(2),
            "cat_smooth": st.just(1),
            "boosting": st.sampled_from(["gbdt", "dart"]),
        }
    ),
)
def test_nodes_are_the_trees(seed: int, objective: str, holes: float, parameters: dict[str, Any]) -> None:
    booster = trained(seed, objective, parameters, holes)
    text = booster.model_to_string().encode()
    nodes = nodes_of(parse_forest(text), FeatureColumns(np.arange(N_FEATURES), np.full(N_FEATURES, -1)))
    x = rows(np.random.default_rng(seed + 1), 300, 0.2, 0.2)
    x[:6, 0] = [np.inf, -np.inf, ZERO, -ZERO, 2 * ZERO, -0.0]
    x[6:9, 2] = [-1, CATEGORIES + 40, 1e6]
    np.testing.assert_allclose(walk(nodes, x), booster.predict(x, raw_score=True).reshape(300, -1), atol=1e-12)
    assert (nodes.value == nodes.value).sum() >= count_leaves(text)


def test_forest_averages_its_trees() -> None:
    booster = trained(3, "regression", {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, 0.1)
    nodes = nodes_of(parse_forest(booster.model_to_string().encode()), FeatureColumns(np.arange(4), np.full(4, -1)))
    x = rows(np.random.default_rng(4), 200, 0.2, 0.2)
    np.testing.assert_allclose(walk(nodes, x)[:, 0], booster.predict(x), atol=1e-12)


@pytest.mark.parametrize("objective", ["regression", "multiclass"])
def test_forests_of_groups_together_are_what_each_is_alone(objective: str) -> None:
    parameters = [
        {"min_data_in_leaf": 2, "max_cat_to_onehot": 1, "min_data_per_group": 2, "cat_smooth": 1},
        {"min_data_in_leaf": 400},  # nothing to split
        {"zero_as_missing": True},
        {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
    ]
    boosters = [trained(seed, objective, each, 0.2) for seed, each in enumerate(parameters)]
    texts = [booster.model_to_string().encode() for booster in boosters]
    columns = FeatureColumns(np.arange(4), np.full(4, -1))
    together = parse_forests(texts)
    all_nodes = nodes_of(together, columns)
    assert together.trees.tolist() == [booster.num_trees() for booster in boosters]
    x = rows(np.random.default_rng(9), 200, 0.2, 0.2)
    starts = np.cumsum(together.trees) - together.trees
    for text, start, count in zip(texts, starts, together.trees, strict=True):
        alone, own = nodes_of(parse_forest(text), columns), slice(start, start + count)
        assert all_nodes.depth[own].tolist() == alone.depth.tolist()
        kept = replace(all_nodes, roots=all_nodes.roots[own], output=all_nodes.output[own], depth=all_nodes.depth[own])
        np.testing.assert_array_equal(walk(kept, x), walk(alone, x))


def test_forests_of_different_outputs_together_are_what_each_is_alone() -> None:
    boosters = [trained(3, "binary", {}, 0.1), trained(4, "multiclass", {}, 0.1), trained(5, "binary", {}, 0.1)]
    together = parse_forests([booster.model_to_string().encode() for booster in boosters])
    assert together.n_outputs.tolist() == [1, 3, 1]
    assert nodes_of(together, FeatureColumns(np.arange(4), np.full(4, -1))).output.tolist() == (
        [0] * 4 + [0, 1, 2] * 4 + [0] * 4
    )


@pytest.mark.parametrize("zero_as_missing", [False, True])
def test_columns_of_categories_become_one_slot(zero_as_missing: bool) -> None:
    rng = np.random.default_rng(0)
    number, place = rng.normal(size=400), rng.integers(-1, 5, 400)  # -1: no category
    x = np.column_stack([number, place[:, None] == np.arange(5)]).astype(float)
    parameters = {"verbosity": -1, "min_data_in_leaf": 2, "zero_as_missing": zero_as_missing}
    booster = lightgbm.train(parameters, lightgbm.Dataset(x, number * place), 6)
    columns = FeatureColumns(np.array([0, 1, 1, 1, 1, 1]), np.array([-1, 0, 1, 2, 3, 4]))
    nodes = nodes_of(parse_forest(booster.model_to_string().encode()), columns)
    slots = np.column_stack([number, np.where(place < 0, np.nan, place)])
    np.testing.assert_allclose(walk(nodes, slots)[:, 0], booster.predict(x), atol=1e-12)
