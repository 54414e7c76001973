"""Generalised linear models of more weights than have second derivatives, on sparse rows of several shapes, against scipy.

The reference minimises the same objective over u − v = w, u, v >= 0, by L-BFGS-B to its last digits. It goes on from the model
that is tested: the objective is convex, so that a model that is not the least is left for it, at a third of the time.
"""

from itertools import product

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special
import sklearn.linear_model as sk
from helpers.passes import trained

from grouplearn.data.shard import Shard
from grouplearn.kernels.library import calling_back
from grouplearn.learners import registry
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear import glm
from grouplearn.learners.linear.newton import NewtonSolver
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES

ROWS, COLUMNS, ENTRIES = 900, 400, 6
LEARNERS = {
    "logistic": registry.learner("logistic_regression"),
    "softmax": registry.learner("logistic_regression"),
    "poisson": registry.learner("poisson_regression"),
    "squared_hinge": registry.learner("linear_svm"),
}
SHAPES = ("popular", "repeated", "twins", "empty", "weightless", "separable", "scales")


def made(shape: str, loss: str = "logistic") -> Shard:
    """Rows of some entries each, of which small columns have most; labels of a model and noise."""
    random = np.random.default_rng(SHAPES.index(shape))
    columns = (COLUMNS * random.random((ROWS, ENTRIES)) ** 2).astype(int)
    entries = np.ones(columns.size)
    if shape == "scales":
        entries = random.normal(size=columns.size) * np.geomspace(0.1, 10, COLUMNS)[columns.ravel()]
    starts = np.arange(ROWS + 1) * ENTRIES
    x = scipy.sparse.csr_matrix((entries, columns.ravel(), starts), shape=(ROWS, COLUMNS))
    x.sum_duplicates()
    score = x @ (random.normal(size=COLUMNS) / np.maximum(1, abs(x).max(axis=0).toarray()[0]))
    if shape == "twins":
        x = scipy.sparse.hstack([x[:, :200], x[:, :200]], format="csr")
    if shape == "empty":
        x = scipy.sparse.hstack([x, scipy.sparse.csr_matrix((ROWS, 300))], format="csr")
    if shape == "repeated":
        x, score = x[np.arange(ROWS) // 4], score[np.arange(ROWS) // 4]
    noise = 0 if shape == "separable" else random.logistic(size=ROWS)
    y = np.digitize(score + noise, [-1.0, 1.0] if loss == "softmax" else [0.0]).astype(float)
    y = random.poisson(np.exp(np.clip(score, -3, 3))).astype(float) if loss == "poisson" else y
    weight = random.integers(0, 3, ROWS).astype(float) if shape == "weightless" else random.uniform(0.5, 2, ROWS)
    return Shard(x, y, weight)


def problem_of(loss: str, shard: Shard) -> Problem:
    if loss == "poisson":
        return Problem(NUMBER, shard.x.shape[1])
    classes = 3 if loss == "softmax" else 2
    return Problem(SEVERAL_CLASSES if classes > 2 else TWO_CLASSES, shard.x.shape[1], classes)


def objective(loss: str, shard: Shard, weights: np.ndarray, intercept: np.ndarray, config: dict[str, float]) -> float:
    value = shard.weight @ loss_and_slope(loss, shard, shard.x @ weights.T + intercept)[0]
    return float(value + config.get("l1", 0) * abs(weights).sum() + 0.5 * config.get("l2", 1) * (weights**2).sum())


def loss_and_slope(loss: str, shard: Shard, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = shard.y
    if loss == "softmax":
        own = np.eye(3)[y.astype(int)]
        total = scipy.special.logsumexp(score, axis=1)
        return total - (score * own).sum(axis=1), np.exp(score - total[:, None]) - own
    one = score[:, 0]
    if loss == "logistic":
        return np.logaddexp(0, one) - y * one, (scipy.special.expit(one) - y)[:, None]
    if loss == "poisson":
        return np.exp(one) - y * one + scipy.special.xlogy(y, y) - y, (np.exp(one) - y)[:, None]
    sign = 2 * y - 1
    short = np.maximum(0, 1 - sign * one)
    return short**2, (-2 * sign * short)[:, None]


def least(loss: str, shard: Shard, config: dict[str, float], near: np.ndarray, intercept: np.ndarray) -> float:
    outputs, columns = 3 if loss == "softmax" else 1, shard.x.shape[1]
    n, l1, l2 = outputs * columns, config.get("l1", 0), config.get("l2", 1)

    def at(point: np.ndarray) -> tuple[float, np.ndarray]:
        weights = (point[:n] - point[n : 2 * n]).reshape(outputs, columns)
        value, slope = loss_and_slope(loss, shard, shard.x @ weights.T + point[2 * n :])
        slope = slope * shard.weight[:, None]
        own = (shard.x.T @ slope).T.ravel() + l2 * weights.ravel()
        total = shard.weight @ value + l1 * point[: 2 * n].sum() + 0.5 * l2 * (weights**2).sum()
        return float(total), np.concatenate([own + l1, l1 - own, slope.sum(axis=0)])

    bounds = [(0, None)] * (2 * n) + [(None, None)] * outputs
    first = np.concatenate([np.maximum(near, 0).ravel(), np.maximum(-near, 0).ravel(), intercept])
    settings = {"maxiter": 3_000, "maxfun": 6_000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
    found = scipy.optimize.minimize(at, first, jac=True, method="L-BFGS-B", bounds=bounds, options=settings)
    return float(found.fun)


def fit(learner: NewtonSolver, problem: Problem, shard: Shard, configs: list[dict[str, float]], rows: int = 256):
    state = trained(learner, problem, configs, shard, rows, 400)
    assert state.done.all()
    return state


CONFIGS = [{"l2": 1.0}, {"l1": 1.0, "l2": 0.0}, {"l1": 0.3, "l2": 0.1}]


#: All shapes of one loss, and the hardest of the others.
PAIRS = [
    *((shape, "logistic") for shape in SHAPES),
    *product(("twins", "scales"), ("softmax", "poisson", "squared_hinge")),
]


@pytest.mark.examples(8)
@pytest.mark.parametrize(("shape", "loss"), PAIRS)
def test_objectives_are_the_least(shape: str, loss: str) -> None:
    shard = made(shape, loss)
    problem = problem_of(loss, shard)
    assert glm.n_parameters(problem, CONFIGS) > glm.DENSE_PARAMETERS
    state = fit(LEARNERS[loss], problem, shard, [{**config, "tolerance": 1e-10} for config in CONFIGS])
    for index, config in enumerate(CONFIGS):
        weights, intercept = state.tensors["weights"][index], state.tensors["intercept"][index]
        found = objective(loss, shard, weights, intercept, config)
        assert found == pytest.approx(state.tensors["loss"][index], rel=1e-9)
        assert found <= least(loss, shard, config, weights, intercept) * (1 + (1e-5 if config.get("l1") else 1e-6))


def test_l2_reaches_the_objective_of_newton_cg() -> None:
    shard = made("popular")
    model = sk.LogisticRegression(C=1.0, solver="newton-cg", tol=1e-10, max_iter=500)
    model.fit(shard.x, shard.y, sample_weight=shard.weight)
    state = fit(LEARNERS["logistic"], problem_of("logistic", shard), shard, CONFIGS[:1])
    expected = objective("logistic", shard, model.coef_, model.intercept_, CONFIGS[0])
    assert state.tensors["loss"][0] <= expected * (1 + 1e-6)


@pytest.mark.parametrize("loss", ["logistic", "poisson", "squared_hinge"])
@pytest.mark.parametrize("l2", [1.0, 1e-2, 1e-5])
def test_what_has_converged_is_near_the_least_where_columns_say_nearly_the_same(
    monkeypatch: pytest.MonkeyPatch, loss: str, l2: float
) -> None:
    """Pairs of columns a ten thousandth apart, of whose difference the labels are: the way there is long and flat."""
    random = np.random.default_rng(3)
    x = random.normal(size=(1500, 270))
    x[:, 1::2] = x[:, ::2] + 1e-4 * random.normal(size=(1500, 135))
    score = x[:, 1::2] @ random.normal(size=135) / 4 + (x[:, 1] - x[:, 0]) * 3e4
    y = random.poisson(np.exp(np.clip(score, -3, 3))) if loss == "poisson" else score + random.logistic(size=1500) > 0
    shard, configs = Shard(x, y.astype(float), np.ones(1500)), [{"l2": l2}]
    problem = problem_of(loss, shard)
    assert glm.n_parameters(problem, configs) > glm.DENSE_PARAMETERS
    found = trained(LEARNERS[loss], problem, configs, shard, 256, 400)
    monkeypatch.setattr(glm, "DENSE_PARAMETERS", 512)
    expected = fit(LEARNERS[loss], problem, shard, configs)
    assert found.done[0] or l2 == 1e-5
    if found.done[0]:
        assert found.tensors["loss"][0] == pytest.approx(expected.tensors["loss"][0], rel=1e-3)


def test_a_class_that_no_row_has_is_predicted_nowhere() -> None:
    shard = made("popular", "softmax")
    rows = shard.y < 2
    shard = Shard(shard.x[rows], shard.y[rows], shard.weight[rows])
    problem = problem_of("softmax", shard)
    state = fit(LEARNERS["softmax"], problem, shard, CONFIGS[:1])
    two = fit(LEARNERS["logistic"], problem_of("logistic", shard), shard, [{"l2": 0.5}])  # ½·w² of each of two classes
    assert LEARNERS["softmax"].scores(problem, CONFIGS[:1], state, shard.x)[..., 2].max() < 1e-3
    assert state.tensors["loss"][0] == pytest.approx(two.tensors["loss"][0], rel=1e-4)


@pytest.mark.parametrize("loss", [*LEARNERS])
def test_a_model_has_the_bits_that_it_has_alone(loss: str) -> None:
    """Beside others, some of which are finished sooner."""
    shard = made("popular", loss)
    problem = problem_of(loss, shard)
    configs = [*CONFIGS, {"l2": 1e4}, *({"l2": float(l2)} for l2 in range(2, 9))]
    together = fit(LEARNERS[loss], problem, shard, configs)
    for index in (0, 1, 5):
        alone = fit(LEARNERS[loss], problem, shard, [configs[index]])
        for name in ("weights", "intercept", "loss"):
            np.testing.assert_array_equal(together.tensors[name][index], alone.tensors[name][0])


def test_a_pass_hears_that_it_is_to_stop() -> None:
    shard = made("popular")
    problem, learner = problem_of("logistic", shard), LEARNERS["logistic"]
    state = learner.init(problem, CONFIGS)
    state = learner.step(problem, CONFIGS, state, learner.accumulate(problem, CONFIGS, state, shard))
    many = Shard(scipy.sparse.vstack([shard.x] * 40, format="csr"), np.tile(shard.y, 40), np.tile(shard.weight, 40))

    def stop() -> None:
        raise Interrupted

    with pytest.raises(Interrupted), calling_back(stop):
        learner.accumulate(problem, CONFIGS, state, many)
