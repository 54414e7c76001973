"""k-means against scikit-learn: of the same seeds the same clusters, and as good ones from its own."""

import warnings
from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.cluster import KMeans as Reference

from grouplearn.data.shard import Shard, Stack
from grouplearn.kernels.clusters import clustering as kernel
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged, Interrupted
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.unsupervised import lloyd
from grouplearn.learners.unsupervised.kmeans import KMeans
from grouplearn.models.label import CLUSTERING
from grouplearn.models.state import Artifact, State

LEARNER = KMeans()


def blobs(n: int, d: int, centres: int, seed: int = 0, spread: float = 1.0) -> np.ndarray:
    random = np.random.default_rng(seed)
    where = random.normal(size=(centres, d)) * 3
    return where[random.integers(0, centres, n)] + random.normal(size=(n, d)) * spread


def problem_of(x: np.ndarray) -> Problem:
    return Problem(CLUSTERING, x.shape[1], seed=1, epochs=300)


def configs_of(*given: Config) -> list[Config]:
    return [{**{each.name: each.default for each in LEARNER.declaration.hyperparameters}, **config} for config in given]


def trained(x: np.ndarray, weight: np.ndarray, *given: Config) -> State:
    problem, configs, half = problem_of(x), configs_of(*given), len(x) // 2
    state = LEARNER.init(problem, configs)
    for _ in range(problem.epochs):
        left, right = (
            LEARNER.accumulate(
                problem, configs, state, Shard(x[rows], np.zeros(len(x[rows])), weight[rows], first=first)
            )
            for rows, first in ((slice(0, half), 0), (slice(half, None), 1))
        )
        state = LEARNER.step(problem, configs, state, LEARNER.merge(left, right))
        assert LEARNER.resumes(problem, configs, State.from_bytes(state.to_bytes()))
        if state.done.all():
            break
    return state


def models(x: np.ndarray, weight: np.ndarray, *given: Config) -> list[Artifact]:
    state, configs = trained(x, weight, *given), configs_of(*given)
    return [LEARNER.finalize(problem_of(x), configs, state, place) for place in range(len(given))]


def inertia(x: np.ndarray, weight: np.ndarray, model: Artifact) -> float:
    return float(weight @ LEARNER.score(CLUSTERING, model, x)[:, 1] ** 2)


def solve(x: np.ndarray, start: Sequence[int], seeds: Sequence[int], *given: Config, stop: bool = False):
    stack = Stack(x, np.zeros(len(x)), np.ones(len(x)), np.array(start), np.array(seeds, np.uint64))
    return LEARNER.solve(problem_of(x), configs_of(*given), stack, lambda _: None, lambda: stop)


@pytest.mark.parametrize("tolerance", [0.0, 1e-4, 1e-2])
def test_from_the_same_seeds_as_scikit_learn(tolerance: float) -> None:
    x = blobs(800, 5, 6, 3, spread=2.5)
    weight = np.random.default_rng(1).uniform(0.2, 3, len(x))
    plan = kernel.ClusteringPlan(5, (kernel.KMeansConfig(6, tolerance=tolerance),), 300)
    begun = plan.begin(plan.survey(x, weight, 0, 1), 1)
    seeds = begun["origin"] + begun["centroids"] / begun["scale"]
    # It takes the variance of rows without their weights.
    variance = np.average((x - np.average(x, axis=0, weights=weight)) ** 2, axis=0, weights=weight).mean()
    shares = x.var(axis=0).mean() / variance
    theirs = Reference(6, init=seeds, n_init=1, tol=tolerance / shares, max_iter=300).fit(x, sample_weight=weight)
    [found] = models(x, weight, {"k": 6, "n_init": 1, "tolerance": tolerance})
    np.testing.assert_allclose(inertia(x, weight, found), theirs.inertia_, rtol=1e-9)
    order = np.argsort(-np.bincount(theirs.labels_, weight))
    np.testing.assert_allclose(found.tensors["centroids"], theirs.cluster_centers_[order], rtol=1e-8, atol=1e-9)
    scores = LEARNER.score(CLUSTERING, found, x)
    cluster = scores[:, 0].astype(int) - 1
    np.testing.assert_array_equal(order[cluster], theirs.labels_)
    apart = np.sort(theirs.transform(x), axis=1)
    np.testing.assert_allclose(scores[:, 1:], apart[:, :2], rtol=1e-8)
    np.testing.assert_array_equal(found.tensors["rows"], np.bincount(cluster))


def test_as_good_as_scikit_learn_on_average() -> None:
    ours, theirs = [], []
    for seed in range(12):
        x = blobs(300, 4, 8, seed)
        found = [solve(x, [0, 300], [5 * seed + each], {"k": 8, "n_init": 1}) for each in range(5)]
        ours.extend(float(each.loss[0, 0]) for each in found)
        theirs.extend(Reference(8, n_init=1, random_state=each).fit(x).inertia_ for each in range(5))
    assert np.mean(ours) < 1.02 * np.mean(theirs)


