"""k-means against plain Python, the same bits in every build, however rows are cut, and whatever trains beside."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from builds import in_every_build
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.kernels.clusters import clustering, distances
from grouplearn.kernels.clusters.clustering import ClusteringPlan, KMeansConfig
from grouplearn.learners.unsupervised import lloyd
from grouplearn.train.block_sums import BlockSums

MASK = 2**64 - 1


def blobs(n: int, d: int, centres: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    where = random.normal(size=(centres, d)) * 4
    x = where[random.integers(0, centres, n)] + random.normal(size=(n, d))
    weight = random.uniform(0.5, 2, n)
    weight[::7] = 0.0
    return x, weight


def solved(
    plan: ClusteringPlan,
    x: np.ndarray,
    weight: np.ndarray,
    start: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    block: int = 64,
) -> clustering.ClusterModels:
    bounds = np.array([0, len(x)] if start is None else start)
    given_seeds = np.array([5] * (len(bounds) - 1) if seeds is None else seeds, np.uint64)
    found, course = clustering.solve(
        *(plan, x, weight, bounds, given_seeds), limits=(block, 1000), report=lambda _: None, cancelled=lambda: False
    )
    assert len(course.curve) == course.epochs.max(initial=0)
    return found


def assign(x: np.ndarray, centroids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest centroid of each row, from 0, -1 without one, and how far it is."""
    scores = distances.scores(x, centroids, np.array([0, len(centroids)]))[:, 0]
    return np.nan_to_num(scores[:, 0]).astype(int) - 1, scores[:, 1]


def bits(found: clustering.ClusterModels) -> dict[str, np.ndarray]:
    return found._asdict()


def same(one: clustering.ClusterModels, other: clustering.ClusterModels) -> None:
    for name, each in bits(one).items():
        assert each.tobytes() == bits(other)[name].tobytes(), name


# Plain Python


def mixed(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) & MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def stream(purpose: int, seed: int, first: int, second: int) -> int:
    return mixed(mixed(mixed(mixed(seed) ^ purpose) ^ first) ^ second)


def square(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def plain_seeds(
    rows: list[list[float]], weight: list[float], seed: int, config: KMeansConfig, restart: int
) -> list[list[float]]:
    key, known = stream(5, seed, config.seed, restart), [math.inf] * len(rows)
    seeds: list[list[float]] = []
    for c in range(config.k):
        share = weight if c == 0 else [w * each for w, each in zip(weight, known, strict=True)]
        running = np.cumsum(share)
        if not running[-1] > 0:
            break
        best: tuple[float, list[float], list[float]] | None = None
        for trial in range(clustering.trials(config.k) if c else 1):
            draw = (mixed((key + c * 64 + trial) & MASK) >> 11) * 2.0**-53
            row = rows[int(np.searchsorted(running, draw * running[-1], side="right"))]
            nearer = [min(each, square(row, other)) for each, other in zip(known, rows, strict=True)]
            potential = math.fsum(w * each for w, each in zip(weight, nearer, strict=True))
            if best is None or potential < best[0] * (1 - 1e-12):
                best = potential, nearer, row
        assert best is not None
        known = best[1]
        seeds.append(best[2])
    return seeds


def plain_pass(
    plan: ClusteringPlan, state: clustering.Tensors, x: np.ndarray, weight: np.ndarray
) -> list[dict[str, object]]:
    rows = ((x.astype(float) - state["origin"]) * state["scale"]).tolist()
    found, first = [], 0
    for config in plan.configs:
        for _ in range(config.n_init):
            centroids = state["centroids"][first : first + config.k].tolist()
            clusters, inertia, far = np.zeros((config.k, plan.d + 2)), 0.0, (0.0, -1)
            for number, (row, w) in enumerate(zip(rows, weight.tolist(), strict=True)):
                if not w:
                    continue
                apart = [square(row, each) if not math.isnan(each[0]) else math.inf for each in centroids]
                own = apart.index(min(apart))
                clusters[own] += [*(w * each for each in row), w, 1.0]
                inertia += w * apart[own]
                far = max(far, (apart[own], -number))
            found.append({"clusters": clusters, "inertia": inertia, "far": -far[1]})
            first += config.k
    return found


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (9, 2), (130, 3), (200, 8), (67, 17), (40, 150)])
def test_a_pass_is_that_of_plain_python(n: int, d: int, kind: type) -> None:
    x, weight = blobs(n, d, 5, n)
    x = x.astype(kind)
    weight[0] = 1.5
    plan = ClusteringPlan(
        d, (KMeansConfig(1), KMeansConfig(3, n_init=2), KMeansConfig(6), KMeansConfig(9, seed=3), KMeansConfig(2)), 10
    )

    def compute() -> dict[str, np.ndarray]:
        state = plan.begin(plan.survey(x, weight, 0, 5), 5)
        sums = plan.sums(state, x, weight, 1000)
        after = plan.step(state, sums)
        return {
            **state,
            **{f"sums {name}": each for name, each in sums.items()},
            **{f"after {k}": v for k, v in after.items()},
        }

    found, first = in_every_build(compute), 0
    for model, plain in enumerate(plain_pass(plan, found, x, weight)):
        own = np.asarray(plain["clusters"])
        np.testing.assert_allclose(found["sums clusters"][first : first + len(own)], own, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found["sums inertia"][model], plain["inertia"], rtol=1e-12, atol=1e-25)
        if plain["inertia"]:
            assert found["sums far"][model, 1] == 1000 + plain["far"]
        means = np.divide(own[:, :-2], own[:, -2:-1], where=own[:, -2:-1] > 0, out=np.full_like(own[:, :-2], np.nan))
        moved = found["after centroids"][first : first + len(own)]
        np.testing.assert_allclose(moved[own[:, -1] > 0], means[own[:, -1] > 0], rtol=1e-10, atol=1e-13)
        first += len(own)
    counted = weight > 0
    np.testing.assert_allclose(
        found["sums spread"],
        (weight * (((x - found["origin"]) * found["scale"]) ** 2).sum(axis=1))[counted].sum(),
        rtol=1e-12,
    )


