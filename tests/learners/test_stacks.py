"""Stacks of groups solved in one call: against scikit-learn and the epoch-wise path, and what a stack promises."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import scipy.special
import sklearn.linear_model as sk
from helpers.measuring import METRICS, every_metric
from helpers.moments import stack_moments
from helpers.stacks import stack_of

from grouplearn.data.shard import Shard, Stack
from grouplearn.kernels import metrics as kernel
from grouplearn.learners import registry
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import MomentsLearner, StackLearner
from grouplearn.learners.linear import solved as of_solved
from grouplearn.learners.linear.least_squares import moments
from grouplearn.learners.linear.solved import SolvedLinear, measure
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label

LOGISTIC, POISSON, LINEAR = (
    registry.learner("logistic_regression"),
    registry.learner("poisson_regression"),
    registry.learner("linear_regression"),
)
BINARY, MULTICLASS = Problem(TWO_CLASSES, 6, 2, epochs=100), Problem(SEVERAL_CLASSES, 6, 3, epochs=100)
RIDGES = [{"l2": value} for value in (1e-3, 0.1, 10.0, 1000.0)]


def features(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    x = rng.normal(size=(n, 6)) @ (np.eye(6) + 0.3 * rng.normal(size=(6, 6)))
    match kind:
        case "collinear":
            x[:, 5] = x[:, 0] - 2 * x[:, 1]
        case "constant":
            x[:, 3] = 1e9
        case "scaled":
            x = x * np.geomspace(1e-3, 1e2, 6) + [1000, 0, 0, 0, 0, 5]
        case "far":
            x = x * np.geomspace(1e-3, 1e6, 6)
    return x


def group(problem: Problem, seed: int, n: int = 80, kind: str = "plain", signal: float = 1.5) -> Shard:
    rng = np.random.default_rng(seed)
    x = features(kind, n, rng)
    spread = np.where(x.std(axis=0) > 1e-6, x.std(axis=0), 1.0)
    score = signal * (x - x.mean(axis=0)) / spread @ rng.normal(size=(6, problem.n_outputs)) / np.sqrt(6)
    if problem.label == TWO_CLASSES:
        y = (rng.random(n) < scipy.special.expit(score[:, 0])).astype(float)
    elif problem.label == SEVERAL_CLASSES:
        y = (score + rng.gumbel(size=score.shape)).argmax(axis=1).astype(float)
    else:
        y = rng.poisson(np.exp(score[:, 0] + 0.5)).astype(float)
    y[: max(2, problem.n_classes)] = np.arange(max(2, problem.n_classes))
    return Shard(x, y, rng.uniform(0.3, 2, n))


def solved(learner: StackLearner, problem: Problem, configs: Sequence, shards: Sequence[Shard]) -> SolvedLinear:
    found = learner.solve(problem, configs, stack_of(shards), lambda _: None, lambda: False)
    assert isinstance(found, SolvedLinear)
    return found


def objective(label: Label, shard: Shard, config: dict, weights: np.ndarray, intercept: np.ndarray) -> float:
    score = shard.x @ np.atleast_2d(weights).T + intercept
    if label == TWO_CLASSES:
        losses = np.logaddexp(0, score[:, 0]) - shard.y * score[:, 0]
    elif label == SEVERAL_CLASSES:
        losses = scipy.special.logsumexp(score, axis=1) - score[np.arange(len(score)), shard.y.astype(int)]
    else:
        constant = scipy.special.xlogy(shard.y, shard.y) - shard.y
        losses = np.exp(score[:, 0]) - shard.y * score[:, 0] + constant
    penalty = config.get("l1", 0) * np.abs(weights).sum() + 0.5 * config.get("l2", 1) * np.square(weights).sum()
    return float(shard.weight @ losses + penalty)


def reference(label: Label, shard: Shard, config: dict) -> float:
    """The least objective, by scikit-learn's Newton solvers on centred columns, which the intercept makes up for."""
    fit_intercept = config.get("fit_intercept", True)
    if fit_intercept:
        shard = Shard(shard.x - shard.x.mean(axis=0), shard.y, shard.weight)
    if label == NUMBER:
        alpha = config["l2"] / shard.weight.sum()
        model = sk.PoissonRegressor(alpha=alpha, tol=1e-12, max_iter=1000, solver="newton-cholesky")
    else:
        solver = "newton-cholesky" if fit_intercept else "newton-cg"
        model = sk.LogisticRegression(C=1 / config["l2"], tol=1e-10, max_iter=1000, solver=solver)
    model.set_params(fit_intercept=fit_intercept).fit(shard.x, shard.y, sample_weight=shard.weight)
    return objective(label, shard, config, model.coef_, model.intercept_)


