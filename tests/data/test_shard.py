"""Shards: rows of one group, cut into blocks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from grouplearn.data.shard import Shard


@pytest.mark.parametrize("bounds", [(0, 3, 3, 50, 97), (0, 97)])
def test_blocks_of_sparse_rows_are_those_rows_and_no_copies(bounds: tuple[int, ...]) -> None:
    x = scipy.sparse.random(97, 30, 0.1, "csr", random_state=np.random.default_rng(3))
    shard = Shard(x, np.arange(97.0), np.ones(97), bounds)
    for block, start, stop in zip(shard.blocks(), bounds, bounds[1:], strict=False):
        expected, found = x[start:stop], block.x
        assert found.shape == expected.shape
        for name in ("data", "indices", "indptr"):
            assert getattr(found, name).dtype == getattr(expected, name).dtype
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        assert found.has_sorted_indices == expected.has_sorted_indices
        assert np.shares_memory(found.data, x.data) == np.shares_memory(found.indices, x.indices) == (start < stop)
        np.testing.assert_array_equal(found @ np.ones(30), expected @ np.ones(30))
    assert shard.part(0, 1).x.shape == (bounds[1], 30)


def test_rows_that_are_not_in_order_stay_so() -> None:
    x = scipy.sparse.csr_matrix((np.ones(4), np.array([2, 0, 1, 2]), np.array([0, 2, 4])), shape=(2, 3))
    first, second = Shard(x, np.zeros(2), np.ones(2), (0, 1, 2)).blocks()
    assert not first.x.has_sorted_indices
    np.testing.assert_array_equal(first.x.toarray(), [[1, 0, 1]])
    np.testing.assert_array_equal(second.x.toarray(), [[0, 1, 1]])
