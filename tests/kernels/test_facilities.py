"""Online facility location: the same bits in every build, few facilities, and nothing lost of the rows behind them."""

from __future__ import annotations

import numpy as np
import pytest
from builds import in_every_build

from grouplearn.kernels.clusters import coresets, facilities
from grouplearn.kernels.clusters.facilities import Points


def rows(n: int, d: int, seed: int = 0) -> Points:
    random = np.random.default_rng(seed)
    weight = random.uniform(0.5, 2, n)
    weight[::7] = 0.0
    x = random.normal(size=(n, d)) + random.integers(0, 4, (n, 1)) * 5
    return Points(x, weight, (weight > 0).astype(float))


def opened(given: Points, most: int, cost: float = 0.0) -> tuple[Points, float]:
    ranges = coresets.ranges(given.values, given.weights)
    return facilities.opened(given, ranges, (5, most), (1, 2, 3), cost)


def about(given: Points, point: np.ndarray) -> float:
    """Return the inertia of rows about a point."""
    return float(given.weights @ ((given.values - point) ** 2).sum(axis=1))


@pytest.mark.parametrize(("n", "d", "most"), [(900, 3, 60), (5_000, 9, 200), (300, 1, 20), (700, 2, 2)])
def test_every_build_opens_the_same(n: int, d: int, most: int) -> None:
    given = rows(n, d)
    found = Points(**in_every_build(lambda: opened(given, most)[0]._asdict()))
    assert 1 <= len(found.weights) <= most
    np.testing.assert_allclose(found.weights.sum(), given.weights.sum(), rtol=1e-12)
    assert found.rows.sum() == given.rows.sum()
    np.testing.assert_allclose(found.weights @ found.values, given.weights @ given.values, rtol=1e-9, atol=1e-7)
    for point in (np.zeros(d), np.full(d, 7.0)):  # means and inertias say those of all rows
        np.testing.assert_allclose(about(found, point), about(given, point), rtol=1e-9)


def test_facilities_are_merged_as_rows_are() -> None:
    parts = [rows(3_000, 2, seed) for seed in (1, 2)]
    both = [opened(part, 100) for part in parts]
    joined = Points(*map(np.concatenate, zip(*(found for found, _ in both), strict=True)))
    found, cost = opened(joined, 100, max(paid for _, paid in both))
    assert len(found.weights) <= 100
    assert cost >= max(paid for _, paid in both)
    assert found.rows.sum() == sum(part.rows.sum() for part in parts)
    np.testing.assert_allclose(about(found, np.ones(2)), sum(about(part, np.ones(2)) for part in parts), rtol=1e-9)


def test_a_row_joins_the_nearest_facility_unless_it_opens_one() -> None:
    values = np.array([[0.0], [10.0], [0.1], [10.1]])
    given = Points(values, np.ones(4), np.ones(4))
    found, _ = opened(given, 6, cost=1.0)  # 100 > 1 opens, 0.01 does so once in a hundred times
    np.testing.assert_allclose(np.sort(found.values, axis=0), [[0], [0.1], [10], [10.1]], atol=1e-12)
    np.testing.assert_array_equal(found.rows, [1, 1, 1, 1])


def test_few_different_rows() -> None:
    values = np.repeat([[0.0, 1.0], [3.0, 1.0]], [400, 100], axis=0)
    found, _ = opened(Points(values, np.ones(500), np.ones(500)), 50)
    np.testing.assert_allclose(found.values, [[0, 1], [3, 1]])
    np.testing.assert_array_equal(found.rows, [400, 100])
