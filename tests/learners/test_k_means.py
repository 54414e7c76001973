"""k-means against scikit-learn: of the same seeds the same clusters, and as good ones from its own."""

import warnings

import numpy as np
import pytest
from sklearn.cluster import KMeans

from grouplearn.data.shard import Stack
from grouplearn.kernels import clustering as kernel
from grouplearn.learners.contract.control import Diverged, Interrupted
from grouplearn.learners.unsupervised import k_means


def blobs(n: int, d: int, centres: int, seed: int = 0, spread: float = 1.0) -> np.ndarray:
    random = np.random.default_rng(seed)
    where = random.normal(size=(centres, d)) * 3
    return where[random.integers(0, centres, n)] + random.normal(size=(n, d)) * spread


def trained(
    x: np.ndarray, weight: np.ndarray, *configs: dict[str, object], epochs: int = 300, seed: int = 1
) -> list[k_means.Model]:
    plan = k_means.plan(x.shape[1], configs, epochs)
    state: kernel.Tensors = {}
    passes = 0
    while not k_means.done(plan, state).all():
        half = len(x) // 2
        sums = k_means.merge(
            plan,
            k_means.accumulate(plan, seed, state, x[:half], weight[:half], 0),
            k_means.accumulate(plan, seed, state, x[half:], weight[half:], half),
        )
        state = k_means.step(plan, seed, state, sums)
        assert k_means.is_sound(plan, state)
        passes += 1
        assert passes <= epochs + 1
    found = k_means.finish(plan, state)
    np.testing.assert_allclose(k_means.losses(plan, state), [each.inertia for each in found], rtol=1e-12)
    return found


@pytest.mark.parametrize("tolerance", [0.0, 1e-4, 1e-2])
def test_from_the_same_seeds_as_scikit_learn(tolerance: float) -> None:
    x = blobs(800, 5, 6, 3, spread=2.5)
    weight = np.random.default_rng(1).uniform(0.2, 3, len(x))
    plan = k_means.plan(5, [{"k": 6, "n_init": 1, "tolerance": tolerance}])
    state = k_means.step(plan, 1, {}, k_means.accumulate(plan, 1, {}, x, weight, 0))
    seeds = state["origin"] + state["centroids"] / state["scale"]
    # It takes the variance of rows without their weights.
    variance = np.average((x - np.average(x, axis=0, weights=weight)) ** 2, axis=0, weights=weight).mean()
    shares = x.var(axis=0).mean() / variance
    theirs = KMeans(6, init=seeds, n_init=1, tol=tolerance / shares, max_iter=300).fit(x, sample_weight=weight)
    [found] = trained(x, weight, {"k": 6, "n_init": 1, "tolerance": tolerance})
    np.testing.assert_allclose(found.inertia, theirs.inertia_, rtol=1e-9)
    order = np.argsort(-np.bincount(theirs.labels_, weight))
    np.testing.assert_allclose(found.centroids, theirs.cluster_centers_[order], rtol=1e-8, atol=1e-9)
    cluster, distance = k_means.assign(found, x)
    np.testing.assert_array_equal(order[cluster], theirs.labels_)
    np.testing.assert_allclose(distance, theirs.transform(x).min(axis=1), rtol=1e-9)
    np.testing.assert_array_equal(found.rows, np.bincount(cluster))
    assert found.converged


def test_as_good_as_scikit_learn_on_average() -> None:
    ours, theirs = [], []
    for seed in range(30):
        x = blobs(300, 4, 8, seed)
        plan = k_means.plan(4, [{"k": 8, "n_init": 1, "seed": each} for each in range(5)])
        stack = Stack(x, np.zeros(300), np.ones(300), np.array([0, 300]))
        found = k_means.solve(plan, stack, np.array([seed], np.uint64), lambda _: None, lambda: False)
        ours.extend(found.inertia[0].tolist())
        theirs.extend(KMeans(8, n_init=1, random_state=each).fit(x).inertia_ for each in range(5))
    assert np.mean(ours) < 1.02 * np.mean(theirs)