@pytest.mark.parametrize("d", [1, 3, 20])
def test_seeds_are_those_of_plain_python(build: str, d: int) -> None:
    x, weight = blobs(150, d, 6, d)
    configs = (KMeansConfig(2), KMeansConfig(5, n_init=2), KMeansConfig(7), KMeansConfig(9, seed=2), KMeansConfig(25))
    plan = ClusteringPlan(d, configs, 10)
    state, first = plan.begin(plan.survey(x, weight, 0, 77), 77), 0
    counted = weight > 0
    rows = ((x[counted] - state["origin"]) * state["scale"]).tolist()
    for config in configs:
        for restart in range(config.n_init):
            expected = plain_seeds(rows, weight[counted].tolist(), 77, config, restart)
            np.testing.assert_array_equal(state["centroids"][first : first + config.k], expected)
            first += config.k


def by_blocks(
    plan: ClusteringPlan, x: np.ndarray, weight: np.ndarray, seed: int, block: int, parts: int
) -> clustering.ClusterModels:
    """As workers do that have some blocks each, whose sums are merged in any order."""
    random = np.random.default_rng(parts)
    n_blocks = -(-len(x) // block)
    state: clustering.Tensors = {}
    while not state or (state["phase"] <= clustering.LAST_LOOK).any():
        of_part: list[BlockSums[clustering.Tensors]] = [BlockSums() for _ in range(parts)]
        merge = clustering.merged if state else partial(clustering.merged_surveys, most=plan.sampled)
        for number in random.permutation(n_blocks).tolist():
            own = slice(number * block, (number + 1) * block)
            given_rows = (x[own], weight[own], number * block)
            sums = plan.sums(state, *given_rows) if state else plan.survey(*given_rows, seed)
            part = int(random.integers(parts))
            of_part[part] = of_part[part].merged(BlockSums.of(number, sums), merge)
        whole: BlockSums[clustering.Tensors] = BlockSums()
        for each in of_part:
            whole = whole.merged(each, merge)
        total = whole.total(n_blocks, merge)
        assert total is not None
        state = plan.step(state, total) if state else lloyd.begin(plan, seed, total)
    return plan.finish(state)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 400), st.integers(1, 20), st.integers(1, 4), st.sampled_from([40, 8192]), st.integers(0, 2**64 - 1)
)
def test_blocks_merged_in_any_way_are_the_whole(n: int, d: int, parts: int, sampled: int, seed: int) -> None:
    x, weight = blobs(n, d, 4, n)
    weight[-1] = 1.0
    plan = ClusteringPlan(d, (KMeansConfig(3, n_init=2), KMeansConfig(8), KMeansConfig(1)), 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clustering, "SAMPLED_ROWS", sampled)
        whole = solved(plan, x, weight, seeds=[seed], block=64)
        same(whole, by_blocks(plan, x, weight, seed, 64, parts))


