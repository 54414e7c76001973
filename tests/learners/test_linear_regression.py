"""Linear regression against numpy's least squares and scikit-learn, and the promises of its sums and state."""

import functools

import numpy as np
import pytest
import scipy.sparse
import sklearn.linear_model as sk
from helpers.moments import stack_moments

from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner
from grouplearn.learners.linear.least_squares import moments
from grouplearn.learners.linear.least_squares import solver as least_squares
from grouplearn.models.label import NUMBER
from grouplearn.models.state import State

LEARNER = registry.learner("linear_regression")


def make_rows(n=300, d=8, seed=0):
    """Correlated columns; one with mean 1000 and sd 700, one 0/1, one with a mean of a million standard deviations."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) @ (np.eye(d) + 0.4 * rng.normal(size=(d, d)))
    x[:, 0] = 1000 + 700 * x[:, 0]
    x[:, 1] = x[:, 1] > 0.5
    x[:, 2] = 1e6 + x[:, 2]
    y = 40 + x @ np.array([0.003, 2, -1, *np.linspace(-1, 1, d - 3)]) + rng.normal(size=n)
    return Shard(x, y, rng.uniform(0.1, 3, size=n))


def sums_of(shard, configs, rows=100_000):
    problem = Problem(NUMBER, shard.x.shape[1])
    state = LEARNER.init(problem, configs)
    blocks = [LEARNER.accumulate(problem, configs, state, block) for block in shard.blocks(rows)]
    return problem, state, functools.reduce(LEARNER.merge, blocks)


def fit(shard, configs, rows=100_000):
    problem, state, sums = sums_of(shard, configs, rows)
    return LEARNER.step(problem, configs, state, sums)


def objective(shard, config, weights, intercept):
    error = shard.y - shard.x @ weights - intercept
    return (
        0.5 * shard.weight @ error**2
        + config.get("l1", 0) * np.abs(weights).sum()
        + 0.5 * config.get("l2", 0) * weights @ weights
    )


def scikit_learn(config, total):
    l1, l2, intercept = config.get("l1", 0), config.get("l2", 0), config.get("fit_intercept", True)
    if l1:
        # Its objective is divided by the sum of weights.
        return sk.ElasticNet(
            alpha=(l1 + l2) / total, l1_ratio=l1 / (l1 + l2), fit_intercept=intercept, tol=1e-13, max_iter=500_000
        )
    return (
        sk.Ridge(alpha=l2, fit_intercept=intercept, solver="svd")
        if l2
        else sk.LinearRegression(fit_intercept=intercept)
    )


CONFIGS = [
    {},
    {"l2": 0.1},
    {"l2": 50.0},
    {"l1": 0.5},
    {"l1": 30.0},
    {"l1": 300.0},
    {"l1": 20.0, "l2": 10.0},
    {"l1": 1e9},
]


def test_it_is_an_algebraic_learner():
    assert isinstance(LEARNER, AlgebraicLearner)
    assert LEARNER.declaration.default_epochs is None


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_weights_are_those_of_scikit_learn(config):
    shard = make_rows()
    state = fit(shard, CONFIGS)
    index = CONFIGS.index(config)
    weights, intercept = state.tensors["weights"][index, 0], state.tensors["intercept"][index, 0]
    reference = scikit_learn(config, shard.weight.sum()).fit(shard.x, shard.y, sample_weight=shard.weight)
    spread = shard.x.std(axis=0)
    np.testing.assert_allclose(weights * spread, reference.coef_ * spread, rtol=1e-6, atol=1e-7)
    predictions = LEARNER.score(NUMBER, LEARNER.finalize(None, CONFIGS, state, index), shard.x)[:, 0]
    np.testing.assert_allclose(predictions, reference.predict(shard.x), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(LEARNER.losses(state)[index], objective(shard, config, weights, intercept), rtol=1e-8)
    assert state.done.all()


@pytest.mark.parametrize("config", [{}, {"l2": 3.0}, {"l1": 20.0}, {"l1": 20.0, "l2": 3.0}], ids=str)
def test_without_intercept_the_weights_are_those_of_scikit_learn(config):
    shard = make_rows()
    shard.x[:, 2] -= 1e6
    config = {**config, "fit_intercept": False}
    state = fit(shard, [{}, config])
    reference = scikit_learn(config, shard.weight.sum()).fit(shard.x, shard.y, sample_weight=shard.weight)
    np.testing.assert_allclose(state.tensors["weights"][1, 0], reference.coef_, rtol=1e-6, atol=1e-8)
    assert state.tensors["intercept"][1, 0] == 0
    assert state.tensors["intercept"][0, 0] != 0


def test_lasso_weights_outside_the_support_are_exactly_zero():
    shard = make_rows(d=12)
    weights = fit(shard, [{"l1": 300.0}]).tensors["weights"][0, 0]
    reference = scikit_learn({"l1": 300.0}, shard.weight.sum()).fit(shard.x, shard.y, sample_weight=shard.weight)
    assert 0 < (weights != 0).sum() < 12
    np.testing.assert_array_equal(weights != 0, reference.coef_ != 0)


def test_lasso_meets_the_optimality_conditions_on_nearly_collinear_columns():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, 1)) + 1e-3 * rng.normal(size=(400, 25))
    y = x @ rng.normal(size=25) + 0.1 * rng.normal(size=400)
    configs = [{"l1": value} for value in (0.001, 0.01, 0.1, 1.0)]
    state = fit(Shard(x, y, np.ones(400)), configs)
    for index, config in enumerate(configs):
        weights = state.tensors["weights"][index, 0]
        slope = x.T @ (y - x @ weights - state.tensors["intercept"][index, 0])
        assert (np.abs(slope) <= config["l1"] + 1e-6).all()
        np.testing.assert_allclose(slope[weights != 0], config["l1"] * np.sign(weights[weights != 0]), atol=1e-6)


def _beside_a_constant(offset):
    """Return rows whose label is nearly all explained by a constant column."""
    rng = np.random.default_rng(2)
    x = np.column_stack([rng.normal(size=100), np.full(100, 3.0)])
    return x, 2 * x[:, 0] + rng.normal(size=100) + offset


def _beside_a_large_column(scale):
    """Return rows whose label is nearly all explained by a column of large values."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(100, 2)) * [1.0, scale]
    return x, 2 * x[:, 0] + x[:, 1] + rng.normal(size=100)