def test_groups_of_a_stack_are_as_pass_by_pass() -> None:
    x = blobs(500, 3, 4)
    start, seeds = np.array([0, 200, 200, 500]), np.array([1, 2, 1], np.uint64)
    configs = [{"k": 2}, {"k": 5, "seed": 3}]
    plan = k_means.plan(3, configs)
    found = k_means.solve(plan, Stack(x, np.zeros(500), np.ones(500), start), seeds, lambda _: None, lambda: False)
    for group in (0, 2):
        own = x[start[group] : start[group + 1]]
        for config, alone in enumerate(trained(own, np.ones(len(own)), *configs)):
            beside = k_means.model(plan, found, group, config)
            np.testing.assert_allclose(beside.centroids, alone.centroids, rtol=1e-12)
            np.testing.assert_array_equal(beside.rows, alone.rows)
    with pytest.raises(Diverged, match="no row has a weight above 0"):
        k_means.model(plan, found, 1, 0)


def test_fewer_distinct_rows_than_clusters_as_scikit_learn() -> None:
    x = np.repeat(blobs(3, 2, 3), 5, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = KMeans(5, n_init=1).fit(x)
    [found] = trained(x, np.ones(15), {"k": 5})
    assert len(found.centroids) == 5
    assert (found.rows > 0).sum() == len(set(theirs.labels_)) == 3
    assert set(k_means.assign(found, blobs(50, 2, 3))[0].tolist()) <= {0, 1, 2}


def test_what_is_refused() -> None:
    for config, message in (
        ({"k": 0}, "k is 0; it must be 1 or more"),
        ({"k": 2, "n_init": 0}, "n_init is 0; it must be 1 or more"),
        ({"k": 2, "tolerance": -1.0}, "tolerance is -1.0; it must be 0 or more"),
        ({"k": 2, "tolerance": np.nan}, "tolerance is nan; it must be 0 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            k_means.plan(2, [config])
    with pytest.raises(ValueError, match="epochs is 0"):
        k_means.plan(2, [{"k": 2}], 0)
    x = blobs(10, 2, 2)
    with pytest.raises(Diverged, match="no row has a weight above 0"):
        trained(x, np.zeros(10), {"k": 2})
    x[:, 1], x[1, 1] = 1.7e308, -1.7e308
    with pytest.raises(Diverged, match="feature column 2 overflow") as raised:
        trained(x, np.ones(10), {"k": 2})
    assert raised.value.column == 1
    plan = k_means.plan(2, [{"k": 2}])
    with pytest.raises(Interrupted):
        k_means.solve(
            plan,
            Stack(x, np.zeros(10), np.ones(10), np.array([0, 10])),
            np.zeros(1, np.uint64),
            lambda _: None,
            lambda: True,
        )


def test_states_that_no_plan_has() -> None:
    x, plan = blobs(50, 2, 2), k_means.plan(2, [{"k": 2}, {"k": 4}])
    state = dict(k_means.step(plan, 1, {}, k_means.accumulate(plan, 1, {}, x, np.ones(50), 0)))
    assert k_means.is_sound(plan, {})
    assert k_means.is_sound(plan, state)
    for name, each in state.items():
        assert not k_means.is_sound(plan, {key: value for key, value in state.items() if key != name})
        assert not k_means.is_sound(plan, {**state, name: each[:-1]})
        assert not k_means.is_sound(plan, {**state, name: each.astype(np.float32)})
    assert not k_means.is_sound(plan, {**state, "phase": state["phase"] + 9})
    assert not k_means.is_sound(plan, {**state, "passes": state["passes"] - 1})
    assert not k_means.is_sound(plan, {**state, "scale": np.zeros(1)})
    assert not k_means.is_sound(k_means.plan(2, [{"k": 2}]), state)
    # Numbers that are none end as numbers that are none.
    lost = {**state, "centroids": np.full_like(state["centroids"], np.nan)}
    after = k_means.step(plan, 1, lost, k_means.accumulate(plan, 1, lost, x, np.ones(50), 0))
    with pytest.raises(Diverged):
        k_means.finish(plan, after)
