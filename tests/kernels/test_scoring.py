"""Rows encoded and scored by linear models: NumPy's result, and the same bits in every build."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grouplearn.kernels.scoring import Encoders, LinearModels, Link, linked

RANDOM = np.random.default_rng(3)


def models(n_groups: int, n_outputs: int, n_numbers: int, n_categories: int) -> LinearModels:
    weights = RANDOM.normal(size=(n_groups, n_outputs, n_numbers))
    starts = RANDOM.integers(0, 5, size=(n_groups, n_outputs, n_categories))
    return LinearModels(weights, RANDOM.normal(size=(n_groups, n_outputs)), starts, RANDOM.normal(size=8))


def lines(n_rows: int, n_numbers: int, n_categories: int) -> np.ndarray:
    x = RANDOM.normal(size=(n_rows, n_numbers + n_categories))
    x[:, n_numbers:] = RANDOM.integers(-1, 4, size=(n_rows, n_categories))
    x[:, n_numbers:][x[:, n_numbers:] < 0] = np.nan
    return x


@pytest.mark.parametrize("shape", [(1, 1, 0, 0), (3, 1, 8, 0), (2, 3, 16, 2), (5, 2, 0, 3)])
def test_linear_scores(build: str, shape: tuple[int, int, int, int]) -> None:
    made, x = models(*shape), lines(67, *shape[2:])
    group = RANDOM.integers(-1, shape[0], 67).astype(np.int32)
    if shape[2]:
        x[5, 0] = np.nan
    found = made.scores(x, group)
    for row, own in enumerate(group):
        if own < 0:
            assert np.isnan(found[row]).all()
            continue
        expected = made.intercepts[own] + made.weights[own] @ x[row, : shape[2]]
        for at, place in enumerate(x[row, shape[2] :]):
            if not np.isnan(place):
                expected = expected + made.category_weights[made.starts[own, :, at] + int(place)]
        np.testing.assert_allclose(found[row], expected, rtol=1e-12, atol=1e-12)
    alone = np.concatenate([made.scores(x[row : row + 1], group[row : row + 1]) for row in range(67)])
    np.testing.assert_array_equal(alone, found)


@pytest.mark.parametrize("finite", [True, False])
def test_encoding(build: str, finite: bool) -> None:
    fills = np.array([[np.nan, 2.0, np.nan], [np.nan, -1.0, np.nan]])
    made = Encoders(fills, RANDOM.normal(size=(2, 3)), RANDOM.random((2, 3)) + 0.5, finite)
    x = RANDOM.normal(size=(9, 5))
    x[1, :3], x[2, :3], x[3, :3] = np.nan, np.inf, -np.inf
    group, expected = np.array([0, 1, 0, 1, 1, 0, -1, 0, 1], dtype=np.int32), x.copy()
    for row in np.flatnonzero(group >= 0):
        own, value = group[row], x[row, :3]
        kept = np.isnan(fills[own]) & (not finite)
        value = np.where(np.isfinite(value) | kept, value, fills[own])
        expected[row, :3] = (value - made.centers[own]) / made.scales[own]
    made.encode(x, group)
    np.testing.assert_array_equal(x, expected)


@given(st.lists(st.floats(-800, 800) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0]), min_size=1, max_size=40))
def test_links(values: list[float]) -> None:
    scores = np.array(values)[:, None]
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(linked(scores.copy(), Link.EXPONENTIAL), np.exp(scores), rtol=1e-15, atol=1e-300)
        positive = 1 / (1 + np.exp(-scores))
    found = linked(scores.copy(), Link.SIGMOID)
    np.testing.assert_allclose(found[:, 1:], positive, rtol=1e-14, atol=1e-300)
    np.testing.assert_array_equal(found[:, 0], 1 - found[:, 1])
    np.testing.assert_array_equal(linked(scores, Link.VALUE), scores)
    together = np.stack([scores[:, 0], scores[::-1, 0], np.full(len(values), -np.inf)], axis=1)
    with np.errstate(all="ignore"):
        powers = np.exp(together - together.max(axis=1, keepdims=True))
        shares = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(linked(together.copy(), Link.SOFTMAX), shares, rtol=1e-14, atol=1e-300)


#: Of scores and shares of what exact operations alone make.
BITS = "20b8a3fac4d22a23ad6ccef78207256d36a92b51481899ea19736008ace4ab5c"


def test_the_same_bits_everywhere(build: str) -> None:
    random, digest = np.random.default_rng(11), hashlib.sha256()
    made = LinearModels(
        random.random((3, 3, 24)) - 0.5, random.random((3, 3)), np.zeros((3, 3, 0), np.int64), np.zeros(0)
    )
    x, group = random.random((100, 24)) - 0.5, random.integers(0, 3, 100).astype(np.int32)
    for link in Link:
        digest.update(linked(made.scores(x, group)[:, : 1 if link is Link.SIGMOID else 3].copy(), link).tobytes())
    assert digest.hexdigest() == BITS