@pytest.mark.parametrize("l1", [0.5, 2, 20, 100, 150])
@pytest.mark.parametrize("offset", [3e6, 1e9])
def test_a_column_beside_a_dominating_constant_is_penalised(offset, l1):
    x, y = _beside_a_constant(offset)
    weights = fit(Shard(x, y, np.ones(100)), [{"l1": l1, "fit_intercept": False}]).tensors["weights"][0, 0]
    reference = sk.Lasso(alpha=l1 / 100, fit_intercept=False, tol=1e-14, max_iter=100_000).fit(x, y)
    np.testing.assert_allclose(weights[0], reference.coef_[0], rtol=1e-6)
    slope = x.T @ (y - x @ weights)
    np.testing.assert_allclose(slope, l1, rtol=0, atol=1e-12 * offset)


@pytest.mark.parametrize("scale", [1e6, 1e8, 1e10])
def test_a_column_beside_a_dominating_one_is_penalised_at_every_l1(scale):
    x, y = _beside_a_large_column(scale)
    configs = [{"l1": l1} for l1 in (0.5, 2, 20, 100, 150)]
    together = fit(Shard(x, y, np.ones(100)), configs)
    for index, config in enumerate(configs):
        for state, place in ((together, index), (fit(Shard(x, y, np.ones(100)), [config]), 0)):
            weights, intercept = state.tensors["weights"][place, 0], state.tensors["intercept"][place, 0]
            slope = (x[:, 0] - x[:, 0].mean()) @ (y - x @ weights - intercept)
            np.testing.assert_allclose(slope, config["l1"], rtol=0, atol=1e-12 * scale)


def test_a_stack_penalises_columns_beside_dominating_ones():
    rows = [_beside_a_constant(3e6), _beside_a_constant(1e9), _beside_a_large_column(1e8)]
    x, y = (np.stack(each) for each in zip(*rows, strict=True))
    configs = [{"l1": l1, "fit_intercept": False} for l1 in (0.5, 2, 20, 100, 150)]
    sums = stack_moments(x, y[:, :, None], np.ones(y.shape))
    solved = LEARNER.solve_moments(Problem(NUMBER, 2), configs, sums)
    for group, (each, label) in enumerate(rows):
        alone = fit(Shard(each, label, np.ones(100)), configs).tensors["weights"]
        np.testing.assert_allclose(solved.weights[group], alone, rtol=1e-6)


