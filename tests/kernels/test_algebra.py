"""Products and links against NumPy and SciPy, and the same bits in every build."""

import hashlib

import numpy as np
import pytest
import scipy.special

from grouplearn.kernels import algebra

RANDOM = np.random.default_rng(11)


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.random(shape) - 0.5


PAIRS = [
    (numbers(*leading, m, k), numbers(*leading, k, n))
    for leading, m, k, n in [
        ((), 7, 5, 12),
        ((3,), 4, 9, 16),
        ((2, 2), 1, 33, 1),
        ((), 9, 0, 3),
        ((0,), 2, 2, 2),
        ((), 5, 3, 25),
    ]
]
SCORES = np.concatenate([numbers(101) * 100, [0.0, -0.0, 800.0, -800.0]])


def test_products(build: str) -> None:
    for a, b in PAIRS:
        np.testing.assert_allclose(algebra.product(a, b), a @ b, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(algebra.product([[np.inf, 1]], [[1.0], [2.0]]), [[np.inf]])
    with pytest.raises(ValueError, match="do not fit"):
        algebra.product(numbers(2, 3), numbers(2, 3))


@pytest.mark.parametrize("width", [0, 1, 7, 8, 19])
def test_finite_rows(build: str, width: int) -> None:
    rows = np.full((3 * width + 1, width), 1e308)
    for number, odd in enumerate((np.nan, np.inf, -np.inf)):
        np.fill_diagonal(rows[number * width :], odd)
    np.testing.assert_array_equal(algebra.finite_rows(rows), [False] * (3 * width) + [True])


def test_links(build: str) -> None:
    np.testing.assert_allclose(algebra.sigmoid(SCORES), scipy.special.expit(SCORES), rtol=1e-15)
    assert np.isnan(algebra.sigmoid([np.nan]))[0]
    for link, of_number in (
        (algebra.exponential, np.exp),
        (algebra.logarithm, np.log),
        (algebra.sigmoid, scipy.special.expit),
    ):
        for shape in ((), (1,), (0, 2), (2, 3)):
            assert link(np.full(shape, 0.75)).shape == shape
        np.testing.assert_allclose(link(np.float64(0.75)), of_number(0.75), rtol=1e-15)
        np.testing.assert_allclose(
            link(np.arange(1.0, 7).reshape(2, 3).T), of_number(np.arange(1.0, 7).reshape(2, 3).T), rtol=1e-15
        )
    for outputs in (1, 2, 3, 7):
        z = numbers(13, outputs) * 90
        np.testing.assert_allclose(algebra.softmax(z), scipy.special.softmax(z, axis=1), rtol=1e-13)


#: Of the results of all of them, in their order; it is the same on every processor.
BITS = "eb223a931598d2f048f28f15622d0a65a79a4b95c8d3813e0ac1b118b626acf4"


def test_the_same_bits_everywhere(build: str) -> None:
    digest = hashlib.sha256()
    for a, b in PAIRS:
        digest.update(algebra.product(a, b).tobytes())
    digest.update(algebra.sigmoid(SCORES).tobytes())
    digest.update(algebra.softmax(SCORES.reshape(-1, 3)).tobytes())
    assert digest.hexdigest() == BITS
