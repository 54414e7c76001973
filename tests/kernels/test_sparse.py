"""Products of sparse rows against sums in plain Python, to the bit, and SciPy, in every build."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from builds import in_every_build
from hypothesis import given
from hypothesis import strategies as st

from grouplearn.kernels.library import calling_back
from grouplearn.kernels.linear import sparse

ODD = (0.0, -0.0, 5e-324, 1e308, np.inf, np.nan)


@st.composite
def matrices(draw: st.DrawFn) -> scipy.sparse.csr_matrix:
    """Rows whose entries are in any order, some of them zero, odd, or twice in a row."""
    n, d = draw(st.integers(0, 12)), draw(st.integers(1, 20))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    counts = random.integers(0, draw(st.sampled_from([1, 4, d])) + 1, n)
    values = random.normal(size=int(counts.sum())) * 10.0 ** random.integers(-9, 9)
    if values.size and draw(st.booleans()):
        values[random.integers(values.size)] = draw(st.sampled_from(ODD))
    starts = np.concatenate([[0], np.cumsum(counts)])
    return scipy.sparse.csr_matrix((values, random.integers(0, d, values.size), starts), shape=(n, d))


def of_row(x: scipy.sparse.csr_matrix, row: int) -> list[tuple[int, float]]:
    entries = slice(x.indptr[row], x.indptr[row + 1])
    return list(zip(x.indices[entries].tolist(), x.data[entries].tolist(), strict=True))


def in_plain_python(x: scipy.sparse.csr_matrix, right: np.ndarray, below: np.ndarray) -> dict[str, np.ndarray]:
    """Sums that begin at 0 and grow by one rounded product at a time, row after row."""
    (n, d), c = x.shape, right.shape[1]
    product, transposed, gram = np.zeros((n, c)), np.zeros((d, c)), np.zeros((d, d))
    for row in range(n):
        for column, value in of_row(x, row):
            for j in range(c):
                product[row, j] += value * right[column, j]
                transposed[column, j] += value * below[row, j]
            for other, beside in of_row(x, row):
                gram[column, other] += value * beside
    return {"product": product, "transposed": transposed, "gram": gram, "sparse": gram}


@pytest.mark.filterwarnings("ignore:.*encountered.*:RuntimeWarning")
@given(x=matrices(), c=st.sampled_from([0, 1, 2, 9]))
def test_products_are_summed_in_order_with_every_product_rounded(x: scipy.sparse.csr_matrix, c: int) -> None:
    random = np.random.default_rng(c)
    right, below = random.normal(size=(x.shape[1], c)), random.normal(size=(x.shape[0], c))

    def found() -> dict[str, np.ndarray]:
        return {
            "product": sparse.product(x, right),
            "transposed": sparse.transposed_product(x, below),
            "gram": sparse.dense_gram(x),
            "sparse": sparse.gram(x).toarray(),
        }

    results, expected = in_every_build(found), in_plain_python(x, right, below)
    for name, each in expected.items():
        np.testing.assert_array_equal(results[name], each, err_msg=name)


def test_a_sparse_gram_has_the_entries_of_scipy_s() -> None:
    x = scipy.sparse.random(300, 400, 0.01, "csr", random_state=1)
    found, expected = sparse.gram(x), (x.T @ x).tocsr()
    expected.sort_indices()
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.data, expected.data, rtol=1e-14)


def test_vectors_and_shapes() -> None:
    x = scipy.sparse.csr_matrix([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    np.testing.assert_array_equal(sparse.product(x, [1, 2, 3]), [7, 6])
    np.testing.assert_array_equal(sparse.transposed_product(x, [1, 2]), [1, 6, 2])
    for refused in (sparse.product, sparse.transposed_product):
        with pytest.raises(ValueError, match="do not fit"):
            refused(x, np.ones((4, 2)))


@pytest.mark.parametrize("name", ["product", "transposed_product", "dense_gram", "gram"])
def test_products_are_stopped(name: str) -> None:
    x = scipy.sparse.csr_matrix(np.ones((2_000, 64)))
    given = {"product": (np.ones((64, 64)),), "transposed_product": (np.ones((2_000, 64)),)}.get(name, ())
    left = iter(range(2))

    def look() -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), calling_back(look, every=0):
        getattr(sparse, name)(x, *given)