@pytest.mark.parametrize("n", [100, 6])
def test_rank_deficient_least_squares_has_the_smallest_weights(n):
    rng = np.random.default_rng(1)
    level = rng.integers(0, 3, size=n)
    x = np.column_stack([np.eye(3)[level], 10 * rng.normal(size=(n, 4)), np.full(n, 7.0)])
    x = np.column_stack([x, x[:, 3] - 2 * x[:, 4]])
    y = rng.normal(size=n)
    weights = fit(Shard(x, y, np.ones(n)), [{}]).tensors["weights"][0, 0]
    expected = np.linalg.lstsq(x - x.mean(axis=0), y - y.mean(), rcond=1e-10)[0]
    np.testing.assert_allclose(weights, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("rows", [1, 7, 128])
def test_blocks_of_any_size_give_the_same_model(rows):
    shard = make_rows()
    whole, parts = fit(shard, CONFIGS), fit(shard, CONFIGS, rows)
    spread = shard.x.std(axis=0)
    np.testing.assert_allclose(
        parts.tensors["weights"] * spread, whole.tensors["weights"] * spread, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(parts.tensors["loss"], whole.tensors["loss"], rtol=1e-9)


def test_huge_means_do_not_destroy_the_moments():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(500, 2))
    y = x @ [3.0, -2.0] + 0.1 * rng.normal(size=500)
    near = fit(Shard(x, y, np.ones(500)), [{}], rows=50)
    far = fit(Shard(x + 2.0**30, y + 2.0**30, np.ones(500)), [{}], rows=50)
    np.testing.assert_allclose(far.tensors["weights"], near.tensors["weights"], rtol=1e-6)


def test_a_pack_gives_the_models_of_packs_of_one():
    shard = make_rows()
    pack = fit(shard, CONFIGS)
    for index, config in enumerate(CONFIGS):
        alone = fit(shard, [config])
        np.testing.assert_allclose(pack.tensors["weights"][index], alone.tensors["weights"][0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rows", [100_000, 64])
def test_sparse_rows_give_the_dense_model(rows):
    dense = make_rows()
    dense.x[:, 3:6] *= np.random.default_rng(5).random((300, 3)) < 0.1
    sparse = Shard(scipy.sparse.csr_matrix(dense.x), dense.y, dense.weight)
    expected, actual = fit(dense, CONFIGS), fit(sparse, CONFIGS, rows)
    spread = dense.x.std(axis=0)
    np.testing.assert_allclose(
        actual.tensors["weights"] * spread, expected.tensors["weights"] * spread, rtol=1e-8, atol=1e-8
    )
    problem = Problem(NUMBER, 8)
    np.testing.assert_allclose(
        LEARNER.scores(problem, CONFIGS, actual, sparse.x),
        LEARNER.scores(problem, CONFIGS, expected, dense.x),
        rtol=1e-7,
    )


def test_same_rows_give_the_same_bytes_and_states_survive_the_journey():
    shard = make_rows()
    once, again = fit(shard, CONFIGS, 64), fit(shard, CONFIGS, 64)
    assert once.to_bytes() == again.to_bytes()
    problem, state, sums = sums_of(shard, CONFIGS, 64)
    restored = State.from_bytes(state.to_bytes())
    assert LEARNER.step(problem, CONFIGS, restored, sums).to_bytes() == once.to_bytes()


def test_scores_importance_and_state_before_training():
    shard = make_rows()
    problem, state, sums = sums_of(shard, CONFIGS)
    assert np.isnan(LEARNER.losses(state)).all()
    assert not state.done.any()
    trained = LEARNER.step(problem, CONFIGS, state, sums)
    assert np.isnan(LEARNER.losses(state)).all()
    scores = LEARNER.scores(problem, CONFIGS, trained, shard.x)
    assert scores.shape == (300, len(CONFIGS), 1)
    artifact = LEARNER.finalize(problem, CONFIGS, trained, 4)
    np.testing.assert_allclose(LEARNER.score(NUMBER, artifact, shard.x), scores[:, 4], rtol=1e-12)
    np.testing.assert_array_equal(LEARNER.importance(artifact, 8), np.abs(artifact.tensors["weights"][0]))


def test_a_single_row_and_no_features_are_fitted_by_the_intercept():
    one = fit(Shard(np.array([[3.0, 4.0]]), np.array([5.0]), np.array([2.0])), [{}, {"l2": 1.0}, {"l1": 1.0}])
    np.testing.assert_array_equal(one.tensors["weights"], 0)
    np.testing.assert_array_equal(one.tensors["intercept"][:, 0], 5.0)
    empty = fit(Shard(np.zeros((4, 0)), np.array([1.0, 2, 3, 6]), np.ones(4)), [{}, {"l2": 1.0}, {"l1": 1.0}])
    np.testing.assert_allclose(empty.tensors["intercept"][:, 0], 3.0)


def test_overflow_is_an_error_that_names_the_column():
    x = np.ones((4, 2))
    x[:, 1] = [1e200, -1e200, 3e200, 0]
    with pytest.raises(
        Diverged, match=r"^the squares of feature column 2 overflow; scale it, with zscore for example$"
    ):
        fit(Shard(x, np.arange(4.0), np.ones(4)), [{}])
    with pytest.raises(Diverged, match=r"^the squares of the label overflow"):
        fit(Shard(np.ones((4, 1)), x[:, 1], np.ones(4)), [{}])


def test_a_penalty_that_is_lost_in_rounding_gives_the_smallest_weights():
    x = np.random.default_rng(2).normal(size=(50, 3))
    x = np.column_stack([x, x[:, 0]])  # twice the same: without a penalty the system is singular
    x -= x.mean(axis=0)
    y = x @ [1.0, 2.0, 3.0, 1.0]
    sums = moments.block_moments(x, y[:, None], np.ones(50), gram=True)
    whole = {name: value[None] for name, value in sums.items()}
    solved = LEARNER.solve_moments(Problem(NUMBER, 4), [{"l2": 1e-30}, {"l2": 1e-3}], whole)
    weights = solved.weights[0, :, 0]
    np.testing.assert_allclose(weights[0], [1.0, 2.0, 3.0, 1.0], rtol=1e-9)
    np.testing.assert_allclose(weights[1], np.linalg.solve(x.T @ x + 1e-3 * np.eye(4), x.T @ y), rtol=1e-9)


@pytest.mark.parametrize("rows", [100, 30_000])
@pytest.mark.parametrize(("large", "small", "l2"), [(1e7, 1e-2, 1.0), (1e5, 1e-3, 1e-3), (1e9, 1e-9, 1e-18)])
def test_a_penalty_counts_for_a_small_column_beside_two_large_ones_that_are_the_same(large, small, l2, rows):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, 2))
    y = z @ [2.0, 3.0] + rng.normal(size=rows)
    state = fit(
        Shard(np.column_stack([z[:, 0] * large, z[:, 0] * large, z[:, 1] * small]), y, np.ones(rows)), [{"l2": l2}]
    )
    # Two columns of a weight each are one of √2 times the size.
    own = np.array([np.sqrt(2) * large, small])
    x, centred = (z - z.mean(axis=0)) * own, y - y.mean()
    scale = 1 / np.linalg.norm(x, axis=0)
    gram = (x * scale).T @ (x * scale) + np.diag(l2 * scale**2)
    expected = np.linalg.solve(gram, (x * scale).T @ centred) * scale
    halves = expected[0] / np.sqrt(2)
    np.testing.assert_allclose(state.tensors["weights"][0, 0], [halves, halves, expected[1]], rtol=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_a_penalty_weighs_what_a_sum_of_columns_says_twice(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(100, 2))
    y = z @ [3.0, 2.0] + rng.normal(size=100)
    x = np.column_stack([z[:, 0] * 1e8, z[:, 1], z[:, 0] * 1e8 + z[:, 1]])
    state = fit(Shard(x, y, np.ones(100)), [{"l2": 100.0}])
    expected = sk.Ridge(alpha=100.0, solver="svd").fit(x, y)
    np.testing.assert_allclose(state.tensors["weights"][0, 0], expected.coef_, rtol=1e-5)


def _wider_than_long() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 60))
    return x, x @ rng.normal(size=60) + rng.normal(size=50)