def test_a_sample_is_that_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "SAMPLED_ROWS", 50)
    x, weight = blobs(500, 2, 3)
    plan = ClusteringPlan(2, (KMeansConfig(4),), 5)
    whole = plan.survey(x, weight, 0, 9)
    parts = [plan.survey(x[i : i + 70], weight[i : i + 70], i, 9) for i in range(0, 500, 70)]
    left = parts[0]
    for right in parts[1:]:
        left = clustering.merged_surveys(left, right, plan.sampled)
    for name, each in whole.items():
        assert each.tobytes() == left[name].tobytes(), name
    draws = [mixed(stream(4, 9, 0, 0) ^ row) >> 11 for row in range(500)]
    chosen = sorted(sorted(np.flatnonzero(weight > 0).tolist(), key=lambda row: draws[row])[:50])
    np.testing.assert_array_equal(whole["values"], x[chosen])
    assert len(plan.survey(x, weight, 0, 10)["draw"]) == 50
    assert ClusteringPlan(1 << 20, (KMeansConfig(40),), 5).sampled == 50
    monkeypatch.undo()
    assert ClusteringPlan(1 << 20, (KMeansConfig(400),), 5).sampled == clustering.SAMPLED_FEWEST
    assert 256 < ClusteringPlan(1000, (KMeansConfig(4),), 5).sampled <= clustering.SAMPLED_BYTES / (8 * 1002)
    assert ClusteringPlan(500, (KMeansConfig(4),), 5).sampled * 8 * 502 <= clustering.SAMPLED_BYTES


def test_more_clusters_than_rows_in_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "SAMPLED_ROWS", 5)
    x, weight = blobs(300, 2, 8)
    found = solved(ClusteringPlan(2, (KMeansConfig(8),), 100), x, weight)
    assert found.phase[0, 0] == clustering.CONVERGED
    assert (found.rows > 0).all()
    monkeypatch.undo()
    assert found.inertia[0, 0] < 3 * solved(ClusteringPlan(2, (KMeansConfig(8, 0, 5),), 100), x, weight).inertia[0, 0]


def test_the_same_bits_in_every_build_and_beside_anything() -> None:
    sizes = [0, 1, 200, 3, 65, 0, 129]
    start = np.cumsum([0, *sizes])
    x, weight = blobs(int(start[-1]), 5, 4)
    weight[start[1] : start[2]] = 1.0
    configs = (KMeansConfig(2), KMeansConfig(5, n_init=3), KMeansConfig(9, seed=4, tolerance=0.0))
    plan, seeds = ClusteringPlan(5, configs, 30), np.arange(7, dtype=np.uint64)
    found = clustering.ClusterModels(**in_every_build(lambda: bits(solved(plan, x, weight, start, seeds))))
    for group in range(len(sizes)):
        own = slice(start[group], start[group + 1])
        alone = solved(plan, x[own].copy(), weight[own].copy(), seeds=[group])
        same(alone, clustering.ClusterModels(*(each[group : group + 1] for each in found)))
    for number, config in enumerate(configs):
        alone = solved(ClusteringPlan(5, (config,), 30), x, weight, start, seeds)
        clusters = slice(*plan.clusters[number : number + 2].tolist())
        parts = [*(each[:, clusters] for each in found[:3]), *(each[:, number : number + 1] for each in found[3:])]
        same(alone, clustering.ClusterModels(*parts))
    assert (found.phase[[0, 5]] == clustering.FAILED).all()
    assert np.isnan(found.centroids[[0, 5]]).all()


