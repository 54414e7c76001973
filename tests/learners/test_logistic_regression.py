"""Logistic regression against scikit-learn and scipy at tight tolerances, and the promises of its sums and state."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special
import sklearn.linear_model as sk
from helpers.stacks import stack_of

from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.state import State

LEARNER = registry.learner("logistic_regression")
EXCESS = 1e-5


def make_rows(n=500, d=8, classes=2, seed=0, scaled_badly=False, signal=1.5):
    """Correlated columns; badly scaled: one with mean 1000 and sd 700 beside a 0/1 one, and sds from 0.001 to 100."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)))
    if scaled_badly:
        x *= np.geomspace(1e-3, 1e2, d)
        x[:, 0] = 1000 + 700 * rng.normal(size=n)
        x[:, 1] = rng.random(n) < 0.3
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    outputs = 1 if classes == 2 else classes
    score = signal * standard @ rng.normal(size=(d, outputs)) - 0.7
    if classes == 2:
        y = (rng.random(n) < scipy.special.expit(score[:, 0])).astype(float)
    else:
        y = (score + rng.gumbel(size=score.shape)).argmax(axis=1).astype(float)
    return Shard(x, y, rng.uniform(0.2, 2, size=n))


def problem_of(shard, classes=2):
    return Problem(TWO_CLASSES if classes == 2 else SEVERAL_CLASSES, shard.x.shape[1], classes)


def epoch(shard, problem, configs, state, rows):
    blocks = [LEARNER.accumulate(problem, configs, state, block) for block in shard.blocks(rows)]
    return LEARNER.step(problem, configs, state, functools.reduce(LEARNER.merge, blocks))


def fit(shard, configs, classes=2, rows=100_000, epochs=100):
    problem = problem_of(shard, classes)
    state = LEARNER.init(problem, configs)
    passes = np.zeros(len(configs), dtype=int)
    for _ in range(epochs):
        passes += ~state.done
        state = epoch(shard, problem, configs, state, rows)
        if state.done.all():
            break
    return state, passes


def log_losses(shard, weights, intercept):
    score = shard.x @ weights.T + intercept
    if len(weights) == 1:
        return np.logaddexp(0, score[:, 0]) - shard.y * score[:, 0]
    return scipy.special.logsumexp(score, axis=1) - score[np.arange(len(score)), shard.y.astype(int)]


def objective(shard, config, weights, intercept):
    weights = np.atleast_2d(weights)
    penalty = config.get("l1", 0) * np.abs(weights).sum() + 0.5 * config.get("l2", 1) * (weights**2).sum()
    return shard.weight @ log_losses(shard, weights, intercept) + penalty


def model_of(state, index):
    artifact = LEARNER.finalize(None, None, state, index)
    return artifact.tensors["weights"], artifact.tensors["intercept"]


def violation(shard, config, weights, intercept):
    """Largest entry of the subgradient of smallest norm, in units of each column's spread, per unit of weight."""
    score = shard.x @ weights.T + intercept
    if len(weights) == 1:
        residual = scipy.special.expit(score) - shard.y[:, None]
    else:
        residual = scipy.special.softmax(score, axis=1) - (shard.y[:, None] == np.arange(len(weights)))
    residual *= shard.weight[:, None]
    centred = shard.x - np.average(shard.x, axis=0, weights=shard.weight)
    gradient = residual.T @ centred + config.get("l2", 1) * weights
    l1 = config.get("l1", 0)
    gradient = np.where(
        weights == 0, np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0), gradient + l1 * np.sign(weights)
    )
    spread = np.sqrt(shard.weight @ centred**2)
    largest = np.abs(gradient[:, spread > 0] / spread[spread > 0]).max()
    return max(largest, np.abs(residual.sum(axis=0)).max() / np.sqrt(shard.weight.sum()))


def scikit_learn_l2(shard, l2, fit_intercept=True):
    scale = shard.x.std(axis=0) if l2 < 1e-6 else np.ones(shard.x.shape[1])
    model = sk.LogisticRegression(C=1 / l2, tol=1e-10, max_iter=20_000, fit_intercept=fit_intercept)
    model.set_params(solver="newton-cholesky" if fit_intercept else "newton-cg")
    model.fit(shard.x / scale, shard.y, sample_weight=shard.weight)
    return model.coef_ / scale, model.intercept_


