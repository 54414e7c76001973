"""Sums of leaves: the same bits whoever adds them, so that no two ways to predict rank ties in another way."""

from __future__ import annotations

import math

import lightgbm
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.kernels import boosting as kernel
from grouplearn.kernels.trees import Forests
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.trees.gbdt import Gbdt
from grouplearn.learners.trees.lightgbm.library import addresses
from grouplearn.learners.trees.nodes import FeatureColumns, nodes_of, parse_forest
from grouplearn.learners.trees.predicting import TextScores
from grouplearn.learners.trees.scoring import GroupTrees, compile_forests
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.state import Artifact

BOOSTINGS = {
    "gbdt": {},
    "dart": {"boosting": "dart", "drop_rate": 0.5},
    "rf": {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
}
AS_THEY_ARE = FeatureColumns(np.arange(3), np.full(3, -1))


def of_few_rows(seed: int, classes: int, boosting: str, rounds: int = 7) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Return a model of 80 rows, of which many are the same, and the rows."""
    random = np.random.default_rng(seed)
    x, y = random.integers(0, 2 + seed % 3, (80, 3)).astype(float), random.integers(0, classes, 80)
    of_classes = {"objective": "binary"} if classes == 2 else {"objective": "multiclass", "num_class": classes}
    given_all = {
        "verbosity": -1,
        "num_threads": 1,
        "min_data_in_leaf": 1,
        "seed": seed,
        **of_classes,
        **BOOSTINGS[boosting],
    }
    booster = lightgbm.train(given_all, lightgbm.Dataset(x, y.astype(float)), rounds)
    return booster.model_to_string().encode(), x, y


def exact(text: bytes, x: np.ndarray) -> np.ndarray:
    """Return the sums of leaves rounded once, from the tables that SQL reads."""
    nodes = nodes_of(parse_forest(text), AS_THEY_ARE)
    reached = np.empty((len(x), len(nodes.roots)))
    for tree, root in enumerate(nodes.roots.tolist()):
        at = np.full(len(x), root)
        for _ in range(int(nodes.depth.max())):
            own = x[np.arange(len(x)), nodes.slot[at]]
            within = (own >= nodes.low[at]) & (own <= nodes.high[at])
            at = np.where(np.isnan(nodes.value[at]), np.where(within, nodes.inside[at], nodes.outside[at]), at)
        reached[:, tree] = nodes.value[at]
    return np.array([[math.fsum(row[nodes.output == k]) for k in range(nodes.output.max() + 1)] for row in reached])


def together(texts: list[bytes], x: np.ndarray, outputs: int, **scale: bool) -> np.ndarray:
    """Return the scores (n, models) of small groups that train together."""
    rows = kernel.BoostingRows(x, np.zeros(len(x), np.float32), np.ones(len(x), np.float32), np.array([0, len(x)]))
    scales = [kernel.Scale(**scale)] * len(texts)  # type: ignore[arg-type]
    held = Ragged.of([np.frombuffer(text, np.uint8) for text in texts])
    return kernel.predict(addresses(kernel.FUNCTIONS), rows, held, outputs, scales)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**20), classes=st.integers(2, 4), boosting=st.sampled_from(list(BOOSTINGS)))
def test_leaves_have_one_sum(seed: int, classes: int, boosting: str) -> None:
    text, x, _ = of_few_rows(seed, classes, boosting)
    expected = exact(text, x)
    np.testing.assert_array_equal(TextScores(text)(x), expected)
    np.testing.assert_array_equal(TextScores(text)(scipy.sparse.csr_array(x)), expected)
    found = together([text, text], x, expected.shape[1], mean=boosting == "rf")
    np.testing.assert_array_equal(found, np.stack([expected, expected], axis=1))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**20), classes=st.integers(2, 4), boosting=st.sampled_from(list(BOOSTINGS)))
def test_a_model_alone_and_among_others_predicts_the_same_bits(seed: int, classes: int, boosting: str) -> None:
    text, x, _ = of_few_rows(seed, classes, boosting)
    label = TWO_CLASSES if classes == 2 else SEVERAL_CLASSES
    found = compile_forests([GroupTrees(text, AS_THEY_ARE, tuple(range(classes)))], label, classes)
    assert found is not None
    forests, _ = found
    scores = forests.scores(x, np.zeros(len(x), np.int32))
    assert (scores * 2.0**40 == np.round(scores * 2.0**40)).all()
    alone = Gbdt().score(label, Artifact("lightgbm", text=text), x)
    np.testing.assert_array_equal(alone, compiled_predictions(found, x)[:, -alone.shape[1] :])


def compiled_predictions(found: tuple[Forests, object], x: np.ndarray) -> np.ndarray:
    from grouplearn.kernels.scoring import Link, linked

    forests, link = found
    assert isinstance(link, Link)
    return linked(forests.scores(x, np.zeros(len(x), np.int32)), link)


def test_rows_that_meet_equal_leaves_in_other_trees_are_tied(build: str) -> None:
    leaves = np.array([0.1, 0.2, 0.3, 0.7, 1e-9, -0.4])
    random = np.random.default_rng(1)
    orders = np.array([random.permutation(len(leaves)) for _ in range(50)])
    assert len({sum(leaves[order].tolist()) for order in orders}) > 1
    sums = {stumps(leaves[order]).scores(np.zeros((9, 1)), np.zeros(9, np.int32))[8, 0] for order in orders}
    assert sums == {math.fsum(leaves)}


@pytest.mark.parametrize(
    ("leaves", "expected"),
    [
        ([1e308, 1e308, -1e308], math.inf),
        ([-1e308, -1e308], -math.inf),
        ([1.0, math.inf], math.inf),
        ([1e-320, 5e-324], 1e-320 + 5e-324),
    ],
    ids=str,
)
def test_sums_without_end_and_of_the_smallest_numbers(build: str, leaves: list[float], expected: float) -> None:
    found = stumps(np.array(leaves)).scores(np.zeros((3, 1)), np.zeros(3, np.int32))
    assert (found == expected).all()


def stumps(leaves: np.ndarray) -> Forests:
    """Return one group's trees of one leaf each."""
    count = len(leaves)
    return Forests(
        nodes=np.zeros(0, [("bound", "f8"), ("slot", "u4"), ("yes", "i2"), ("no", "i2")]),
        others=np.zeros(0, np.uint64),
        leaves=leaves,
        first_nodes=np.zeros(count + 1, np.int64),
        first_leaves=np.arange(count + 1),
        outputs=np.zeros(count, np.int32),
        kinds=np.zeros(count, np.uint8),
        first_trees=np.array([0, count]),
        base=np.zeros((1, 1)),
    )