PROBLEMS = {
    "binary": (LOGISTIC, BINARY),
    "multinomial": (LOGISTIC, MULTICLASS),
    "poisson": (POISSON, Problem(NUMBER, 6, epochs=100)),
}


def test_the_learners_solve_stacks():
    assert all(isinstance(learner, StackLearner) for learner in (LOGISTIC, POISSON, LINEAR))
    assert isinstance(LINEAR, MomentsLearner)
    assert not isinstance(LOGISTIC, MomentsLearner)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", ["plain", "collinear", "constant", "scaled"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_l2_reaches_scikit_learns_objective_in_groups_of_any_length(name, kind, fit_intercept):
    if not fit_intercept and kind in ("constant", "scaled"):
        pytest.skip("without an intercept the scores are huge: scikit-learn does not converge")
    learner, problem = PROBLEMS[name]
    shards = [group(problem, seed, n, kind) for seed, n in enumerate((40, 80, 150))]
    configs = [{**config, "fit_intercept": fit_intercept} for config in RIDGES]
    result = solved(learner, problem, configs, shards)
    for number, shard in enumerate(shards):
        for place, config in enumerate(configs):
            model = result.weights[number, place], result.intercept[number, place]
            reached = objective(problem.label, shard, config, *model)
            np.testing.assert_allclose(result.loss[number, place], reached, rtol=1e-9)
            assert reached <= (1 + 1e-6) * reference(problem.label, shard, config)
    if kind == "constant":
        assert (result.weights[..., 3] == 0).all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_columns_of_very_different_scales_reach_the_optimum(name):
    """From 0.001 to a million: one rotation cannot hold them, so these groups take the other way."""
    learner, problem = PROBLEMS[name]
    shards = [group(problem, 1, kind="far"), group(problem, 2)]
    configs = [{"l2": 1e-4}, {"l2": 1.0}]
    result = solved(learner, problem, configs, shards)
    exact = solved(learner, problem, [{**config, "tolerance": 1e-13} for config in configs], shards[:1])
    for place, config in enumerate(configs):
        reached = objective(problem.label, shards[0], config, result.weights[0, place], result.intercept[0, place])
        assert reached <= (1 + 1e-6) * exact.loss[0, place]
        near = solved(learner, problem, configs, shards[1:]).loss[0, place]
        np.testing.assert_allclose(result.loss[1, place], near, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Line search of Newton solver")  # scikit-learn may stop early: we must be no higher
@pytest.mark.parametrize("name", ["binary", "multinomial"])
def test_separable_classes_with_a_tiny_penalty_reach_the_optimum(name):
    learner, problem = PROBLEMS[name]
    shards = [group(problem, seed, 40, signal=60) for seed in range(4)]
    configs = [{"l2": value} for value in (1e-6, 1e-4, 1e-2)]
    result = solved(learner, problem, configs, shards)
    for number, shard in enumerate(shards):
        exact = solved(
            learner, replace(problem, epochs=300), [{**each, "tolerance": 1e-13} for each in configs], [shard]
        )
        for place, config in enumerate(configs):
            assert result.loss[number, place] <= (1 + 1e-5) * reference(problem.label, shard, config)
            assert result.loss[number, place] <= (1 + 1e-5) * exact.loss[0, place]


def test_without_a_penalty_the_optimum_is_reached_or_approached():
    """Collinear columns without a penalty have many optima; separable classes have none, and the objective goes to zero."""
    many = [group(BINARY, seed, 120, kind="collinear") for seed in range(3)]
    result = solved(LOGISTIC, BINARY, [{"l2": 0.0}, {"l2": 0.0, "fit_intercept": False}], many)
    for number, shard in enumerate(many):
        near = Shard(shard.x[:, :5], shard.y, shard.weight)
        for place, fit_intercept in enumerate((True, False)):
            config = {"l2": 1e-9, "fit_intercept": fit_intercept}
            assert result.loss[number, place] <= (1 + 1e-6) * reference(TWO_CLASSES, near, config)
    apart = Shard(np.linspace(-1, 1, 40)[:, None] * np.ones(6), (np.arange(40) > 19).astype(float), np.ones(40))
    result = solved(LOGISTIC, BINARY, [{"l2": 0.0}], [apart])
    assert result.loss[0, 0] < 1e-6
    assert np.isfinite(result.weights).all()


def test_one_row_per_class_is_enough():
    shard = Shard(np.array([[1.0, 2, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0]]), np.array([0.0, 1.0]), np.ones(2))
    result = solved(LOGISTIC, BINARY, RIDGES, [shard, group(BINARY, 1)])
    for place, config in enumerate(RIDGES):
        assert result.loss[0, place] <= (1 + 1e-6) * reference(TWO_CLASSES, shard, config)


def test_a_long_group_goes_block_by_block_and_a_wide_one_by_gradients_alone():
    rng = np.random.default_rng(3)
    long = group(BINARY, 3, 30_000)
    result = solved(LOGISTIC, BINARY, RIDGES, [long])
    x = rng.normal(size=(90, 200))
    wide = Shard(x, (x[:, 0] + rng.normal(size=90) > 0).astype(float), np.ones(90))
    broad = solved(LOGISTIC, Problem(TWO_CLASSES, 200, 2, epochs=200), RIDGES, [wide])
    for place, config in enumerate(RIDGES):
        assert result.loss[0, place] <= (1 + 1e-6) * reference(TWO_CLASSES, long, config)
        assert broad.loss[0, place] <= (1 + 1e-5) * reference(TWO_CLASSES, wide, config)


@pytest.mark.parametrize("name", PROBLEMS)
def test_an_elastic_net_in_a_stack_is_the_one_of_the_group_alone(name):
    learner, problem = PROBLEMS[name]
    configs = [{"l1": 1.0, "l2": 0.5}, {"l2": 1.0}, {"l1": 20.0, "l2": 0.0}]
    shards = [group(problem, seed, 60) for seed in range(3)]
    result = solved(learner, problem, configs, shards)
    for number, shard in enumerate(shards):
        for place, config in enumerate(configs):
            alone = solved(learner, problem, [{**config, "tolerance": 1e-12}], [shard])
            assert result.loss[number, place] <= (1 + 1e-6) * alone.loss[0, 0]
            model = result.weights[number, place], result.intercept[number, place]
            np.testing.assert_allclose(
                result.loss[number, place], objective(problem.label, shard, config, *model), rtol=1e-9
            )
    assert (result.weights[:, 2] == 0).any()


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_stack_is_deterministic_and_its_groups_do_not_know_of_each_other(name):
    learner, problem = PROBLEMS[name]
    shards = [group(problem, seed, 30 + 20 * seed) for seed in range(5)]
    first, second = (solved(learner, problem, RIDGES, shards) for _ in range(2))
    for field in ("weights", "intercept", "loss", "epochs", "curve"):
        assert getattr(first, field).tobytes() == getattr(second, field).tobytes()
    for number, shard in enumerate(shards):
        alone = solved(learner, problem, RIDGES, [shard])
        np.testing.assert_allclose(first.loss[number], alone.loss[0], rtol=1e-6)
        scale = np.abs(alone.weights[0]).max()
        np.testing.assert_allclose(first.weights[number], alone.weights[0], rtol=1e-2, atol=1e-3 * scale)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_group_that_overflows_has_no_models_and_disturbs_no_other(name):
    learner, problem = PROBLEMS[name]
    good, bad = group(problem, 1), group(problem, 2)
    bad.x[:, 1] *= 1e200
    result = solved(learner, problem, RIDGES, [good, bad, good])
    assert np.isnan(result.loss[1]).all()
    alone = solved(learner, problem, RIDGES, [good])
    np.testing.assert_allclose(result.loss[[0, 2]], alone.loss[[0, 0]], rtol=1e-6)
    assert np.isfinite(result.weights[[0, 2]]).all()


def test_epochs_end_training_and_curves_fall_until_each_model_is_finished():
    shards = [group(BINARY, seed, 60) for seed in range(3)]
    short = solved(LOGISTIC, replace(BINARY, epochs=3), RIDGES, shards)
    assert short.epochs.max() == 3
    result = solved(LOGISTIC, BINARY, RIDGES, shards)
    assert result.curve.shape == (result.epochs.max(), 3, len(RIDGES))
    for number in range(3):
        for place in range(len(RIDGES)):
            curve = result.curve[:, number, place]
            count = result.epochs[number, place]
            assert np.isfinite(curve[:count]).all()
            assert np.isnan(curve[count:]).all()
            assert (np.diff(curve[:count]) <= 1e-5 * curve[0]).all()
            np.testing.assert_allclose(curve[count - 1], result.loss[number, place], rtol=1e-5)


def test_progress_is_reported_and_training_can_be_stopped():
    seen = []
    stack = stack_of([group(BINARY, seed) for seed in range(3)])
    result = LOGISTIC.solve(BINARY, RIDGES, stack, seen.append, lambda: False)
    assert sum(seen) == result.epochs.sum()
    with pytest.raises(Interrupted):
        LOGISTIC.solve(BINARY, RIDGES, stack, seen.append, lambda: True)


class Folds(NamedTuple):
    """Rows (folds of all groups, n) with weights of 0 where a fold has fewer."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray


def rows_of_folds(n_groups: int, n_folds: int, n: int = 12) -> Folds:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(n_groups * n_folds, n, 6)) * [1, 10, 1, 1, 100, 1] + 5
    x[: n_folds - 1, :, 2] = 7.0  # in the first group a column varies in its last fold alone
    y = x @ rng.normal(size=6) + rng.normal(size=x.shape[:2])
    weight = rng.uniform(0.5, 2, size=y.shape)
    weight[:, -2:] = 0.0
    weight[-1] = 0.0  # a fold without rows
    return Folds(x, y, weight)


def test_ridge_of_every_fold_comes_from_the_moments_of_one_pass():
    stack, n_groups, n_folds = rows_of_folds(3, 4), 3, 4
    sums = stack_moments(stack.x, stack.y[:, :, None], np.maximum(stack.weight, 1e-300))
    sums = {name: value.reshape(n_groups, n_folds, *value.shape[1:]) for name, value in sums.items()}
    sums["total"] = stack.weight.sum(axis=1).reshape(n_groups, n_folds)
    configs = [{"l2": 0.1}, {"l2": 30.0}, {"l2": 1.0, "fit_intercept": False}, {"l1": 5.0}]
    result = LINEAR.solve_moments(Problem(NUMBER, 6), configs, moments.leave_one_out(sums))
    assert result.weights.shape == (n_groups, n_folds + 1, len(configs), 1, 6)
    by_fold = [each.reshape(n_groups, n_folds, -1, *each.shape[2:]) for each in (stack.x, stack.y, stack.weight)]
    for number in range(n_groups):
        for fold in range(n_folds + 1):
            kept = [other for other in range(n_folds) if other != fold]
            x, y, weight = (each[number, kept].reshape(-1, *each.shape[3:]) for each in by_fold)
            for place, config in enumerate(configs):
                weights, intercept = result.weights[number, fold, place, 0], result.intercept[number, fold, place, 0]
                if "l1" in config:
                    alpha = config["l1"] / weight.sum()
                    model = sk.Lasso(alpha=alpha, tol=1e-12, max_iter=100_000).fit(x, y, sample_weight=weight)
                else:
                    fitted = sk.Ridge(alpha=config["l2"], fit_intercept=config.get("fit_intercept", True))
                    model = fitted.fit(x, y, sample_weight=weight)
                tolerance = 1e-6 if "l1" in config else 1e-8
                np.testing.assert_allclose(weights, model.coef_, rtol=tolerance, atol=tolerance)
                np.testing.assert_allclose(intercept, model.intercept_, rtol=tolerance, atol=100 * tolerance)


@pytest.mark.parametrize("fold", range(4))
def test_rest_of_a_fold_keeps_its_digits(fold):
    rng = np.random.default_rng(4)
    x, y, weight = rng.normal(size=(4, 9, 3)), rng.normal(size=(4, 9, 1)), rng.uniform(1, 2, (4, 9))
    x[2, 4, 1] = 999_999_999.0
    folds = stack_moments(x, y, weight)
    rest = moments.leave_one_out({name: value[None] for name, value in folds.items()})
    kept = [other for other in range(4) if other != fold]
    alone = stack_moments(*(each[kept].reshape(1, 27, *each.shape[2:]) for each in (x, y, weight)))
    for name, value in alone.items():
        np.testing.assert_allclose(rest[name][:, fold], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("config", [{}, {"l2": 0.1}, {"l2": 50.0}, {"l1": 5.0}, {"l1": 2.0, "l2": 1.0}], ids=str)
def test_least_squares_of_a_stack_is_that_of_scikit_learn(config):
    rng = np.random.default_rng(6)
    shards = []
    for n in (20, 50, 90):
        x = features("scaled", n, rng)
        shards.append(Shard(x, x @ rng.normal(size=6) + rng.normal(size=n), rng.uniform(0.3, 2, n)))
    result = solved(LINEAR, Problem(NUMBER, 6), [{"l2": 3.0}, config], shards)
    l1, l2 = config.get("l1", 0), config.get("l2", 0)
    for number, shard in enumerate(shards):
        total = shard.weight.sum()
        if l1:
            model = sk.ElasticNet(alpha=(l1 + l2) / total, l1_ratio=l1 / (l1 + l2), tol=1e-13, max_iter=1_000_000)
        else:
            model = sk.Ridge(alpha=l2, solver="svd") if l2 else sk.LinearRegression()
        model.fit(shard.x, shard.y, sample_weight=shard.weight)
        ours = shard.x @ result.weights[number, 1, 0] + result.intercept[number, 1]
        np.testing.assert_allclose(ours, model.predict(shard.x), rtol=1e-6, atol=1e-6)


def test_a_group_of_a_least_squares_stack_that_overflows_is_alone_in_it():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(3, 20, 6))
    x[1, :, 2] *= 1e200
    stack = stack_of([Shard(each, rng.normal(size=20), np.ones(20)) for each in x])
    result = LINEAR.solve(Problem(NUMBER, 6), [{"l2": 1.0}, {"l1": 1.0}], stack, lambda _: None, lambda: False)
    assert np.isnan(result.loss[1]).all()
    assert np.isfinite(result.weights[[0, 2]]).all()


@pytest.mark.parametrize("parts", [None, 2])
@pytest.mark.parametrize("label", [NUMBER, TWO_CLASSES, SEVERAL_CLASSES], ids=str)
def test_metrics_that_the_kernel_has_not_are_those_of_each_group(
    label: Label, parts: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, learner = (
        np.random.default_rng(1),
        registry.learner("linear_regression") if label == NUMBER else registry.learner("logistic_regression"),
    )
    problem = Problem(label, 2, n_classes=0 if label == NUMBER else 2 if label == TWO_CLASSES else 3)
    y = random.normal(size=60) if label == NUMBER else random.integers(0, problem.n_classes, 60).astype(float)
    stack = Stack(
        random.normal(size=(60, 2)), y, random.uniform(size=60) * (np.arange(60) % 7 > 0), np.array([0, 25, 60])
    )
    sets = (2,) if parts is None else (2, parts)
    weights, intercept = (random.normal(size=(*sets, 3, problem.n_outputs, *more)) for more in ((2,), ()))
    nothing = np.zeros((2, 3))
    models = SolvedLinear(weights, intercept, nothing, nothing.astype(int), nothing[None], nothing > 0)
    part = None if parts is None else (np.arange(60, dtype=np.int16) % parts, parts)
    names = [name for name in every_metric(label) if not METRICS[name].row_loss]
    by_kernel = measure(learner, problem, stack, models, names, part)
    monkeypatch.setattr(of_solved, "kernel", SimpleNamespace(**{**vars(kernel), "NAMES": ()}))
    one_by_one = measure(learner, problem, stack, models, names, part)
    assert one_by_one.keys() == by_kernel.keys() == set(names)
    for name in names:
        np.testing.assert_allclose(one_by_one[name], by_kernel[name], rtol=1e-9, err_msg=name)
