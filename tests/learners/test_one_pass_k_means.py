"""k-means in one pass: as good as Lloyd's algorithm on all rows, the same however blocks are merged, and of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans as Reference
from sklearn.cluster import MiniBatchKMeans

from grouplearn.data.shard import Shard
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.unsupervised.kmeans import KMeans
from grouplearn.learners.unsupervised.one_pass.coreset import CoresetKMeans
from grouplearn.learners.unsupervised.one_pass.facility_location import FacilityKMeans
from grouplearn.learners.unsupervised.one_pass.learner import OnePassKMeans
from grouplearn.models.label import CLUSTERING
from grouplearn.models.state import Artifact, State, Tensors
from grouplearn.train.block_sums import BlockSums

BLOCK = 2_048
WAYS = [CoresetKMeans(), FacilityKMeans()]
#: How many times the inertia of Lloyd's algorithm is allowed, and by what share losses may differ from inertias.
WORSE, OFF = 1.02, 0.03
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.declaration.solver)


def blobs(n: int, random: np.random.Generator, d: int = 6, centres: int = 10) -> np.ndarray:
    where = random.normal(size=(centres, d)) * 4
    return where[random.integers(0, centres, n)] + random.normal(size=(n, d))


def skewed(n: int, random: np.random.Generator) -> np.ndarray:
    """Clusters of which each has half the rows of the one before, the last some tens."""
    sizes = 0.5 ** np.arange(10)
    where = random.normal(size=(10, 4)) * 6
    return where[random.choice(10, n, p=sizes / sizes.sum())] + random.normal(size=(n, 4)) * 0.5


DATA: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "blobs": blobs,
    "skewed": skewed,
    "uniform": lambda n, random: random.random((n, 3)),
    "wide_uniform": lambda n, random: random.random((n, 8)),
    "correlated": lambda n, random: (
        random.normal(size=(n, 3)) @ random.normal(size=(3, 8)) + random.normal(size=(n, 8)) / 5
    ),
    "long_tails": lambda n, random: np.exp(random.normal(size=(n, 3))),
    "one_column": lambda n, random: random.normal(size=(n, 1)),
}


def configs_of(way: KMeans | OnePassKMeans, *given: dict[str, Any]) -> list[Config]:
    return [{**{each.name: each.default for each in way.declaration.hyperparameters}, **config} for config in given]


def sums_of(
    way: OnePassKMeans, configs: Sequence[Config], x: np.ndarray, weight: np.ndarray, seed: int = 1
) -> BlockSums[Tensors]:
    problem = Problem(CLUSTERING, x.shape[1], seed=seed)
    state = way.init(problem, configs)
    sums: BlockSums[Tensors] = BlockSums()
    for number, start in enumerate(range(0, len(x), BLOCK)):
        rows = slice(start, start + BLOCK)
        block = Shard(x[rows], np.zeros(len(x[rows])), weight[rows], first=number)
        sums = sums.merged(BlockSums.of(number, way.accumulate(problem, configs, state, block)), way.merge)
    return sums


def total(way: OnePassKMeans, sums: BlockSums[Tensors]) -> Tensors:
    found = sums.total(sums.n_blocks, way.merge)
    assert found is not None
    return found


def trained(
    way: OnePassKMeans, x: np.ndarray, weight: np.ndarray, *given: dict[str, Any]
) -> tuple[State, list[Artifact]]:
    configs, problem = configs_of(way, *given), Problem(CLUSTERING, x.shape[1], seed=1)
    sums = total(way, sums_of(way, configs, x, weight))
    state = way.step(problem, configs, way.init(problem, configs), sums)
    return state, [way.finalize(problem, configs, state, place) for place in range(len(given))]


def by_lloyd(x: np.ndarray, weight: np.ndarray, *given: dict[str, Any]) -> list[Artifact]:
    learner = KMeans()
    configs, problem = configs_of(learner, *given), Problem(CLUSTERING, x.shape[1], seed=1, epochs=300)
    state, block = learner.init(problem, configs), Shard(x, np.zeros(len(x)), weight)
    while not state.done.all():
        state = learner.step(problem, configs, state, learner.accumulate(problem, configs, state, block))
    return [learner.finalize(problem, configs, state, place) for place in range(len(given))]


def inertia(x: np.ndarray, weight: np.ndarray, model: Artifact) -> float:
    return float(weight @ KMeans().score(CLUSTERING, model, x)[:, 1] ** 2)


@pytest.mark.parametrize("name", DATA)
@each_way
def test_every_k_is_nearly_as_good_as_on_all_rows(way: OnePassKMeans, name: str) -> None:
    random = np.random.default_rng(3)
    x, weight = DATA[name](40_000, random), random.uniform(0.5, 2, 40_000)
    grid = [{"k": k, "n_init": 10} for k in (1, 2, 5, 10, 20)]
    _, models = trained(way, x, weight, *grid)
    for found, best in zip(models, by_lloyd(x, weight, *grid), strict=True):
        assert inertia(x, weight, found) < WORSE * inertia(x, weight, best)


@each_way
def test_it_is_better_than_mini_batches_and_as_good_as_scikit_learn(way: OnePassKMeans) -> None:
    ours, theirs, batches = [], [], []
    for seed in range(4):
        x = blobs(20_000, np.random.default_rng(seed), d=4, centres=12)
        _, [model] = trained(way, x, np.ones(len(x)), {"k": 12})
        ours.append(inertia(x, np.ones(len(x)), model))
        theirs.append(Reference(12, n_init=10, random_state=seed).fit(x).inertia_)
        batches.append(MiniBatchKMeans(12, n_init=3, random_state=seed).fit(x).inertia_)
    assert np.mean(ours) < 1.01 * np.mean(theirs)
    assert np.mean(ours) < np.mean(batches)


@each_way
def test_few_rows_are_their_own_points_and_have_the_models_of_lloyd(way: OnePassKMeans) -> None:
    random = np.random.default_rng(1)
    x, weight = blobs(150, random), random.uniform(0.5, 2, 150)
    grid = [{"k": k, "n_init": 4} for k in (1, 3, 8)]
    _, models = trained(way, x, weight, *grid)
    for found, same in zip(models, by_lloyd(x, weight, *grid), strict=True):
        for name, tensor in same.tensors.items():
            assert found.tensors[name].tobytes() == tensor.tobytes()


@each_way
def test_sums_are_bounded_and_stand_for_all_rows(way: OnePassKMeans) -> None:
    configs = configs_of(way, {"k": 5, "k_max": 8})
    sizes = []
    for n in (20_000, 80_000):
        random = np.random.default_rng(2)
        x, weight = blobs(n, random), random.uniform(0.5, 2, n)
        sums = total(way, sums_of(way, configs, x, weight))
        assert len(sums["values"]) <= way.most(sums["sizes"], sums["rows"].sum())
        sizes.append(sum(each.nbytes for each in sums.values()))
        np.testing.assert_allclose(sums["weights"].sum(), weight.sum(), rtol=1e-9)
        np.testing.assert_allclose(sums["rows"].sum(), n, rtol=0.02)
        np.testing.assert_array_equal(sums["low"], x.min(axis=0))
        np.testing.assert_array_equal(sums["high"], x.max(axis=0))
        assert {each.dtype for each in sums.values()} <= {np.dtype(np.float64), np.dtype(np.int64)}
    assert max(sizes) < 400_000


@each_way
def test_how_blocks_are_merged_changes_no_bit(way: OnePassKMeans) -> None:
    x = blobs(30_000, np.random.default_rng(4))
    configs = configs_of(way, {"k": 5, "k_max": 4})
    problem = Problem(CLUSTERING, x.shape[1], seed=1)
    blocks = [
        BlockSums.of(
            number,
            way.accumulate(
                problem,
                configs,
                way.init(problem, configs),
                Shard(
                    x[start : start + BLOCK],
                    np.zeros(len(x[start : start + BLOCK])),
                    np.ones(len(x[start : start + BLOCK])),
                    first=number,
                ),
            ),
        )
        for number, start in enumerate(range(0, len(x), BLOCK))
    ]
    straight = total(way, sums_of(way, configs, x, np.ones(len(x))))
    halves: list[BlockSums[Tensors]] = [BlockSums(), BlockSums()]
    for number in np.random.default_rng(0).permutation(len(blocks)).tolist():
        halves[number % 2] = halves[number % 2].merged(blocks[number], way.merge)
    other = total(way, halves[1].merged(halves[0], way.merge))
    for name, each in straight.items():
        assert each.tobytes() == other[name].tobytes(), name


@each_way
def test_what_comes_late_changes_no_sum(way: OnePassKMeans) -> None:
    x = blobs(5_000, np.random.default_rng(5))
    late = {each.name for each in way.declaration.hyperparameters if each.late}
    assert late >= {"k", "n_init", "tolerance"}
    one, other = (
        total(way, sums_of(way, configs_of(way, given), x, np.ones(len(x))))
        for given in ({"k": 2}, {"k": 20, "n_init": 1, "tolerance": 0.0})
    )
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)
    early = configs_of(way, {"k_max": 30})[0]
    assert way.pack_key(early) != way.pack_key(configs_of(way, {})[0])
    seeded = total(way, sums_of(way, configs_of(way, {}), blobs(50_000, np.random.default_rng(5)), np.ones(50_000), 2))
    again = total(way, sums_of(way, configs_of(way, {}), blobs(50_000, np.random.default_rng(5)), np.ones(50_000), 3))
    assert seeded["values"].tobytes() != again["values"].tobytes()


@each_way
def test_losses_and_rows_are_estimates_of_those_of_all_rows(way: OnePassKMeans) -> None:
    random = np.random.default_rng(6)
    x, weight = blobs(40_000, random), random.uniform(0.5, 2, 40_000)
    state, models = trained(way, x, weight, {"k": 4}, {"k": 10})
    for place, model in enumerate(models):
        np.testing.assert_allclose(way.losses(state)[place], inertia(x, weight, model), rtol=OFF)
        nearest = way.score(CLUSTERING, model, x)[:, 0].astype(int) - 1
        np.testing.assert_allclose(model.tensors["rows"], np.bincount(nearest), rtol=0.05)
        np.testing.assert_allclose(model.tensors["weight"], np.bincount(nearest, weight), rtol=0.05)
        np.testing.assert_array_equal(model.tensors["rows"], np.rint(model.tensors["rows"]))
        assert (np.diff(model.tensors["weight"]) <= 0).all()


@each_way
def test_two_points_a_million_times(way: OnePassKMeans) -> None:
    x = np.repeat([[0.0, 1.0], [3.0, 1.0]], [30_000, 10_000], axis=0)
    _, [two, five] = trained(way, x, np.ones(40_000), {"k": 2}, {"k": 5})
    for model in (two, five):
        np.testing.assert_array_equal(model.tensors["rows"], [30_000, 10_000])
        np.testing.assert_allclose(model.tensors["centroids"], [[0, 1], [3, 1]], rtol=1e-12)


@each_way
def test_what_is_refused(way: OnePassKMeans) -> None:
    x = blobs(20_000, np.random.default_rng(7), d=2)

    def run(rows: np.ndarray) -> None:
        trained(way, rows, np.ones(len(rows)), {"k": 2})

    with pytest.raises(Diverged, match="no row has a weight above 0"):
        trained(way, x[:100], np.zeros(100), {"k": 2})
    with pytest.raises(Diverged, match="less than 1e-150"):
        run(x * 1e-170)
    with pytest.raises(Diverged, match="there are no features"):
        run(x[:, :0])
    x[:, 1], x[1, 1] = 1.7e308, -1.7e308
    with pytest.raises(Diverged, match="feature column 2 overflow"):
        run(x)
    [config] = configs_of(way, {"k": 21})
    conflict = way.conflict(config)
    assert conflict is not None
    assert conflict.parameters == ("k", "k_max")
    assert way.conflict(configs_of(way, {"k": 20})[0]) is None


def test_as_many_clusters_as_their_cost_allows() -> None:
    way = FacilityKMeans()
    random = np.random.default_rng(8)
    where = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0], [4.0, 20.0]])
    x = where[random.integers(0, 5, 30_000)] + random.normal(size=(30_000, 2))
    costs = (1.0, 0.01, 0.0)
    _, models = trained(way, x, np.ones(len(x)), *({"k": None, "facility_cost": cost} for cost in costs))
    assert [len(model.tensors["rows"]) for model in models] == [1, 5, 20]
    grid = [{"k": k} for k in range(1, 21)]
    state, _ = trained(way, x, np.ones(len(x)), *grid)
    losses = way.losses(state)
    assert int(np.argmin(losses + 0.01 * losses[0] * np.arange(1, 21))) == 4
    _, [chosen, given] = trained(way, x, np.ones(len(x)), {"k": None}, {"k": 5})
    assert all(chosen.tensors[name].tobytes() == each.tobytes() for name, each in given.tensors.items())
