"""Principal components against scikit-learn, and what rows that say little have."""

import numpy as np
import pytest
from helpers.moments import stack_moments
from sklearn.decomposition import PCA

from grouplearn.kernels.clusters import projections
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.linear.least_squares import moments
from grouplearn.learners.unsupervised import principal_components


def rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.normal(size=(n, d)) * np.linspace(1, 3, d) @ random.normal(size=(d, d))


def moments_of(x: np.ndarray, weight: np.ndarray | None = None) -> moments.Tensors:
    weight = np.ones(len(x)) if weight is None else weight
    return moments.block_moments(x, np.zeros((len(x), 0)), weight, True)


def up(components: np.ndarray) -> np.ndarray:
    largest = np.abs(components).argmax(axis=1)
    return components * np.sign(components[np.arange(len(components)), largest])[:, None]


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize(("n", "d"), [(50, 1), (200, 4), (500, 20), (60, 40)])
def test_against_scikit_learn(n: int, d: int, offset: float) -> None:
    x = rows(n, d) + offset
    theirs = PCA(svd_solver="covariance_eigh" if not offset else "full").fit(x)
    found = principal_components.fit_one(moments_of(x))
    np.testing.assert_allclose(found.variance, theirs.explained_variance_, rtol=1e-10 if not offset else 1e-8)
    np.testing.assert_allclose(found.components, up(theirs.components_), rtol=0, atol=1e-8 if not offset else 1e-7)
    np.testing.assert_allclose(found.components @ found.components.T, np.eye(d), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.mean, theirs.mean_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.variance.sum(), x.var(axis=0, ddof=1).sum(), rtol=1e-10)
    assert found.rank == d
    scores = (x - theirs.mean_) @ up(theirs.components_).T
    shown = projections.scores(x, found.mean, found.components[:2])[:, projections.BEFORE :]
    np.testing.assert_allclose(shown, scores[:, :2], rtol=0, atol=1e-6 * np.abs(scores).max())


def test_weights_are_so_many_rows() -> None:
    x = rows(40, 5)
    times = np.random.default_rng(1).integers(0, 4, 40)
    theirs = PCA().fit(np.repeat(x, times, axis=0))
    found = principal_components.fit_one(moments_of(x, times.astype(float)))
    np.testing.assert_allclose(found.variance, theirs.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(found.components, up(theirs.components_), rtol=0, atol=1e-8)


def test_rows_that_say_little() -> None:
    constant = rows(30, 4)
    constant[:, 2] = 1e6 + 0.1
    repeated = rows(30, 4)
    repeated[:, 3] = repeated[:, 0]
    few = rows(3, 6)
    for x, rank in (
        (constant, 3),
        (repeated, 3),
        (few, 2),
        (rows(1, 3), 0),
        (np.full((5, 2), 0.1), 0),
        (few[:, :0], 0),
    ):
        found = principal_components.fit_one(moments_of(x))
        assert found.rank == rank
        d = x.shape[1]
        lengths = np.diag((np.arange(d) < found.rank).astype(float))
        np.testing.assert_allclose(found.components @ found.components.T, lengths, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(found.variance[rank:], 0)
        assert (found.variance[:rank] > 0).all()
        expected = x.var(axis=0, ddof=1) if len(x) > 1 else np.zeros(d)
        np.testing.assert_allclose(found.variance.sum(), expected.sum(), rtol=1e-10, atol=1e-15)
        scores = projections.scores(x, found.mean, found.components)[:, projections.BEFORE :]
        np.testing.assert_allclose(scores[:, rank:], 0, rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_scales(size: float) -> None:
    x = rows(100, 5)
    plain, scaled = principal_components.fit_one(moments_of(x)), principal_components.fit_one(moments_of(x * size))
    np.testing.assert_allclose(scaled.variance / size / size, plain.variance, rtol=1e-10)
    np.testing.assert_allclose(scaled.components, plain.components, rtol=0, atol=1e-8)


def test_what_is_refused() -> None:
    x = rows(20, 3)
    with pytest.raises(Diverged, match="no row has a weight above 0"):
        principal_components.fit_one(moments_of(x[:0]))
    with pytest.raises(Diverged, match=r"the weights sum to 0\.5: variances need more than 1"):
        principal_components.fit_one(moments_of(x, np.full(20, 0.025)))
    x[0, 1] = 1e200
    with pytest.raises(Diverged, match="feature column 2 overflow"):
        principal_components.fit_one(moments_of(x))
    assert np.isnan(principal_components.fit(moments_of(x)).variance).all()


def test_many_groups_are_as_each_alone() -> None:
    x = np.stack([rows(30, 4, seed) for seed in range(5)])
    x[2, :, 1] = 3.0
    together = principal_components.fit(stack_moments(x, np.zeros((5, 30, 1)), np.ones((5, 30))))
    for group in range(5):
        alone = principal_components.fit_one(moments_of(x[group]))
        for name, each in alone._asdict().items():
            assert np.asarray(each).tobytes() == together._asdict()[name][group].tobytes(), name


def test_rows_with_a_null_have_no_scores() -> None:
    x = rows(30, 3)
    found = principal_components.fit_one(moments_of(x))
    x[4, 1] = np.nan
    scores = projections.scores(x, found.mean, found.components[:2])
    assert np.isnan(scores[4]).all()
    assert np.isfinite(np.delete(scores, 4, axis=0)).all()