def test_single_precision_is_double_precision_and_offsets_do_not_matter() -> None:
    x, weight = blobs(300, 3, 4)
    x = x.astype(np.float32)
    plan = ClusteringPlan(3, (KMeansConfig(4), KMeansConfig(6)), 30)
    whole = solved(plan, x, weight)
    same(whole, solved(plan, x.astype(np.float64), weight))
    shifted = np.concatenate([x[:1], x])
    odd_weight = np.concatenate([weight[:1], weight])
    same(whole, solved(plan, shifted, odd_weight, start=[1, 301]))
    same(whole, solved(plan, shifted[1:], odd_weight[1:]))


def test_held_rows_are_those_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long rows are not held between passes; with columns that say nothing the model is that of the others."""
    x, weight = blobs(600, 2, 4)
    plan, wide = ClusteringPlan(2, (KMeansConfig(4),), 30), ClusteringPlan(1002, (KMeansConfig(4),), 30)
    monkeypatch.setattr(clustering, "SAMPLED_BYTES", 1 << 30)
    found = solved(plan, x, weight, block=10_000)
    apart = solved(wide, np.concatenate([x, np.full((600, 1000), 3.0)], axis=1), weight, block=10_000)
    assert found.centroids.tobytes() == np.ascontiguousarray(apart.centroids[..., :2]).tobytes()


@pytest.mark.parametrize("power", [-990, -500, 300, 1000])
def test_scales_that_squares_do_not_hold(power: int) -> None:
    x, weight = blobs(200, 3, 4)
    plan = ClusteringPlan(3, (KMeansConfig(4),), 30)
    one, other = solved(plan, x, weight), solved(plan, np.ldexp(x, power), weight)
    assert np.ldexp(one.centroids, power).tobytes() == other.centroids.tobytes()
    assert one.rows.tobytes() == other.rows.tobytes()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.ldexp(one.inertia, 2 * power), other.inertia)


def test_far_from_zero_no_digits_are_lost() -> None:
    x, weight = blobs(400, 4, 5)
    x = np.round(x * 2**20) / 2**20
    plan = ClusteringPlan(4, (KMeansConfig(5, n_init=3),), 100)
    near, far = solved(plan, x, weight), solved(plan, x + 1e8, weight)
    np.testing.assert_array_equal(near.rows, far.rows)
    moved = (x + 1e8) - 1e8
    np.testing.assert_allclose(far.inertia, solved(plan, moved, weight).inertia, rtol=1e-12)
    np.testing.assert_allclose(far.centroids - 1e8, near.centroids, rtol=0, atol=3e-8)


def test_one_row_far_away_takes_no_digits_of_the_others() -> None:
    x = np.concatenate([np.repeat([[0.0], [1.0], [2.0]], 50, axis=0), [[1e12]]])
    found = solved(ClusteringPlan(1, (KMeansConfig(4, n_init=5),), 50), x, np.ones(151))
    np.testing.assert_array_equal(np.sort(found.centroids[0, :, 0]), [0.0, 1.0, 2.0, 1e12])
    np.testing.assert_array_equal(found.rows, [[50, 50, 50, 1]])


def test_clusters_are_numbered_by_weight_then_by_centroid() -> None:
    x = np.array([[5.0, 1], [5, 1], [0, 2], [0, 3], [9, 9], [9, 9], [9, 9]])
    for seed in range(8):
        found = solved(ClusteringPlan(2, (KMeansConfig(4, seed),), 50), x, np.ones(7))
        np.testing.assert_array_equal(found.centroids[0], [[9, 9], [5, 1], [0, 2], [0, 3]])
        np.testing.assert_array_equal(found.weight[0], [3, 2, 1, 1])


def test_fewer_distinct_rows_than_clusters() -> None:
    x = np.repeat([[1.0, 2.0], [3.0, 4.0]], [4, 2], axis=0)
    found = solved(ClusteringPlan(2, (KMeansConfig(5), KMeansConfig(1), KMeansConfig(2)), 50), x, np.ones(6))
    np.testing.assert_array_equal(found.centroids[0, :5], [[1, 2], [3, 4], *[[np.nan] * 2] * 3])
    np.testing.assert_array_equal(found.rows[0, :5], [4, 2, 0, 0, 0])
    np.testing.assert_array_equal(found.inertia[0, [0, 2]], 0)
    assert (found.phase == clustering.CONVERGED).all()
    cluster, _ = assign(np.random.default_rng(1).normal(size=(100, 2)) * 10, found.centroids[0, :5])
    assert set(cluster.tolist()) == {0, 1}


def test_as_many_clusters_as_rows() -> None:
    x, _ = blobs(20, 3, 4)
    found = solved(ClusteringPlan(3, (KMeansConfig(20),), 50), x, np.ones(20))
    np.testing.assert_array_equal(found.rows, np.ones((1, 20)))
    np.testing.assert_allclose(np.sort(found.centroids[0], axis=0), np.sort(x, axis=0), rtol=1e-15)
    assert found.inertia[0, 0] <= 1e-25


def test_a_cluster_without_rows_takes_the_farthest_row() -> None:
    x = np.array([[0.0], [0.5], [1.0], [10.0]])
    plan = ClusteringPlan(1, (KMeansConfig(3),), 50)
    state = dict(plan.begin(plan.survey(x, np.ones(4), 0, 1), 1))
    # The last two are nearest to no row; one is no number.
    state["centroids"] = np.array([[0.0], [-900.0], [np.nan]])
    rows = (x[:, 0] - state["origin"]) * state["scale"]
    state["centroids"][0] = rows[0]
    after = plan.step(state, plan.sums(state, x, np.ones(4), 0))
    np.testing.assert_allclose(after["centroids"][:, 0], [rows[:3].mean(), rows[3], np.nan], rtol=1e-15)
    assert after["phase"][0] == clustering.MOVING
    again = plan.step(after, plan.sums(after, x, np.ones(4), 0))
    assert np.isfinite(again["centroids"]).all()
    while again["phase"][0] <= clustering.LAST_LOOK:
        again = plan.step(again, plan.sums(again, x, np.ones(4), 0))
    found = plan.finish(again)
    assert found.rows[0].tolist() == [2, 1, 1]


def test_of_rows_equally_far_the_first_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "SAMPLED_ROWS", 1)
    x, plan = np.zeros((100, 1)), ClusteringPlan(1, (KMeansConfig(2),), 3)
    x[[3, 5, 70], 0] = 10.0, -10.0, -10.0
    found = solved(plan, x, np.ones(100), block=4)
    np.testing.assert_array_equal(found.rows, [[99, 1]])
    assert found.centroids[0, 1, 0] == 10
    same(found, by_blocks(plan, x, np.ones(100), 5, 4, 3))


def test_what_ends_a_start() -> None:
    x, weight = blobs(500, 2, 1)
    for tolerance, limit, phase in (
        (0.0, 1000, clustering.CONVERGED),
        (1.0, 1000, clustering.CONVERGED),
        (0.0, 2, clustering.ENDED),
    ):
        found = solved(ClusteringPlan(2, (KMeansConfig(6, 0, 1, tolerance),), limit), x, weight)
        assert found.phase[0, 0] == phase
        assert found.passes[0, 0] <= limit
        # What is said of clusters is of the centroids that are kept.
        cluster, distance = assign(x, found.centroids[0])
        np.testing.assert_allclose(found.inertia[0, 0], (weight * distance**2).sum(), rtol=1e-12)
        np.testing.assert_allclose(found.weight[0], np.bincount(cluster, weight, 6), rtol=1e-12)
    free = solved(ClusteringPlan(2, (KMeansConfig(6, 0, 1, 0.0), KMeansConfig(6, 0, 1, 1.0)), 1000), x, weight)
    assert free.passes[0, 1] == 2 < free.passes[0, 0]
    cluster, _ = assign(x, free.centroids[0, :6])
    for c in range(6):
        own = cluster == c
        np.testing.assert_allclose(free.centroids[0, c], np.average(x[own], axis=0, weights=weight[own]), rtol=1e-12)


def test_the_best_start_is_kept() -> None:
    x, weight = np.random.default_rng(3).random((300, 2)), np.ones(300)
    one = [solved(ClusteringPlan(2, (KMeansConfig(9, 1, n),), 100), x, weight).inertia[0, 0] for n in range(1, 9)]
    assert one == sorted(one, reverse=True)
    assert one[-1] < one[0]


def test_weights_that_are_whole_numbers_are_so_many_rows() -> None:
    x, _ = blobs(60, 2, 3)
    times = np.random.default_rng(2).integers(0, 4, 60)
    plan = ClusteringPlan(2, (KMeansConfig(3, n_init=8, tolerance=0.0),), 200)
    one, other = solved(plan, x, times.astype(float)), solved(plan, np.repeat(x, times, axis=0), np.ones(times.sum()))
    np.testing.assert_allclose(one.centroids, other.centroids, rtol=1e-10)
    np.testing.assert_allclose(one.inertia, other.inertia, rtol=1e-10)


def test_what_overflows_has_no_model() -> None:
    x, _ = blobs(30, 2, 3)
    x[:, 1], x[4, 1] = 1.7e308, -1.7e308
    start = [0, 30, 30, 60]
    both = np.concatenate([x, blobs(30, 2, 3)[0]])
    found = solved(ClusteringPlan(2, (KMeansConfig(2),), 20), both, np.ones(60), start)
    assert found.phase[:, 0].tolist() == [clustering.FAILED, clustering.FAILED, clustering.CONVERGED]
    assert np.isnan(found.inertia[:2]).all()
    heavy = solved(ClusteringPlan(2, (KMeansConfig(2),), 20), blobs(30, 2, 3)[0], np.full(30, 1e308))
    assert heavy.phase[0, 0] == clustering.FAILED
    ignored = np.ones(30)
    ignored[4] = 0.0
    assert solved(ClusteringPlan(2, (KMeansConfig(2),), 20), x, ignored).phase[0, 0] == clustering.CONVERGED


def test_it_stops_when_it_is_told() -> None:
    x, weight = blobs(2000, 8, 3)
    finished = []

    def stop() -> bool:
        return True

    with pytest.raises(clustering.Stopped):
        clustering.solve(
            *(
                ClusteringPlan(8, (KMeansConfig(8, n_init=50),), 100),
                x,
                weight,
                np.array([0, 2000]),
                np.zeros(1, np.uint64),
            ),
            limits=(64, 100),
            report=finished.append,
            cancelled=stop,
        )


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_assign_is_that_of_plain_python(kind: type) -> None:
    for n, d, k in ((0, 2, 3), (1, 1, 1), (19, 3, 4), (33, 9, 7), (8, 30, 12)):
        x, centroids = blobs(n, d, 3, n)[0].astype(kind), blobs(k, d, 3, k + 1)[0]
        found = in_every_build(lambda x=x, c=centroids: dict(zip("cd", assign(x, c), strict=True)))
        apart = np.sqrt([[square(row, each) for each in centroids.tolist()] for row in x.tolist()]).reshape(n, k)
        np.testing.assert_array_equal(found["c"], apart.argmin(axis=1) if n else [])
        np.testing.assert_allclose(found["d"], apart.min(axis=1) if n else [], rtol=1e-14)


def test_assign_of_odd_rows_and_centroids() -> None:
    centroids = np.array([[np.nan, np.nan], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    x = np.array([[0, 0], [1, 0], [np.nan, 0], [0, np.inf], [-3e200, 4e200], [1 + 1e-9, 0], [-np.inf, np.nan]])
    found = in_every_build(lambda: dict(zip("cd", assign(x, centroids), strict=True)))
    # Of the fifth row a double does not hold the squared distance, by which SQL predicts.
    np.testing.assert_array_equal(found["c"], [1, 1, -1, -1, -1, 1, -1])
    np.testing.assert_allclose(found["d"], [1, 0, np.nan, np.nan, np.nan, 1e-9, np.nan], rtol=1e-6)
    tiny = np.array([[3e-200, 4e-200], [0, 0]])
    cluster, distance = assign(tiny, np.array([[1.0, 1.0], [0.0, 0.0]]))
    np.testing.assert_array_equal(cluster, 1)
    np.testing.assert_allclose(distance, [5e-200, 0], rtol=1e-14)
    cluster, distance = assign(tiny * 2, tiny)
    np.testing.assert_array_equal(cluster, [0, 1])
    np.testing.assert_array_equal(assign(x, centroids[:1])[0], -1)
    with pytest.raises(ValueError, match="2 features where centroids have 3"):
        assign(x, np.zeros((2, 3)))


def plain_scores(x: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    apart = np.sqrt([[square(row, each) for each in centroids.tolist()] for row in x.tolist()])
    apart = np.column_stack([apart, np.full(len(x), np.inf)])
    return np.column_stack([apart.argmin(axis=1) + 1, np.sort(apart, axis=1)[:, :2]])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_scores_are_those_of_plain_python_with_the_second_nearest(kind: type) -> None:
    for n, d, sizes in ((1, 1, [1]), (150, 3, [4, 1, 9]), (33, 17, [2, 3])):
        x, centroids = blobs(n, d, 3, n)[0].astype(kind), blobs(sum(sizes), d, 3, 2)[0]
        first = np.cumsum([0, *sizes])
        found = in_every_build(lambda x=x, c=centroids, f=first: {"s": distances.scores(x, c, f)})["s"]
        for model, (begin, end) in enumerate(itertools.pairwise(first)):
            np.testing.assert_allclose(found[:, model], plain_scores(x, centroids[begin:end]), rtol=1e-13)
    with pytest.raises(ValueError, match="2 features where centroids have 3"):
        distances.scores(np.zeros((2, 2)), np.zeros((2, 3)), np.array([0, 2]))


def test_sums_of_groups_are_those_of_their_scores() -> None:
    x, weight = blobs(400, 3, 4)
    start, first = np.array([0, 150, 150, 400]), np.array([0, 3, 4, 6, 6, 9, 14])
    x[7] = 1e200
    x[160] = np.nan
    centroids = blobs(14, 3, 4, 9)[0]
    x[200] = centroids[9]
    found = in_every_build(lambda: distances.of_groups(x, weight, start, (centroids, first))._asdict())
    for group in range(3):
        own = slice(start[group], start[group + 1])
        models = first[2 * group : 2 * group + 3]
        scores = distances.scores(x[own], centroids[models[0] : models[-1]], models - models[0])
        for name, each in distances.sums(scores, weight[own])._asdict().items():
            assert each.tobytes() == found[name][group].tobytes(), name
        nearest, second = scores[..., 1], scores[..., 2]
        np.testing.assert_allclose(found["clustered"][group], weight[own].sum(), rtol=1e-12)
        np.testing.assert_allclose(found["square"][group], (weight[own, None] * nearest**2).sum(axis=0), rtol=1e-12)
        apart = np.isfinite(second) & (second > 0)
        width = np.where(apart, 1 - nearest / np.where(apart, second, 1), 0)
        np.testing.assert_allclose(found["width"][group], (weight[own, None] * width).sum(axis=0), rtol=1e-12)


def test_what_a_course_says() -> None:
    x, weight = blobs(400, 3, 5)
    plan = ClusteringPlan(3, (KMeansConfig(1), KMeansConfig(6, n_init=3, tolerance=0.0)), 1 << 40)
    told: list[int] = []
    found, course = clustering.solve(
        *(plan, x, weight, np.array([0, 400]), np.array([3], np.uint64)),
        limits=(64, 200),
        report=told.append,
        cancelled=lambda: False,
    )
    assert course.converged.all()
    assert sum(told) == course.epochs.sum()
    for config in range(2):
        curve = course.curve[:, 0, config]
        count = course.epochs[0, config]
        assert np.isfinite(curve[:count]).all()
        assert np.isnan(curve[count:]).all()
        assert (np.diff(curve[:count]) <= 1e-9 * curve[0]).all()
        np.testing.assert_allclose(curve[count - 1], found.inertia[0, config], rtol=1e-12)
    short, course = clustering.solve(
        *(plan, x, weight, np.array([0, 400]), np.array([3], np.uint64)),
        limits=(64, 2),
        report=told.append,
        cancelled=lambda: False,
    )
    assert course.epochs.tolist() == [[2, 2]]
    assert not course.converged[0, 1]
    assert np.isfinite(short.centroids).all()


def test_starts_that_rest_on_the_sample_go_on_with_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "SAMPLED_ROWS", 100)
    x = np.repeat([[0.0], [1.0]], 150, axis=0)
    plan = ClusteringPlan(1, (KMeansConfig(2),), 50)
    found = solved(plan, x, np.ones(300))
    np.testing.assert_array_equal(found.rows, [[150, 150]])
    np.testing.assert_array_equal(found.weight, [[150, 150]])
    same(found, by_blocks(plan, x, np.ones(300), 5, 64, 2))