def test_a_small_l1_of_few_rows_is_solved_to_the_end():
    x, y = _wider_than_long()
    state = fit(Shard(x, y, np.ones(50)), [{"l1": 0.01}])
    weights, intercept = state.tensors["weights"][0, 0], state.tensors["intercept"][0, 0]
    pull = (x - x.mean(axis=0)).T @ (y - x @ weights - intercept)
    assert state.done.all()
    np.testing.assert_allclose(pull[weights != 0], 0.01 * np.sign(weights[weights != 0]), atol=1e-9)
    assert (np.abs(pull) <= 0.01 + 1e-9).all()


def _beside_an_outlier(seed):
    """Return rows of which one outweighs all others, near-equal columns, weights of rows, and a config with l1."""
    rng = np.random.default_rng(seed)
    n, d = rng.integers(10, 201), rng.integers(5, 151)
    x = rng.normal(size=(n, d))
    x[0] *= 10 ** rng.uniform(2, 5)
    if seed % 2:
        x[:, -1] = x[:, 0] + 10.0 ** rng.integers(-9, -1) * x[:, -1]
    y = rng.normal(size=n) + (x @ rng.normal(size=d) if seed % 3 else 0)
    weight = 10 ** rng.uniform(-4, 4, size=n) if seed % 4 == 3 else np.ones(n)
    l2 = 10 ** rng.uniform(-4, 2) if seed % 5 in (1, 2) else 0.0
    return Shard(x, y, weight), {"l1": 10 ** rng.uniform(-3, 2), "l2": l2, "fit_intercept": seed % 4 > 1}