def scipy_l1(shard, config):
    """L-BFGS-B on w = (a − b)/sd with a, b ≥ 0, for binary problems."""
    mean, spread = shard.x.mean(axis=0), shard.x.std(axis=0)
    standard, size = (shard.x - mean) / spread, shard.x.shape[1]
    l1, l2 = config.get("l1", 0) / spread, config.get("l2", 1) / spread**2

    def value_and_gradient(parts):
        v, b = parts[:size] - parts[size:-1], parts[-1]
        score = standard @ v + b
        residual = shard.weight * (scipy.special.expit(score) - shard.y)
        value = shard.weight @ (np.logaddexp(0, score) - shard.y * score) + 0.5 * l2 @ v**2
        value += l1 @ (parts[:size] + parts[size:-1])
        slope = standard.T @ residual + l2 * v
        return value, np.concatenate([slope + l1, -slope + l1, [residual.sum()]])

    bounds = [(0, None)] * (2 * size) + [(None, None)]
    options = {"maxiter": 20_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
    return scipy.optimize.minimize(
        value_and_gradient, np.zeros(2 * size + 1), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    ).fun


def test_it_is_an_algebraic_learner_with_kingpins_defaults():
    assert isinstance(LEARNER, AlgebraicLearner)
    defaults = {each.name: each.default for each in LEARNER.declaration.hyperparameters}
    assert defaults["learning_rate"] == 1
    assert defaults["l1"] == 0
    assert defaults["l2"] == 1
    assert defaults["history"] == 10
    assert LEARNER.pack_key({"history": 5}) != LEARNER.pack_key({}) == LEARNER.pack_key({"history": 10, "l1": 3.0})


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("scaled_badly", [False, True])
def test_l2_reaches_scikit_learns_objective(classes, scaled_badly):
    shard = make_rows(classes=classes, scaled_badly=scaled_badly)
    configs = [{"l2": value} for value in (0.01, 1.0, 100.0)]
    state, passes = fit(shard, configs, classes)
    assert state.done.all()
    assert passes.max() <= 20
    for index, config in enumerate(configs):
        weights, intercept = model_of(state, index)
        reached = objective(shard, config, weights, intercept)
        np.testing.assert_allclose(LEARNER.losses(state)[index], reached, rtol=1e-10)
        assert reached <= (1 + EXCESS) * objective(shard, config, *scikit_learn_l2(shard, config["l2"]))
        assert violation(shard, config, weights, intercept) < 1e-2


@pytest.mark.parametrize("classes", [2, 3])
def test_elastic_net_reaches_scikit_learns_objective(classes):
    shard = make_rows(n=300, classes=classes)
    configs = [{"l1": 5.0, "l2": 0.0}, {"l1": 2.0, "l2": 2.0}, {"l1": 0.1, "l2": 0.0}]
    state, _ = fit(shard, configs, classes)
    assert state.done.all()
    for index, config in enumerate(configs):
        total = config["l1"] + config["l2"]
        model = sk.LogisticRegression(
            C=1 / total, l1_ratio=config["l1"] / total, solver="saga", tol=1e-7, max_iter=20_000
        )
        model.fit(shard.x, shard.y, sample_weight=shard.weight)
        weights, intercept = model_of(state, index)
        expected = objective(shard, config, model.coef_, model.intercept_)
        assert objective(shard, config, weights, intercept) <= (1 + EXCESS) * expected
        assert violation(shard, config, weights, intercept) < 1e-2


def test_l1_without_intercept_reaches_liblinears_objective():
    shard = make_rows(scaled_badly=True)
    configs = [{"l1": value, "l2": 0.0, "fit_intercept": False} for value in (1.0, 20.0)]
    state, _ = fit(shard, configs)
    for index, config in enumerate(configs):
        model = sk.LogisticRegression(
            C=1 / config["l1"], l1_ratio=1, solver="liblinear", fit_intercept=False, tol=1e-8, max_iter=50_000
        )
        model.fit(shard.x, shard.y, sample_weight=shard.weight)
        weights, intercept = model_of(state, index)
        assert intercept == 0
        assert objective(shard, config, weights, 0) <= (1 + EXCESS) * objective(shard, config, model.coef_, 0)


def test_kingpins_grid_reaches_scipys_objective_on_badly_scaled_columns():
    shard = make_rows(n=800, d=12, scaled_badly=True)
    configs = [{"learning_rate": rate, "l1": l1, "l2": 0.0} for rate in (1, 0.5, 0.1) for l1 in (1, 0.5, 0.1, 0.05)]
    state, passes = fit(shard, configs)
    assert state.done.all()
    assert passes.max() <= 40
    for index, config in enumerate(configs):
        weights, intercept = model_of(state, index)
        reached = objective(shard, config, weights, intercept)
        # scipy stops a little above the minimum here.
        assert -1e-3 <= reached / scipy_l1(shard, config) - 1 <= EXCESS
        assert violation(shard, config, weights, intercept) < 1e-2


def few_of_a_class(name: str) -> Shard:
    """Three classes, the first of few rows: the first steps make a model that is wrong on them and sure of it."""
    random = np.random.default_rng(5)
    if name == "four points":
        x, y, times = np.array([[-13.0], [-12], [11], [-7]]), np.array([2.0, 0, 0, 1]), np.array([1000, 1, 3, 500])
        rows = np.repeat(np.arange(4), times)
        return Shard(x[rows], y[rows], np.ones(rows.size))
    if name == "weights":
        return Shard(np.array([[-13.0], [-12], [11], [-7]]), np.array([2.0, 0, 0, 1]), np.array([1000.0, 1, 3, 500]))
    if name == "three rows":  # no curvature is left that a double holds, and damping by what is would change nothing
        x = np.array([[6.4e7, -77, 1.3e8], [-1.7e8, 128, -1.2e7], [-7.5e7, 46, -1.7e5]])
        return Shard(x, np.array([2.0, 1, 0]), np.array([0.26, 3.6, 523]))
    y = np.repeat([0.0, 1, 2], [3, 1000, 6000])
    x = random.normal(size=(y.size, 3)) * 0.3 + 5 * random.normal(size=(3, 3))[y.astype(int)]
    return Shard(x, y, random.uniform(0.01, 100, size=y.size))


@pytest.mark.parametrize("name", ["four points", "weights", "three rows", "noise"])
@pytest.mark.parametrize("way", ["epochs", "sparse", "stack"])
def test_rows_that_a_first_step_is_sure_of_wrongly_do_not_hold_it_there(name: str, way: str) -> None:
    """Second derivatives are next to nothing there, and a step by them leads nowhere, however much is left to gain."""
    shard, configs = few_of_a_class(name), [{"l2": 1.0}]
    if way == "stack":
        problem = replace(problem_of(shard, 3), epochs=300)
        solved = LEARNER.solve(problem, configs, stack_of([shard, shard]), lambda _: None, lambda: False)
        found, converged = solved.loss[0, 0], solved.converged[0, 0]
    else:
        rows = shard if way == "epochs" else replace(shard, x=scipy.sparse.csr_matrix(shard.x))
        state, _ = fit(rows, configs, 3, epochs=300)
        found, converged = state.tensors["loss"][0], state.done[0]
    assert converged
    if name == "three rows":
        assert found < 1e-9
        return
    model = sk.LogisticRegression(C=1.0, tol=1e-10, max_iter=100_000)
    model.fit(shard.x - shard.x.mean(0), shard.y, sample_weight=shard.weight)
    score = (shard.x - shard.x.mean(0)) @ model.coef_.T + model.intercept_
    losses = scipy.special.logsumexp(score, axis=1) - score[np.arange(shard.n_rows), shard.y.astype(int)]
    expected = shard.weight @ losses + (model.coef_**2).sum() / 2
    assert found == pytest.approx(expected, rel=1e-5)


def test_strong_l1_gives_exact_zeros():
    shard = make_rows(d=20)
    configs = [{"l1": 20.0, "l2": 0.0}, {"l1": 1e6, "l2": 0.0}]
    state, _ = fit(shard, configs)
    assert 0 < (state.tensors["weights"][0] == 0).sum() < 20
    assert (state.tensors["weights"][1] == 0).all()
    share = np.average(shard.y, weights=shard.weight)
    np.testing.assert_allclose(state.tensors["intercept"][1, 0], np.log(share / (1 - share)))


@pytest.mark.parametrize(("classes", "features"), [(2, 320), (3, 120)])
def test_many_sparse_columns_reach_the_optimum(classes, features):
    """More parameters than get a full first Hessian: one-hot columns beside numbers, CSR."""
    rng = np.random.default_rng(6)
    n = 1500
    codes = scipy.sparse.csr_matrix((np.ones(n), rng.integers(0, features, n), np.arange(n + 1)), shape=(n, features))
    x = scipy.sparse.hstack([codes, scipy.sparse.csr_matrix(50 + 20 * rng.normal(size=(n, 3)))], format="csr")
    score = x @ np.r_[rng.normal(size=features), 0.05, 0, 0]
    y = np.digitize(score + rng.logistic(size=n), [2.5] if classes == 2 else [1.5, 3.5]).astype(float)
    sparse = Shard(x, y, rng.uniform(0.5, 2, n))
    dense = Shard(x.toarray(), y, sparse.weight)
    configs = [{"l2": 1.0}, {"l1": 1.0, "l2": 0.0}, {"l1": 0.3, "l2": 0.3}]
    state, _ = fit(sparse, configs, classes)
    assert state.done.all()
    tight, _ = fit(dense, [{**config, "tolerance": 1e-13} for config in configs], classes, epochs=400)
    np.testing.assert_allclose(LEARNER.losses(state), LEARNER.losses(tight), rtol=EXCESS / 3)
    expected = objective(dense, configs[0], *scikit_learn_l2(dense, 1.0))
    assert LEARNER.losses(state)[0] <= (1 + EXCESS) * expected
    for index, config in enumerate(configs):
        assert violation(dense, config, *model_of(state, index)) < 2e-2


CONFIGS = [{"l2": 1.0}, {"l1": 1.0, "l2": 0.0}, {"l1": 3.0, "l2": 0.5, "learning_rate": 0.1}, {"l1": 0.01, "l2": 0.0}]


@pytest.mark.parametrize("classes", [2, 3])
def test_a_pack_gives_the_models_of_packs_of_one(classes):
    shard = make_rows(classes=classes, scaled_badly=True)
    spread = shard.x.std(axis=0)
    pack, passes = fit(shard, CONFIGS, classes)
    for index, config in enumerate(CONFIGS):
        alone, alone_passes = fit(shard, [config], classes)
        assert passes[index] == alone_passes[0]
        np.testing.assert_allclose(
            pack.tensors["weights"][index] * spread, alone.tensors["weights"][0] * spread, rtol=1e-8, atol=1e-9
        )


@pytest.mark.parametrize("rows", [17, 128])
def test_blocks_of_any_size_give_the_same_model(rows):
    shard = make_rows(scaled_badly=True)
    (whole, _), (parts, _) = fit(shard, CONFIGS), fit(shard, CONFIGS, rows=rows)
    spread = shard.x.std(axis=0)
    np.testing.assert_allclose(
        parts.tensors["weights"] * spread, whole.tensors["weights"] * spread, rtol=1e-8, atol=1e-9
    )
    np.testing.assert_allclose(parts.tensors["loss"], whole.tensors["loss"], rtol=1e-10)


def test_same_rows_give_the_same_bytes_and_a_state_may_travel_between_epochs():
    shard = make_rows(classes=3)
    once, _ = fit(shard, CONFIGS, 3, rows=64)
    again, _ = fit(shard, CONFIGS, 3, rows=64)
    assert once.to_bytes() == again.to_bytes()
    problem = problem_of(shard, 3)
    state = LEARNER.init(problem, CONFIGS)
    while not state.done.all():
        state = epoch(shard, problem, CONFIGS, State.from_bytes(state.to_bytes()), 64)
    assert state.to_bytes() == once.to_bytes()


def test_the_accepted_model_is_reported_while_a_trial_is_pending_and_never_gets_worse():
    shard = make_rows(scaled_badly=True, signal=6)
    configs = [{"l2": 0.0, "learning_rate": 100.0}, {"l1": 0.1, "l2": 0.0, "learning_rate": 100.0}, {"l2": 1.0}]
    problem, seen = problem_of(shard), []
    state = LEARNER.init(problem, configs)
    for _ in range(30):
        state = epoch(shard, problem, configs, state, 64)
        for index, config in enumerate(configs):
            reached = objective(shard, config, *model_of(state, index))
            np.testing.assert_allclose(LEARNER.losses(state)[index], reached, rtol=1e-10)
        seen.append(LEARNER.losses(state))
    # A first step a hundred times too long is shortened, so some passes change nothing.
    assert (np.diff(seen, axis=0) <= 1e-9).all()
    assert (np.diff(seen, axis=0)[0] == 0).any()


def test_a_pass_leaves_the_state_it_started_from_alone():
    shard = make_rows()
    problem = problem_of(shard)
    state = LEARNER.init(problem, CONFIGS)
    for _ in range(4):
        before = state.to_bytes()
        following = epoch(shard, problem, CONFIGS, state, 64)
        assert state.to_bytes() == before
        state = following


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_probabilities_and_those_of_the_artifact(classes):
    shard = make_rows(classes=classes)
    problem = problem_of(shard, classes)
    before = LEARNER.scores(problem, CONFIGS, LEARNER.init(problem, CONFIGS), shard.x)
    np.testing.assert_allclose(before, 1 / classes)
    state, _ = fit(shard, CONFIGS, classes)
    scores = LEARNER.scores(problem, CONFIGS, state, 1e6 * shard.x)
    assert scores.shape == (500, len(CONFIGS), problem.n_outputs)
    assert ((scores >= 0) & (scores <= 1)).all()
    weights, intercept = model_of(state, 2)
    linear = shard.x @ weights.T + intercept
    expected = scipy.special.expit(linear) if classes == 2 else scipy.special.softmax(linear, axis=1)
    artifact = LEARNER.finalize(problem, CONFIGS, state, 2)
    np.testing.assert_allclose(LEARNER.score(problem.label, artifact, shard.x), expected, rtol=1e-10)
    np.testing.assert_allclose(LEARNER.scores(problem, CONFIGS, state, shard.x)[:, 2], expected, rtol=1e-10)
    np.testing.assert_allclose(LEARNER.importance(artifact, 8), np.abs(weights).sum(axis=0))


def test_separable_classes_without_penalty_end_near_zero_loss():
    x = np.linspace(-1, 1, 40)[:, None]
    shard = Shard(np.column_stack([x, np.full(40, 1e9)]), (x[:, 0] > 0).astype(float), np.ones(40))
    state, _ = fit(shard, [{"l2": 0.0}, {"l2": 1.0}])
    assert state.tensors["loss"][0] < 1e-6
    assert np.isfinite(state.tensors["weights"]).all()
    assert (state.tensors["weights"][:, 0, 1] == 0).all()
    assert state.done[1]


def test_no_features_give_the_class_shares():
    y = np.array([0.0, 1, 2, 2])
    state, _ = fit(Shard(np.zeros((4, 0)), y, np.array([1.0, 1, 1, 3])), CONFIGS, 3)
    scores = LEARNER.score(SEVERAL_CLASSES, LEARNER.finalize(None, None, state, 0), np.zeros((1, 0)))
    np.testing.assert_allclose(scores, [[1 / 6, 1 / 6, 4 / 6]], rtol=1e-6)


def test_overflow_is_an_error_that_names_the_column():
    x = np.array([[1.0, 1e200], [2.0, -1e200], [3.0, 3e200]])
    with pytest.raises(
        Diverged, match=r"^the squares of feature column 2 overflow; scale it, with zscore for example$"
    ):
        fit(Shard(x, np.array([0.0, 1, 0]), np.ones(3)), CONFIGS)


def test_a_config_whose_objective_overflows_leaves_the_others_alone():
    shard = make_rows()
    configs = [{"l2": 1.0}, {"l2": 1e308, "learning_rate": 1e308}]
    state, _ = fit(shard, configs)
    alone, _ = fit(shard, configs[:1])
    np.testing.assert_allclose(state.tensors["weights"][0], alone.tensors["weights"][0], rtol=1e-8, atol=1e-10)
    assert np.isfinite(state.tensors["weights"]).all()