def test_losses_are_inertias_and_the_best_start_is_kept() -> None:
    x, weight = blobs(300, 4, 8), np.ones(300)
    state = trained(x, weight, {"k": 8, "n_init": 1}, {"k": 8, "n_init": 6}, {"k": 3})
    for place, model in enumerate(models(x, weight, {"k": 8, "n_init": 1}, {"k": 8, "n_init": 6}, {"k": 3})):
        np.testing.assert_allclose(LEARNER.losses(state)[place], inertia(x, weight, model), rtol=1e-12)
    assert state.tensors["loss"][1] <= state.tensors["loss"][0]


def test_a_model_is_finished_once_for_all_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = blobs(100, 2, 3)
    calls: list[int] = []
    finish = kernel.ClusteringPlan.finish
    monkeypatch.setattr(kernel.ClusteringPlan, "finish", lambda plan, state: calls.append(1) or finish(plan, state))
    state, configs = trained(x, np.ones(100), {"k": 2}, {"k": 3}), configs_of({"k": 2}, {"k": 3})
    before = [LEARNER.finalize(problem_of(x), configs, state, place) for place in range(2)]
    scores = LEARNER.scores(problem_of(x), configs, state, x)
    assert len(calls) == 1
    read = State.from_bytes(state.to_bytes())
    for place, model in enumerate(before):
        again = LEARNER.finalize(problem_of(x), configs, read, place)
        assert all(again.tensors[name].tobytes() == each.tobytes() for name, each in model.tensors.items())
        assert LEARNER.score(CLUSTERING, model, x).tobytes() == np.ascontiguousarray(scores[:, place]).tobytes()


def test_more_rows_than_the_sample_are_all_counted() -> None:
    """Seeds on two points rest at once on the rows that they are drawn from."""
    x = np.repeat([[0.0, 1.0], [3.0, 1.0]], [9_000, 8_000], axis=0)
    [model] = models(x, np.ones(17_000), {"k": 2})
    np.testing.assert_array_equal(model.tensors["rows"], [9_000, 8_000])
    np.testing.assert_array_equal(model.tensors["centroids"], [[0, 1], [3, 1]])


def test_fewer_distinct_rows_than_clusters_as_scikit_learn() -> None:
    x = np.repeat(blobs(3, 2, 3), 5, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = Reference(5, n_init=1).fit(x)
    [found] = models(x, np.ones(15), {"k": 5})
    assert len(found.tensors["centroids"]) == len(set(theirs.labels_)) == 3
    assert set(LEARNER.score(CLUSTERING, found, blobs(50, 2, 3))[:, 0].tolist()) <= {1, 2, 3}


def test_what_is_refused() -> None:
    x = blobs(10, 2, 2)
    with pytest.raises(Diverged, match="no row has a weight above 0"):
        trained(x, np.zeros(10), {"k": 2})
    with pytest.raises(Diverged, match="less than 1e-150"):
        trained(x * 1e-170, np.ones(10), {"k": 2})
    with pytest.raises(Interrupted):
        solve(x, [0, 10], [1], {"k": 2}, stop=True)
    x[:, 1], x[1, 1] = 1.7e308, -1.7e308
    with pytest.raises(Diverged, match="feature column 2 overflow") as raised:
        trained(x, np.ones(10), {"k": 2})
    assert raised.value.column == 1


def test_groups_without_a_model_have_none_in_a_stack() -> None:
    """They train alone afterwards, and say why."""
    x = np.concatenate([blobs(40, 2, 2), blobs(40, 2, 2) * 1e-170, blobs(40, 2, 2)])
    x[100, 1], x[101, 1] = 1.7e308, -1.7e308
    found = solve(x, [0, 40, 80, 120], [1, 2, 3], {"k": 2}, {"k": 3})
    assert found.sound.tolist() == [True, False, False]
    kept = found.take(found.sound)
    assert kept.loss.shape == (1, 2)
    assert len(kept.tensors()["centroids"]) == 2


def test_states_that_no_plan_has() -> None:
    x, plan = blobs(50, 2, 2), kernel.ClusteringPlan(2, (kernel.KMeansConfig(2), kernel.KMeansConfig(4)), 1 << 40)
    state = dict(lloyd.begin(plan, 1, plan.survey(x, np.ones(50), 0, 1)))
    assert lloyd.is_sound(plan, state)
    for name, each in state.items():
        assert not lloyd.is_sound(plan, {key: value for key, value in state.items() if key != name})
        assert not lloyd.is_sound(plan, {**state, name: each[:-1]})
        assert not lloyd.is_sound(plan, {**state, name: each.astype(np.float32)})
    assert not lloyd.is_sound(plan, {**state, "phase": state["phase"] + 9})
    assert not lloyd.is_sound(plan, {**state, "passes": state["passes"] - 9})
    assert not lloyd.is_sound(plan, {**state, "scale": np.zeros(1)})
    assert not lloyd.is_sound(kernel.ClusteringPlan(2, (kernel.KMeansConfig(2),), 1 << 40), state)
    # Numbers that are none end as numbers that are none.
    lost = {**state, "centroids": np.full_like(state["centroids"], np.nan)}
    after = plan.step(lost, plan.sums(lost, x, np.ones(50), 0))
    with pytest.raises(Diverged):
        lloyd.FinishedClusters(plan, after).model(0)
