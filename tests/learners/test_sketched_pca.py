"""Components from a sketch: exact where little is to be found, close to the best elsewhere, in memory that rows do not add to."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.unsupervised import sketches
from grouplearn.learners.unsupervised.pca import Pca
from grouplearn.learners.unsupervised.sketched_pca import SketchedPca
from grouplearn.models.label import PROJECTION
from grouplearn.models.state import Artifact, Tensors


def rows(n: int, spectrum: Any, seed: int = 0) -> np.ndarray:
    """Return rows whose variances along some orthogonal directions are these on average."""
    random = np.random.default_rng(seed)
    turned = np.linalg.qr(random.normal(size=(len(spectrum), len(spectrum))))[0]
    return random.normal(size=(n, len(spectrum))) * np.sqrt(spectrum) @ turned


def config(**changes: Any) -> Config:
    return {"n_components": 10, "sketch_rows": 100, "whiten": False, **changes}


def trained(learner: Pca, x: Any, configs: Sequence[Config], weight: Any = None, block: int = 128) -> list[Artifact]:
    n = x.shape[0]
    problem = Problem(PROJECTION, x.shape[1])
    state, sums = learner.init(problem, configs), None
    for part in Shard(x, np.zeros(n), np.ones(n) if weight is None else weight).blocks(block):
        found = learner.accumulate(problem, configs, state, part)
        sums = found if sums is None else learner.merge(sums, found)
    assert sums is not None
    state = learner.step(problem, configs, state, sums)
    assert state.done.all()
    return [learner.finalize(problem, configs, state, place) for place in range(len(configs))]


def captured(x: np.ndarray, artifact: Artifact) -> float:
    """Return the variance along components as a share of what the best ones have."""
    found = artifact.tensors["components"]
    values = np.linalg.eigvalsh(np.cov(x.T))[::-1][: len(found)]
    return float(np.trace(found @ np.cov(x.T) @ found.T) / values.sum())


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_few_rows_have_the_components_of_the_exact_way(offset: float) -> None:
    x = rows(40, 0.8 ** np.arange(200)) + offset
    weight = np.random.default_rng(1).uniform(0.5, 2, 40)
    (ours,), (exact,) = (trained(learner, x, [config(n_components=10)], weight) for learner in (SketchedPca(), Pca()))
    for name, each in exact.tensors.items():
        np.testing.assert_allclose(
            ours.tensors[name], each, rtol=1e-7 if offset else 1e-9, atol=1e-6 if offset else 1e-9
        )


def test_no_more_columns_than_the_sketch_has_rows_are_the_exact_way_bit_by_bit() -> None:
    x, configs = rows(300, 1 / (1 + np.arange(20))), [config(n_components=7), config(n_components=3, whiten=True)]
    for ours, exact in zip(trained(SketchedPca(), x, configs), trained(Pca(), x, configs), strict=True):
        for name, each in exact.tensors.items():
            assert ours.tensors[name].tobytes() == each.tobytes()


def test_columns_of_low_rank_are_exact() -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(2_000, 8)) @ random.normal(size=(8, 150)) + 5
    (found,) = trained(SketchedPca(), x, [config(n_components=50)])
    theirs = PCA(n_components=8, svd_solver="full").fit(x)
    assert len(found.tensors["components"]) == 8
    np.testing.assert_allclose(found.tensors["variance"], theirs.explained_variance_, rtol=1e-9)
    shared = np.abs(found.tensors["components"] @ theirs.components_.T)
    np.testing.assert_allclose(shared, np.eye(8), atol=1e-6)


@pytest.mark.parametrize(
    ("spectrum", "least"),
    [(0.9 ** np.arange(300), 0.999), (1 / (1 + np.arange(300)) ** 2, 0.999), (1 / (1 + np.arange(300)), 0.985)],
)
def test_most_of_the_variance_is_captured(spectrum: Any, least: float) -> None:
    x = rows(3_000, spectrum)
    (found,) = trained(SketchedPca(), x, [config()])
    assert captured(x, found) > least
    components, exact = found.tensors["components"], np.linalg.eigvalsh(np.cov(x.T))[::-1][:10]
    np.testing.assert_allclose(components @ components.T, np.eye(10), rtol=0, atol=1e-12)
    assert (found.tensors["variance"] <= exact * (1 + 1e-9)).all()  # the sketch is never more than the covariance
    np.testing.assert_allclose(found.tensors["total"], np.trace(np.cov(x.T)), rtol=1e-10)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.3, 2.0), st.integers(20, 50))
def test_what_the_sketch_lacks_is_bounded(seed: int, decay: float, kept: int) -> None:
    """The bound of the mean over Gaussian directions, of Tropp et al. 2017, theorem 4.1, with room for ours and for chance."""
    x = rows(200, 1 / (1 + np.arange(80)) ** decay, seed)
    values = np.linalg.eigvalsh(np.cov(x.T))[::-1]
    (found,) = trained(SketchedPca(), x, [config(n_components=kept, sketch_rows=kept)])
    lacks = values.sum() - found.tensors["variance"].sum()
    bound = min((1 + r / (kept - r - 1)) * values[r:].sum() for r in range(kept - 1))
    assert -1e-9 * values.sum() <= lacks <= 1.5 * bound


def test_ten_thousand_sparse_columns() -> None:
    random = np.random.default_rng(5)
    n, d = 3_000, 10_000
    topic = random.integers(0, 5, n)
    columns = np.hstack([topic[:, None] * 40 + random.integers(0, 40, (n, 20)), random.integers(0, d, (n, 5))])
    x = scipy.sparse.csr_matrix((np.ones(n * 25), columns.ravel(), np.arange(0, 25 * n + 1, 25)), shape=(n, d))
    x.sum_duplicates()
    (found,) = trained(SketchedPca(), x, [config(n_components=4)], block=1_000)
    dense = x.toarray()
    theirs = PCA(n_components=4, svd_solver="randomized", random_state=0).fit(dense)
    shared = np.linalg.svd(found.tensors["components"] @ theirs.components_.T, compute_uv=False)
    assert (shared > 0.98).all()
    along = found.tensors["components"] @ (dense - dense.mean(axis=0)).T
    assert (along**2).sum() / (n - 1) > 0.99 * theirs.explained_variance_.sum()
    np.testing.assert_allclose(found.tensors["total"], dense.var(axis=0, ddof=1).sum(), rtol=1e-10)
    ours = SketchedPca().score(PROJECTION, found, x)
    np.testing.assert_allclose(ours, SketchedPca().score(PROJECTION, found, dense), rtol=1e-7, atol=1e-9)


def bytes_of(sums: Tensors) -> int:
    return sum(np.asarray(each).nbytes for each in sums.values())


def test_sums_grow_with_columns_and_not_with_rows_or_their_squares() -> None:
    learner, configs, sizes = SketchedPca(), [config(sketch_rows=30)], {}
    for n, d in ((500, 2_000), (5_000, 2_000), (500, 4_000)):
        x = scipy.sparse.random(n, d, density=0.01, format="csr", random_state=0)
        problem = Problem(PROJECTION, d)
        state = learner.init(problem, configs)
        found = [
            learner.accumulate(problem, configs, state, part) for part in Shard(x, np.zeros(n), np.ones(n)).blocks(250)
        ]
        sizes[n, d] = bytes_of(learner.merge(found[0], found[1]))
        assert sizes[n, d] < 8 * d * 35
    assert sizes[500, 2_000] == sizes[5_000, 2_000]
    assert sizes[500, 4_000] < 2 * sizes[500, 2_000]


@pytest.mark.parametrize("learner", [Pca(), SketchedPca()], ids=["moments", "sketch"])
def test_whitened_coordinates_are_those_of_scikit_learn(learner: Pca) -> None:
    x = rows(500, 0.7 ** np.arange(30)) + 3
    (found,) = trained(learner, x, [config(n_components=6, whiten=True)])
    theirs = PCA(n_components=6, svd_solver="full", whiten=True).fit(x)
    ours, signs = (
        learner.score(PROJECTION, found, x),
        np.sign((found.tensors["components"] * theirs.components_).sum(axis=1)),
    )
    np.testing.assert_allclose(ours[:, 2:], theirs.transform(x) * signs, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(ours[:, 2:].var(axis=0, ddof=1), 1, rtol=1e-10)
    left = np.linalg.norm(x - theirs.inverse_transform(theirs.transform(x)), axis=1)
    np.testing.assert_allclose(ours[:, 0], left, rtol=1e-8)


def test_sums_do_not_depend_on_late_hyperparameters_or_the_state() -> None:
    x, problem = rows(300, 0.9 ** np.arange(60)), Problem(PROJECTION, 60, seed=3)
    late = [each.name for each in SketchedPca().declaration.hyperparameters if each.late]
    assert late == ["n_components", "whiten"]
    block = Shard(x, np.zeros(300), np.ones(300))
    one, other = [config(sketch_rows=25)], [config(sketch_rows=25, n_components=2, whiten=True)]
    learner = SketchedPca()
    sums = [learner.accumulate(problem, own, learner.init(problem, own), block) for own in (one, other)]
    for name, each in sums[0].items():
        assert np.asarray(each).tobytes() == np.asarray(sums[1][name]).tobytes()


def test_directions_are_functions_of_their_place() -> None:
    whole = sketches.directions(50, 20)
    np.testing.assert_array_equal(sketches.directions(30, 7), whole[:30, :7])
    assert (np.abs(whole) <= 1).all()
    assert abs(whole.mean()) < 0.05
    assert abs(whole.var() - 1 / 3) < 0.02


def test_what_is_refused() -> None:
    learner = SketchedPca()
    conflict = learner.conflict(config(n_components=101))
    assert conflict is not None
    assert conflict.message == "101 components need a sketch of more than 100 rows: WITH (sketch_rows = 212)"
    x = rows(50, np.ones(40))
    small = [config(n_components=2, sketch_rows=5)]
    with pytest.raises(Diverged, match=r"the weights sum to 0\.5: variances need more than 1"):
        trained(learner, x, small, np.full(50, 0.01))
    with pytest.raises(Diverged, match="all training rows have the same features"):
        trained(learner, np.full((50, 40), 0.1), small)
    x[0, 1] = 1e200
    with pytest.raises(Diverged, match="feature column 2 overflow"):
        trained(learner, x, small)


def test_both_ways_are_one_learner() -> None:
    assert [way.way for way in registry.ways(registry.learner("pca"))] == ["pca", "pca by sketch"]
