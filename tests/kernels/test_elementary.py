"""exp, log(1 + u) and log of every build: a few units in the last place from NumPy's, and the same bits."""

import hashlib

import numpy as np
import pytest

from grouplearn.kernels import library

# Exact operations alone make these, so that they too are the same on every processor.
RANDOM = np.random.default_rng(7)
EXPONENTS = np.concatenate([(RANDOM.random(20_011) - 0.5) * 1440, [0.0, -0.0, 1e-300, np.inf, -np.inf, np.nan]])
POSITIVE = np.ldexp(RANDOM.random(20_011) + 0.5, RANDOM.integers(-1000, 1000, 20_011))
POSITIVE = np.concatenate(
    [POSITIVE, RANDOM.random(5_003) + 0.5, [1.0, 2.0, 0.5, np.nextafter(1, 0), np.nextafter(1, 2)]]
)
UNIT = np.concatenate(
    [RANDOM.random(20_011), np.ldexp(RANDOM.random(5_003), -RANDOM.integers(0, 900, 5_003)), [0.0, 1.0]]
)


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    finite = np.isfinite(expected) & (expected != 0)
    return float(np.abs(found[finite] / expected[finite] - 1).max())


def test_double_precision(build: str) -> None:
    within = np.abs(EXPONENTS) < 707
    assert relative(library.applied("exponential", EXPONENTS[within]), np.exp(EXPONENTS[within])) < 4e-16
    assert relative(library.applied("log_of_one_plus", UNIT), np.log1p(UNIT)) < 7e-16
    np.testing.assert_allclose(library.applied("logarithm", POSITIVE), np.log(POSITIVE), rtol=7e-16, atol=2e-16)


def test_single_precision(build: str) -> None:
    exponents = EXPONENTS[np.abs(EXPONENTS) < 86].astype(np.float32)
    assert relative(library.applied("exponential", exponents).astype(float), np.exp(exponents.astype(float))) < 2e-7
    unit = UNIT[UNIT > 1e-30].astype(np.float32)
    assert relative(library.applied("log_of_one_plus", unit).astype(float), np.log1p(unit.astype(float))) < 3e-7


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_ends_of_the_range(build: str, kind: type) -> None:
    found = library.applied("exponential", np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1000, -1000], kind))
    np.testing.assert_array_equal(found, np.array([np.nan, np.inf, 0, 1, 1, np.inf, 0], kind))


def test_logarithm_at_the_ends(build: str) -> None:
    found = library.applied("logarithm", np.array([np.nan, np.inf, -np.inf, 0, -0.0, -1, 5e-324, 1]))
    np.testing.assert_array_equal(found, [np.nan, np.inf, np.nan, -np.inf, -np.inf, np.nan, -np.inf, 0])


#: Of the finite results of all the functions, in their order; it is the same on every processor.
BITS = "d77451649479c28a0368ecaecd0b7192386e980e82d274fea7c0df5b98d0702d"


def test_the_same_bits_everywhere(build: str) -> None:
    digest = hashlib.sha256()
    for kind in (np.float64, np.float32):
        for symbol, x in (("exponential", EXPONENTS[np.isfinite(EXPONENTS)]), ("log_of_one_plus", UNIT)):
            digest.update(library.applied(symbol, x.astype(kind)).tobytes())
    digest.update(library.applied("logarithm", POSITIVE).tobytes())
    assert digest.hexdigest() == BITS
