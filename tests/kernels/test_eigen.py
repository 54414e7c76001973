"""Eigenvalues and directions of positive semidefinite matrices against LAPACK, and the same bits in every build."""

import numpy as np
import pytest
from builds import in_every_build
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.kernels import algebra


def gram(n: int, d: int, seed: int = 1, decay: float = 0.5) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(n, d)) * decay ** np.arange(d)
    turned = x @ np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(d, d)))[0]
    return turned.T @ turned


def assert_eigen(found: algebra.Eigen, matrix: np.ndarray, rtol: float = 1e-10) -> None:
    d = len(matrix)
    values = np.linalg.eigvalsh(matrix)[::-1]
    largest = max(values.max(initial=0.0), 0.0)
    np.testing.assert_allclose(found.values, values, rtol=rtol, atol=1e-13 * max(d, 64) * largest)
    assert (np.diff(found.values) <= 0).all()
    assert (found.values >= 0).all()
    assert (found.values > 0).sum() == found.rank
    there = np.arange(d) < found.rank
    np.testing.assert_allclose(found.directions @ found.directions.T, np.diag(there.astype(float)), rtol=0, atol=1e-12)
    assert not found.directions[~there].any()
    again = (found.directions.T * found.values) @ found.directions
    np.testing.assert_allclose(again, matrix, rtol=0, atol=1e-13 * max(d, 64) * largest)
    sizes = np.abs(found.directions)
    largest_at = (sizes >= sizes.max(axis=1, initial=0.0)[:, None] * (1 - 1e-9)).argmax(axis=1)
    assert (found.directions[np.arange(d), largest_at][there] > 0).all()


@pytest.mark.parametrize("d", [1, 2, 3, 8, 9, 30, 100])
def test_full_rank(d: int) -> None:
    matrix = gram(3 * d + 5, d, decay=0.9)
    found = algebra.Eigen(**in_every_build(lambda: algebra.eigen(matrix)._asdict()))
    assert found.rank == d
    assert_eigen(found, matrix)
    values, vectors = np.linalg.eigh(matrix)
    apart = np.abs(np.diff(values)).min(initial=1.0)
    if apart > 1e-4:
        products = np.abs((found.directions[::-1] * vectors.T).sum(axis=1))
        np.testing.assert_allclose(products, 1, rtol=0, atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12), st.integers(0, 14), st.integers(0, 1000), st.sampled_from([1e-290, 1e-150, 1.0, 1e150, 1e290])
)
def test_any_rank_and_scale(d: int, n: int, seed: int, scale: float) -> None:
    x = np.random.default_rng(seed).integers(-3, 4, (n, d)).astype(float)
    matrix = x.T @ x
    found = algebra.eigen(matrix * scale)
    assert found.rank == np.linalg.matrix_rank(matrix)
    assert_eigen(algebra.Eigen(found.values / scale, found.directions, found.rank), matrix)


def test_odd_matrices() -> None:
    assert algebra.eigen(np.zeros((0, 0))).values.shape == (0,)
    zero = algebra.eigen(np.zeros((3, 3)))
    np.testing.assert_array_equal(zero.directions, 0)
    np.testing.assert_array_equal(zero.values, 0)
    ones = algebra.eigen(np.ones((4, 4)))
    assert ones.rank == 1
    assert_eigen(ones, np.ones((4, 4)))
    equal = algebra.eigen(np.array([[2.0, -1.0], [-1.0, 2.0]]))
    np.testing.assert_allclose(equal.directions, np.sqrt(0.5) * np.array([[1, -1], [1, 1]]), rtol=1e-15)
    with pytest.raises(ValueError, match="not square"):
        algebra.eigen(np.zeros((2, 3)))
    broken = algebra.eigen(np.array([[np.nan, 0], [0, 1.0]]))
    assert np.isnan(broken.values).all()
    assert broken.rank == 0


def test_small_values_keep_their_digits() -> None:
    scale = np.diag(10.0 ** -np.arange(5))
    matrix = scale @ (np.eye(5) + 0.3) @ scale
    found = algebra.eigen(matrix)
    # The smallest is 1e-8 of the largest; of it as many digits are right as of the inverse's largest.
    inverse = np.linalg.inv(np.eye(5) + 0.3)
    np.testing.assert_allclose(
        found.values[-1], 1 / np.linalg.eigvalsh(np.linalg.inv(scale) @ inverse @ np.linalg.inv(scale))[-1], rtol=1e-12
    )


def test_many_matrices_are_as_each_alone() -> None:
    matrices = np.stack([gram(30, 6), np.zeros((6, 6)), gram(3, 6), np.full((6, 6), np.inf), gram(9, 6)]).reshape(
        5, 1, 6, 6
    )
    found = algebra.eigen(matrices)
    for number, matrix in enumerate(matrices[:, 0]):
        alone = algebra.eigen(matrix)
        assert found.values[number, 0].tobytes() == alone.values.tobytes()
        assert found.directions[number, 0].tobytes() == alone.directions.tobytes()
        assert found.rank[number, 0] == alone.rank
