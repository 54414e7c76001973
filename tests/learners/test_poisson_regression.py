"""Poisson regression against scikit-learn, epoch by epoch, and the labels it refuses."""

import numpy as np
import pytest
import scipy.sparse
import sklearn.linear_model as sk
from helpers.passes import trained
from helpers.stacks import stack_of
from scipy.special import xlogy

from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner
from grouplearn.models.label import NUMBER
from grouplearn.models.state import State

LEARNER = registry.learner("poisson_regression")
PROBLEM = Problem(NUMBER, 8, epochs=100)
CONFIGS = [{"l2": 0.01}, {"l2": 1.0}, {"l2": 100.0}, {"l1": 3.0, "l2": 0.0}, {"l1": 1.0, "l2": 1.0}]


def make_rows(n=400, seed=0, level=0.5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 8)) @ (np.eye(8) + 0.3 * rng.normal(size=(8, 8))) * np.geomspace(0.01, 10, 8)
    score = 0.6 * (x / x.std(axis=0)) @ rng.normal(size=8) / np.sqrt(8) + level
    return Shard(x, rng.poisson(np.exp(score)).astype(float), rng.uniform(0.2, 2, n))


def fit(shard, configs, rows=64, epochs=100):
    return trained(LEARNER, PROBLEM, configs, shard, rows, epochs)


def objective(shard, config, weights, intercept):
    score = shard.x @ weights + intercept
    half_deviance = np.exp(score) - shard.y * score + xlogy(shard.y, shard.y) - shard.y
    return (
        shard.weight @ half_deviance
        + config.get("l1", 0) * np.abs(weights).sum()
        + 0.5 * config.get("l2", 1) * weights @ weights
    )


def least(shard, config):
    alpha = config["l2"] / shard.weight.sum()
    model = sk.PoissonRegressor(alpha=alpha, solver="newton-cholesky", tol=1e-7, max_iter=1000)
    model.fit(shard.x, shard.y, sample_weight=shard.weight)
    return objective(shard, config, model.coef_, model.intercept_)


def test_it_is_an_algebraic_learner_of_regression_with_the_link_of_counts():
    assert isinstance(LEARNER, AlgebraicLearner)
    assert LEARNER.declaration.labels == {NUMBER}


@pytest.mark.parametrize("level", [-2.0, 0.5, 9.0])
def test_l2_reaches_scikit_learns_objective_epoch_by_epoch_and_in_a_stack(level):
    """Means of labels from 0.1 to 10,000."""
    shard = make_rows(level=level)
    state = fit(shard, CONFIGS)
    stack = LEARNER.solve(PROBLEM, CONFIGS, stack_of([shard]), lambda _: None, lambda: False)
    for index, config in enumerate(CONFIGS):
        weights, intercept = state.tensors["weights"][index, 0], state.tensors["intercept"][index, 0]
        reached = objective(shard, config, weights, intercept)
        np.testing.assert_allclose(LEARNER.losses(state)[index], reached, rtol=1e-6)
        np.testing.assert_allclose(stack.loss[0, index], reached, rtol=1e-6)
        if "l1" not in config:
            assert max(reached, stack.loss[0, index]) <= (1 + 1e-6) * least(shard, config)


def test_strong_l1_gives_exact_zeros_and_meets_the_optimality_conditions():
    shard, config = make_rows(), {"l1": 30.0, "l2": 0.0, "tolerance": 1e-13}
    state = fit(shard, [config])
    weights, intercept = state.tensors["weights"][0, 0], state.tensors["intercept"][0, 0]
    slope = shard.x.T @ (shard.weight * (np.exp(shard.x @ weights + intercept) - shard.y))
    assert 0 < (weights == 0).sum() < 8
    assert (np.abs(slope) <= 30.0 * (1 + 1e-6)).all()
    np.testing.assert_allclose(slope[weights != 0], -30.0 * np.sign(weights[weights != 0]), rtol=1e-4)


def test_same_rows_give_the_same_bytes_and_sparse_rows_the_dense_model():
    shard = make_rows()
    shard.x[:, 2:4] *= np.random.default_rng(1).random((400, 2)) < 0.1
    sparse = Shard(scipy.sparse.csr_matrix(shard.x), shard.y, shard.weight)
    once, again, other = fit(shard, CONFIGS), fit(shard, CONFIGS), fit(sparse, CONFIGS)
    assert once.to_bytes() == again.to_bytes()
    assert State.from_bytes(once.to_bytes()).to_bytes() == once.to_bytes()
    np.testing.assert_allclose(other.tensors["loss"], once.tensors["loss"], rtol=1e-7)


def test_predictions_are_means():
    shard = make_rows()
    state = fit(shard, CONFIGS)
    scores = LEARNER.scores(PROBLEM, CONFIGS, state, shard.x)
    assert scores.shape == (400, len(CONFIGS), 1)
    artifact = LEARNER.finalize(PROBLEM, CONFIGS, state, 1)
    expected = np.exp(shard.x @ artifact.tensors["weights"][0] + artifact.tensors["intercept"][0])
    np.testing.assert_allclose(LEARNER.score(NUMBER, artifact, shard.x)[:, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(scores[:, 1, 0], expected, rtol=1e-12)
    # With an intercept, and no penalty on it, the mean prediction is the mean label.
    np.testing.assert_allclose(shard.weight @ scores[:, :, 0], np.full(5, shard.weight @ shard.y), rtol=1e-3)


def test_negative_labels_are_refused_with_a_reason():
    shard = make_rows(20)
    shard.y[[3, 7]] = -1.0
    reason = r"^the label is negative in 2 rows; poisson_regression predicts counts and rates, which are >= 0$"
    with pytest.raises(ValueError, match=reason):
        fit(shard, CONFIGS)
    with pytest.raises(ValueError, match=reason):
        LEARNER.solve(PROBLEM, CONFIGS, stack_of([shard, make_rows(30)]), lambda _: None, lambda: False)


def test_labels_too_small_for_a_logarithm_are_refused_with_a_reason():
    shard = make_rows(20)
    shard.y[:] = 0.0
    shard.y[3] = 1e-320
    with pytest.raises(ValueError, match=r"between 0 and 2\.3e-308; scale the label up$"):
        fit(shard, CONFIGS)


def test_labels_that_are_all_zero_end_near_zero_loss():
    shard = make_rows(50)
    shard.y[:] = 0.0
    state = fit(shard, CONFIGS[:3])
    stack = LEARNER.solve(PROBLEM, CONFIGS[:3], stack_of([shard]), lambda _: None, lambda: False)
    assert (state.tensors["loss"] < 1e-3).all()
    assert (stack.loss < 1e-3).all()
