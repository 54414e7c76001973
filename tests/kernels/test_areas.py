"""Areas under curves against pairs and thresholds counted one by one, the same bits in every build and for rows in any runs."""

from collections.abc import Callable

import numpy as np
import pytest
from builds import in_every_build

from grouplearn.kernels.metrics import areas


def tiny(random: np.random.Generator, n: int) -> np.ndarray:
    return 2.0 ** -random.integers(0, 1074, n).astype(float)


#: How scores may lie: the kernel tells them apart by the bits in which they differ.
SCORES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "smooth": lambda random, n: 1 / (1 + np.exp(-random.normal(size=n))),
    "sure": lambda random, n: 1 / (1 + np.exp(-30 * random.normal(size=n))),
    "few": lambda random, n: random.integers(0, 4, n) / 3,
    "some": lambda random, n: random.integers(0, n // 3 + 1, n) / n,
    "one": lambda random, n: np.full(n, 0.1),
    "zeros": lambda random, n: np.where(random.random(n) < 0.5, 0.0, -0.0),
    "neighbours": lambda random, n: 0.5 + random.integers(0, 5, n) * 2.0**-53,
    "any size": tiny,
    "most in one place": lambda random, n: np.where(random.random(n) < 0.9, 0.5 + random.integers(0, n, n) * 2.0**-53, 1e-300),
    "nested": lambda random, n: 0.5 + np.minimum(tiny(random, n), 0.5),
}  # fmt: skip
SIZES = [0, 1, 2, 16, 17, 33, 500, 16_384, 16_385, 60_000]


def reference(scores: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> float:
    """The sum over pairs, by sorted scores: exact where weights are whole numbers."""
    values, place = np.unique(scores + 0.0, return_inverse=True)
    up, down = (np.bincount(place, weight * each, values.size) for each in (positive, ~positive))
    below = np.cumsum(down) - down
    pairs = up.sum() * down.sum()
    return float((up * (below + 0.5 * down)).sum() / pairs) if pairs > 0 else np.nan


def average_precision(scores: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> float:
    values, place = np.unique(-scores, return_inverse=True)
    up, down = (np.bincount(place, weight * each, values.size) for each in (positive, ~positive))
    found, taken = np.cumsum(up).astype(float), np.cumsum(up + down)
    precision = np.divide(found, taken, out=np.zeros_like(found), where=taken > 0)
    return float((up * precision).sum() / up.sum()) if up.sum() > 0 else np.nan


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", sorted(SCORES))
def test_areas(kind: str, n: int) -> None:
    random = np.random.default_rng(n)
    scores = np.stack([SCORES[kind](random, n) for _ in range(2)])
    positive = random.random(n) < 0.3 + 0.4 * scores.mean(axis=0)
    weight = random.integers(0, 4, n) * 1.0
    cut = n // 3
    runs = [scores[:, :cut], scores[:, cut:]]
    found = in_every_build(
        lambda: {
            "alike": areas([scores], positive, None),
            "in runs": areas(runs, positive, None),
            "weighed": areas(runs, positive, weight),
            "precision": areas(runs, positive, weight, precision=True),
            "alike precision": areas([scores], positive, None, precision=True),
        }
    )
    ones = np.ones(n)
    # Counts of pairs are whole numbers, and so are these weights: not a bit is another.
    np.testing.assert_array_equal(found["alike"], [reference(each, positive, ones) for each in scores])
    np.testing.assert_array_equal(found["in runs"], found["alike"])
    np.testing.assert_array_equal(found["weighed"], [reference(each, positive, weight) for each in scores])
    for name, own in (("precision", weight), ("alike precision", ones)):
        expected = [average_precision(each, positive, own) for each in scores]
        np.testing.assert_allclose(found[name], expected, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("n", [40, 20_000])
def test_what_is_not_defined(build: str, n: int) -> None:
    random = np.random.default_rng(1)
    scores, positive = random.random((2, n)), random.random(n) < 0.5
    broken = scores.copy()
    broken[1, n // 2] = np.nan
    nothing = np.zeros(n)
    for weight in (None, np.ones(n), random.random(n)):
        for precision in (False, True):
            found = areas([broken], positive, weight, precision=precision)
            assert found[0] == areas([scores], positive, weight, precision=precision)[0]
            assert np.isnan(found[1])
            assert np.isnan(areas([scores], nothing > 0, weight, precision=precision)).all()
        assert np.isnan(areas([scores], nothing == 0, weight)).all()
        assert (areas([scores], nothing == 0, weight, precision=True) > 1 - 1e-12).all()
    assert np.isnan(areas([scores], positive, nothing)).all()
    assert np.isnan(areas([broken], positive, np.where(np.isnan(broken[1]), 0, 1.0))).tolist() == [False, True]


def test_configurations_lie_apart(build: str) -> None:
    """A score of several, and rows that do not follow each other."""
    random = np.random.default_rng(2)
    scores, positive = random.random((3, 4, 900)), random.random(900) < 0.5
    for number in range(4):
        expected = [reference(each, positive, np.ones(900)) for each in scores[:, number]]
        np.testing.assert_array_equal(areas([scores[:, number]], positive, None), expected)
    every_other = scores[:, 0, ::2]
    np.testing.assert_array_equal(
        areas([every_other], positive[::2], None), areas([every_other.copy()], positive[::2].copy(), None)
    )
