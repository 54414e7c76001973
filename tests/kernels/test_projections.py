"""Rows on components against NumPy, the same bits in every build, and sums of groups as those of their scores."""

import numpy as np
import pytest
from builds import in_every_build
from scipy.sparse import csr_matrix

from grouplearn.kernels.clusters import projections


def directions(d: int, k: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0][:k]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d", "k"), [(0, 3, 2), (1, 1, 1), (7, 5, 5), (100, 33, 9), (97, 8, 8), (50, 40, 0)])
def test_scores_are_those_of_numpy(n: int, d: int, k: int, kind: type) -> None:
    random = np.random.default_rng(n)
    x, mean, components = (random.normal(size=(n, d)) * 3).astype(kind), random.normal(size=d), directions(d, k)
    found = in_every_build(lambda: {"s": projections.scores(x, mean, components)})["s"]
    coordinates = (x - mean) @ components.T
    left = np.linalg.norm(x - mean - coordinates @ components, axis=1)
    np.testing.assert_allclose(found[:, projections.BEFORE :], coordinates, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[:, 0], left, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found[:, 1], (coordinates**2).sum(axis=1), rtol=1e-12, atol=1e-13)
    for row in range(0, n, 11):
        assert projections.scores(x[row : row + 1], mean, components).tobytes() == found[row : row + 1].tobytes()


def test_longer_components_scale_coordinates_alone() -> None:
    random = np.random.default_rng(3)
    x, mean, components = random.normal(size=(60, 12)), random.normal(size=12), directions(12, 4)
    sizes = np.array([1e-3, 0.5, 2.0, 1e3])
    unit, scaled = projections.scores(x, mean, components), projections.scores(x, mean, components * sizes[:, None])
    np.testing.assert_allclose(scaled[:, : projections.BEFORE], unit[:, : projections.BEFORE], rtol=1e-12)
    np.testing.assert_allclose(scaled[:, projections.BEFORE :], unit[:, projections.BEFORE :] * sizes, rtol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_sparse_rows_have_the_scores_of_dense_ones(offset: float) -> None:
    random = np.random.default_rng(4)
    x = random.normal(size=(400, 30)) * (random.random((400, 30)) < 0.1)
    x[:, 0] += offset
    mean, components = x.mean(axis=0), directions(30, 5) * np.array([1, 2, 1, 0.5, 1])[:, None]
    x[3] = mean + components[1]  # nothing is left of it
    dense, sparse = projections.scores(x, mean, components), projections.sparse_scores(csr_matrix(x), mean, components)
    np.testing.assert_allclose(sparse, dense, rtol=1e-8, atol=1e-9 * max(offset, 1) / 1e3)
    assert sparse[3, 0] == dense[3, 0]


def test_rows_that_are_no_numbers_have_no_scores() -> None:
    x = np.random.default_rng(1).normal(size=(20, 3))
    x[[4, 9], 1] = np.nan
    found = projections.scores(x, np.zeros(3), directions(3, 2))
    assert np.isnan(found[[4, 9]]).all()
    assert np.isfinite(np.delete(found, [4, 9], axis=0)).all()


def test_sums_of_groups_are_those_of_their_scores() -> None:
    random = np.random.default_rng(2)
    x, weight = random.normal(size=(300, 6)), random.uniform(0.5, 2, 300)
    start, mean = np.array([0, 110, 110, 300]), random.normal(size=(3, 6))
    counts = np.array([2, 6, 1, 3, 6, 4])
    first = np.concatenate([[0], np.cumsum(counts)])
    components = np.concatenate([directions(6, int(count), seed) for seed, count in enumerate(counts)])
    found = in_every_build(lambda: projections.of_groups(x, weight, start, mean, (components, first))._asdict())
    for group in range(3):
        own, models = slice(start[group], start[group + 1]), range(2 * group, 2 * group + 2)
        each = [projections.scores(x[own], mean[group], components[first[m] : first[m + 1]]) for m in models]
        widest = max(scores.shape[1] for scores in each)
        padded = [np.pad(scores, ((0, 0), (0, widest - scores.shape[1])), constant_values=np.nan) for scores in each]
        scores = np.stack(padded, axis=1)
        for name, values in projections.sums(scores, weight[own])._asdict().items():
            assert values.tobytes() == found[name][group].tobytes(), name
        squares = np.nansum(scores[:, :, projections.BEFORE :] ** 2, axis=2)
        np.testing.assert_allclose(found["projected"][group], weight[own].sum(), rtol=1e-12)
        np.testing.assert_allclose(found["explained"][group], weight[own] @ squares, rtol=1e-12)
        np.testing.assert_allclose(found["residual"][group], weight[own] @ scores[:, :, 0] ** 2, rtol=1e-12, atol=1e-25)
