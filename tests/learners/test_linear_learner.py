"""``linear_learner``: packs of models with different losses converge to the minima that other libraries find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.special
from sklearn.linear_model import LogisticRegression, PoissonRegressor, QuantileRegressor, Ridge
from sklearn.svm import SVC, LinearSVC

from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear.stochastic_gradient.many_losses import ManyLossesSolver
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label

ROWS, COLUMNS, EPOCHS = 2000, 5, 150
Weights = tuple[np.ndarray, np.ndarray]


def learner() -> ManyLossesSolver:
    found = registry.learner("linear_learner")
    assert isinstance(found, ManyLossesSolver)
    return found


def config(**values: Any) -> Config:
    return {each.name: each.default for each in learner().declaration.hyperparameters} | values


def rows(kind: str) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, COLUMNS)) * [1, 0.5, 2, 1, 1]
    scores = x @ [0.7, -1.0, 0.3, 0.0, 0.5] + 0.4
    labels = {
        "numbers": lambda: 30 + 4 * scores + 2 * random.standard_t(3, ROWS),
        "counts": lambda: random.poisson(np.exp(scores / 2)).astype(float),
        "classes": lambda: (random.random(ROWS) < scipy.special.expit(scores)) * 1.0,
        "three classes": lambda: (
            (np.outer(scores, [1, -1, 0.2]) + random.gumbel(size=(ROWS, 3))).argmax(axis=1).astype(float)
        ),
    }
    return x, labels[kind]()


def trained(configs: list[Config], label: Label, x: np.ndarray, y: np.ndarray) -> list[Weights]:
    """Return the models of one pack."""
    solver = learner()
    problem = Problem(label, COLUMNS, {TWO_CLASSES: 2, SEVERAL_CLASSES: 3}.get(label, 0), seed=1, epochs=EPOCHS)
    shard, state = Shard(x, y, np.ones(len(y))), solver.init(problem, configs)
    assert len({solver.pack_key(each) for each in configs}) == 1
    for epoch in range(EPOCHS):
        state = solver.train(problem, configs, state, shard, epoch)
    models = (solver.finalize(problem, configs, state, place).tensors for place in range(len(configs)))
    return [(model["weights"], model["intercept"]) for model in models]


def objective(one: Config, x: np.ndarray, y: np.ndarray, weights: np.ndarray, intercept: np.ndarray) -> float:
    """Return the objective of weights (d,) and an intercept by the formulas of the docs."""
    scores = x @ weights + intercept
    error, margin = y - scores, (2 * y - 1) * scores
    alpha, delta = float(one["alpha"]), float(one["delta"])  # type: ignore[arg-type]
    far = delta * (np.abs(error) - delta / 2)
    losses: dict[Any, Callable[[], np.ndarray]] = {
        "squared": lambda: error**2 / 2,
        "absolute": lambda: np.abs(error),
        "quantile": lambda: np.maximum(alpha * error, (alpha - 1) * error),
        "huber": lambda: np.where(np.abs(error) <= delta, error**2 / 2, far),
        "poisson": lambda: np.exp(scores) - y * scores,
        "logistic": lambda: np.logaddexp(0, -margin),
        "hinge": lambda: np.maximum(0, 1 - margin),
        "squared_hinge": lambda: np.maximum(0, 1 - margin) ** 2,
    }
    penalty = one["l1"] * np.abs(weights).sum() + one["l2"] * (weights**2).sum() / 2  # type: ignore[operator]
    return float(losses[one["loss"]]().sum() + penalty)


def huber(x: np.ndarray, y: np.ndarray, delta: float, l2: float) -> Weights:
    """Return the minimum by scipy: HuberRegressor estimates a scale besides."""

    def value(p: np.ndarray) -> float:
        return objective(config(loss="huber", delta=delta, l2=l2), x, y, p[:-1], p[-1])

    found = scipy.optimize.minimize(
        value, np.append(np.zeros(COLUMNS), y.mean()), method="L-BFGS-B", options={"ftol": 1e-14}
    )
    return found.x[:-1], found.x[-1]


def of(model: Any) -> Weights:
    return np.ravel(model.coef_), np.ravel(model.intercept_)[0]


#: By kind of labels: configs, and the reference that minimises the same. Not the hinge's, whose dual is solved only roughly.
NUMBERS: list[tuple[dict[str, Any], Callable[[np.ndarray, np.ndarray], Weights]]] = [
    ({"loss": "squared", "l2": 20.0}, lambda x, y: of(Ridge(alpha=20.0).fit(x, y))),
    ({"loss": "absolute", "l2": 0.0}, lambda x, y: of(QuantileRegressor(quantile=0.5, alpha=0).fit(x, y))),
    (
        {"loss": "quantile", "alpha": 0.9, "l2": 0.0},
        lambda x, y: of(QuantileRegressor(quantile=0.9, alpha=0).fit(x, y)),
    ),
    (
        {"loss": "quantile", "alpha": 0.2, "l2": 0.0},
        lambda x, y: of(QuantileRegressor(quantile=0.2, alpha=0).fit(x, y)),
    ),
    (
        {"loss": "absolute", "l1": 40.0, "l2": 0.0, "schedule": "inverse_sqrt"},
        # Its pinball loss of 1/2 is half the absolute error.
        lambda x, y: of(QuantileRegressor(quantile=0.5, alpha=20.0 / ROWS).fit(x, y)),
    ),
    ({"loss": "huber", "delta": 1.0, "l2": 1.0}, lambda x, y: huber(x, y, 1.0, 1.0)),
    ({"loss": "huber", "delta": 4.0, "l2": 1.0}, lambda x, y: huber(x, y, 4.0, 1.0)),
]
COUNTS = [({"loss": "poisson", "l2": 5.0}, lambda x, y: of(PoissonRegressor(alpha=5.0 / ROWS, tol=1e-9).fit(x, y)))]
CLASSES = [
    ({"loss": "logistic", "l2": 2.0}, lambda x, y: of(LogisticRegression(C=0.5, tol=1e-8).fit(x, y))),
    ({"loss": "hinge", "l2": 2.0}, lambda x, y: of(SVC(kernel="linear", C=0.5, tol=1e-6).fit(x, y))),
    (
        {"loss": "squared_hinge", "l2": 2.0},
        lambda x, y: of(LinearSVC(C=0.5, intercept_scaling=1e3, tol=1e-8, max_iter=100_000).fit(x, y)),
    ),
]


@pytest.mark.parametrize(
    ("kind", "label", "cases"),
    [("numbers", NUMBER, NUMBERS), ("counts", NUMBER, COUNTS), ("classes", TWO_CLASSES, CLASSES)],
)
def test_a_pack_of_losses_converges_to_the_minima_of_scikit_learn(kind: str, label: Label, cases: Any) -> None:
    x, y = rows(kind)
    configs = [config(**values) for values, _ in cases]
    for one, (weights, intercept), (_, reference) in zip(configs, trained(configs, label, x, y), cases, strict=True):
        theirs = reference(x, y)
        least = objective(one, x, y, *theirs)
        assert objective(one, x, y, weights[0], intercept[0]) < least + 3e-4 * abs(least), one
        near = 0.02 * np.abs(y - y.mean()).mean() if label == NUMBER else 0.02
        np.testing.assert_allclose(weights[0], theirs[0], atol=near, err_msg=str(one))
        np.testing.assert_allclose(intercept[0], theirs[1], atol=near, err_msg=str(one))


def test_more_classes_are_a_softmax_or_one_against_the_rest() -> None:
    x, y = rows("three classes")
    configs = [config(loss="logistic", l2=2.0), config(loss="hinge", l2=2.0)]
    (soft, soft_intercept), (hinge, intercept) = trained(configs, SEVERAL_CLASSES, x, y)
    theirs = LogisticRegression(C=0.5, tol=1e-8).fit(x, y)
    both = scipy.special.softmax(x @ soft.T + soft_intercept, axis=1)
    np.testing.assert_allclose(both, theirs.predict_proba(x), atol=0.01)
    for number in range(3):
        (alone,) = trained([config(loss="hinge", l2=2.0)], TWO_CLASSES, x, (y == number) * 1.0)
        np.testing.assert_array_equal(hinge[number], alone[0][0])
        assert intercept[number] == alone[1][0]


def test_a_config_has_the_same_bits_alone_and_in_any_pack() -> None:
    x, y = rows("numbers")
    configs = [config(**values) for values, _ in NUMBERS] + [config(average=False), config(loss="absolute", l1=3.0)]
    together = trained(configs, NUMBER, x, y)
    for place in (0, 2, 4, 5, 8):
        for pack in ([place], [place, 1], [3, place, 4]):
            found = trained([configs[each] for each in pack], NUMBER, x, y)[pack.index(place)]
            np.testing.assert_array_equal(found[0], together[place][0])
            np.testing.assert_array_equal(found[1], together[place][1])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_steps_follow_the_scale_of_the_label(scale: float) -> None:
    x, y = rows("numbers")
    configs = [
        config(loss="absolute", l2=0.0),
        config(loss="quantile", alpha=0.9, l2=0.0),
        config(loss="huber", delta=scale, l2=0.0),
    ]
    for one, (weights, intercept), (plain, plain_intercept) in zip(
        configs,
        trained(configs, NUMBER, x, y * scale),
        trained([{**c, "delta": 1.0} for c in configs], NUMBER, x, y),
        strict=True,
    ):
        del one
        np.testing.assert_allclose(weights[0] / scale, plain[0], atol=0.03)
        np.testing.assert_allclose(intercept[0] / scale, plain_intercept[0], atol=0.03)
