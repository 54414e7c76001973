"""Coresets: the same bits in every build, weights that sum to those of all rows, estimates without bias."""

from __future__ import annotations

import numpy as np
import pytest
from builds import in_every_build

from grouplearn.kernels.clusters import coresets


def rows(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d)) + random.integers(0, 4, (n, 1)) * 5
    weight = random.uniform(0.5, 2, n)
    weight[::7] = 0.0
    return x, weight


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "d", "centres", "most"), [(900, 3, 5, 100), (5_000, 9, 20, 700), (300, 1, 3, 250), (130, 2, 1, 9)]
)
def test_every_build_draws_the_same_rows(kind: type, n: int, d: int, centres: int, most: int) -> None:
    x, weight = rows(n, d)
    x = x.astype(kind)
    within = coresets.ranges(x, weight)

    def drawn() -> dict[str, np.ndarray]:
        chosen, factor = coresets.draw(x, weight, within, (centres, most), (1, 2, 3))
        return {"chosen": chosen, "factor": factor}

    found = in_every_build(drawn)
    chosen, factor = found["chosen"], found["factor"]
    assert most - 1 <= len(chosen) <= most
    assert (np.diff(chosen) > 0).all()
    assert (weight[chosen] > 0).all()
    assert (factor > 0).all()
    np.testing.assert_allclose(weight[chosen] @ factor, weight.sum(), rtol=1e-9)


def test_sums_over_coresets_are_those_over_rows_on_average() -> None:
    x, weight = rows(4_000, 2)
    x[0], weight[0] = [300.0, 0.0], 1.0  # it is most of the inertia, so that it is always drawn
    within = coresets.ranges(x, weight)
    centroids = np.array([[0.0, 0.0], [5.0, 5.0], [12.0, 12.0]])
    square = ((x[:, None] - centroids) ** 2).sum(axis=2).min(axis=1)
    found = []
    for seed in range(200):
        chosen, factor = coresets.draw(x, weight, within, (6, 150), (seed, 0, 0))
        assert chosen[0] == 0
        assert factor[0] == 1
        found.append((weight[chosen] * factor) @ square[chosen])
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - weight @ square) < 4 * error + 0.01 * np.std(found)
    assert np.std(found) < 0.02 * (weight @ square)


def test_equal_rows_and_few_different_ones() -> None:
    for x in (np.ones((500, 2)), np.repeat([[0.0, 1.0], [3.0, 1.0]], [400, 100], axis=0)):
        weight = np.ones(500)
        chosen, factor = coresets.draw(x, weight, coresets.ranges(x, weight), (9, 50), (1, 1, 1))
        np.testing.assert_allclose(factor.sum(), 500, rtol=1e-12)
        for value in np.unique(x, axis=0):
            np.testing.assert_allclose(factor[(x[chosen] == value).all(axis=1)].sum(), (x == value).all(axis=1).sum())


def test_distances_that_overflow_have_no_coreset() -> None:
    x, _ = rows(500, 2)
    x[:, 1], x[4, 1] = 1.7e308, -1.7e308
    chosen, _ = coresets.draw(x, np.ones(500), coresets.ranges(x, np.ones(500)), (3, 50), (1, 1, 1))
    assert not len(chosen)