def _least_by_angles(shard, config):
    """Return the objective of scikit-learn's least angle regression, with l2 as rows: no less than the least."""
    total, root, d = shard.weight.sum(), np.sqrt(shard.weight), shard.x.shape[1]
    mean, label = np.zeros(d), 0.0
    if config["fit_intercept"]:
        mean, label = shard.weight @ shard.x / total, shard.weight @ shard.y / total
    x = np.vstack([(shard.x - mean) * root[:, None], np.sqrt(config["l2"]) * np.eye(d)])
    y = np.append((shard.y - label) * root, np.zeros(d))
    found = sk.LassoLars(alpha=config["l1"] / len(y), fit_intercept=False, max_iter=10_000, eps=1e-16).fit(x, y)
    return objective(shard, config, found.coef_, label - mean @ found.coef_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.examples(16)
@pytest.mark.parametrize("rows", [100_000, 70])
@pytest.mark.parametrize("seed", range(24))
def test_l1_beside_an_outlier_ends_at_the_least_objective_or_says_that_it_has_not(seed, rows):
    shard, config = _beside_an_outlier(seed)
    state = fit(shard, [config], rows)
    found = objective(shard, config, state.tensors["weights"][0, 0], state.tensors["intercept"][0, 0])
    assert state.done[0]
    assert found <= _least_by_angles(shard, config) * (1 + 1e-6)
    # Where the products are large and their sum small, moments alone have lost digits of it.
    np.testing.assert_allclose(state.tensors["loss"][0], found, rtol=1e-5)


def test_what_has_something_left_to_gain_has_not_converged(monkeypatch):
    monkeypatch.setattr(least_squares, "_LEAST_ROUNDS", 1)
    monkeypatch.setattr(least_squares, "_ROUNDS_OF_COLUMNS", 0)
    x, y = _wider_than_long()
    configs = [{"l1": 0.01}, {"l1": 1e6}, {"l2": 1.0}]
    for features in (x, scipy.sparse.csr_array(np.where(np.abs(x) > 0.1, x, 0.0))):
        state = fit(Shard(features, y, np.ones(50)), configs)
        assert state.done.tolist() == [False, True, True]
    sums = stack_moments(x[None], y[None, :, None], np.ones((1, 50)))
    solved = LEARNER.solve_moments(Problem(NUMBER, 60), configs, sums)
    assert solved.converged.tolist() == [[False, True, True]]


@pytest.mark.parametrize("rows", [100_000, 16])
@pytest.mark.parametrize("offset", [1e6, 1e8, 1e9])
def test_columns_far_from_zero_without_intercept(offset, rows):
    """They are alike about zero: their Gram matrix has lost what their rows say. Of one block and of several, and in a stack."""
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(60, 3))
    x = noise + offset
    y = noise @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=60)
    configs = [{"l2": l2, "fit_intercept": False} for l2 in (0.0, 0.01, 1.0)] + [{"l1": 1.0, "fit_intercept": False}]
    state = fit(Shard(x, y, np.ones(60)), configs, rows)
    _, _, sums = sums_of(Shard(x, y, np.ones(60)), configs, rows)
    pair = {name: np.stack([value, value]) for name, value in sums.items()}
    solved = LEARNER.solve_moments(Problem(NUMBER, 3), configs, pair)
    for config, given in enumerate(configs[:3]):
        penalty = np.sqrt(given["l2"]) * np.eye(3)
        best = np.linalg.lstsq(np.vstack([x, penalty]), np.append(y, np.zeros(3)), rcond=1e-16)[0]
        np.testing.assert_allclose(state.tensors["weights"][config, 0], best, rtol=1e-5)
        for found in solved.weights[:, config, 0]:
            np.testing.assert_allclose(found, best, rtol=1e-5)
    # With l1 there is nothing but the Gram matrix: what it cannot tell is not said to be found.
    assert state.done.tolist() == [True, True, True, False]
