"""Linear models by stochastic gradient descent: the objective of their learners, states that split, resume and are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
import scipy.special
from helpers.thorough import THOROUGH
from sklearn.linear_model import SGDClassifier, SGDRegressor

import grouplearn
from grouplearn.data.shard import Shard
from grouplearn.kernels.networks import visiting_order
from grouplearn.learners import registry
from grouplearn.learners.contract import averaging
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import Piece, Visit
from grouplearn.learners.linear.learners import LINEAR_REGRESSION, LINEAR_SVM, LOGISTIC_REGRESSION, OF_ONE_LOSS
from grouplearn.learners.linear.stochastic_gradient import state as sgd_state
from grouplearn.learners.linear.stochastic_gradient.hyperparameters import averaged
from grouplearn.learners.linear.stochastic_gradient.solver import StochasticGradientSolver
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.state import State

(POISSON_REGRESSION,) = (each for each in OF_ONE_LOSS if each.name == "poisson_regression")
LOGISTIC, LINEAR, POISSON, SVM = map(
    StochasticGradientSolver, (LOGISTIC_REGRESSION, LINEAR_REGRESSION, POISSON_REGRESSION, LINEAR_SVM)
)
EXACT = registry.LEARNERS
CASES: dict[str, tuple[StochasticGradientSolver, Label, dict[str, Any]]] = {
    "logistic": (LOGISTIC, TWO_CLASSES, {}),
    "softmax": (LOGISTIC, SEVERAL_CLASSES, {}),
    "squares": (LINEAR, NUMBER, {}),
    "poisson": (POISSON, NUMBER, {}),
    "hinge": (SVM, TWO_CLASSES, {"loss": "hinge"}),
    "squared hinge": (SVM, TWO_CLASSES, {}),
    "squared hinge of three": (SVM, SEVERAL_CLASSES, {}),
}


def config(learner: StochasticGradientSolver, **values: Any) -> Config:
    return {parameter.name: parameter.default for parameter in learner.declaration.hyperparameters} | values


def sparse_rows(random: np.random.Generator, n: int, columns: int, items: int = 10) -> scipy.sparse.csr_matrix:
    """Ten items of a row, each one of a tenth of the columns, few of which are frequent."""
    width = columns // items
    codes = [random.zipf(1.3, n) % width + item * width for item in range(items)]
    return scipy.sparse.csr_matrix(
        (np.ones(n * items), np.stack(codes, axis=1).ravel(), np.arange(n + 1) * items), shape=(n, columns)
    )


def data(
    learner: StochasticGradientSolver, label: Label, n: int = 2000, columns: int = 8, sparse: bool = False
) -> tuple[Problem, Shard]:
    random = np.random.default_rng(7)
    x = sparse_rows(random, n, columns) if sparse else random.normal(size=(n, columns))
    scores = x @ (random.normal(size=(columns, 3)) / (2 if sparse else np.sqrt(columns)))
    y = {
        NUMBER: 3 + scores[:, 0] + 0.5 * random.normal(size=n),
        TWO_CLASSES: random.random(n) < scipy.special.expit(2 * scores[:, 0]),
        SEVERAL_CLASSES: (2 * scores + random.gumbel(size=scores.shape)).argmax(axis=1),
    }[label]
    y = random.poisson(np.exp(scores[:, 0] / 2)) if learner.declaration.log_link else y
    n_classes = {TWO_CLASSES: 2, SEVERAL_CLASSES: 3}.get(label, 0)
    problem = Problem(label, columns, n_classes, seed=3)
    return problem, Shard(x, np.asarray(y, float), random.uniform(0.3, 2, n))


def train(
    learner: StochasticGradientSolver, problem: Problem, configs: Sequence[Config], shard: Shard, epochs: int = 3
) -> State:
    state = learner.init(problem, configs)
    for epoch in range(epochs):
        state = learner.train(problem, configs, state, shard, epoch)
    return state


def losses_of(
    learner: StochasticGradientSolver, problem: Problem, one: Config, scores: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """The loss of each row by its scores (n, k)."""
    label = y[:, None] if scores.shape[1] == 1 else (y[:, None] == np.arange(scores.shape[1])) * 1.0
    margin = np.maximum(0, 1 - (2 * label - 1) * scores)
    found = {
        "logistic": lambda: np.logaddexp(0, scores) - label * scores,
        "softmax": lambda: (
            scipy.special.logsumexp(scores, axis=1, keepdims=True) - (label * scores).sum(1, keepdims=True)
        ),
        "squares": lambda: 0.5 * (scores - label) ** 2,
        "poisson": lambda: np.exp(scores) - label * scores + scipy.special.xlogy(label, label) - label,
        "hinge": lambda: margin,
        "squared_hinge": lambda: margin**2,
    }[learner.loss(problem.label, one).name]()
    return np.asarray(found.sum(axis=1))


def objective(
    learner: StochasticGradientSolver, problem: Problem, one: Config, model: tuple[np.ndarray, np.ndarray], shard: Shard
) -> float:
    weights, intercept = model
    losses = losses_of(learner, problem, one, np.asarray(shard.x @ weights.T) + intercept, shard.y)
    penalty = one["l1"] * np.abs(weights).sum() + 0.5 * one["l2"] * (weights**2).sum()  # type: ignore[operator]
    return float(shard.weight @ losses + penalty)


def optimum(learner: StochasticGradientSolver, problem: Problem, one: Config, shard: Shard) -> float:
    """The least objective, by the learner's own method."""
    exact = EXACT[learner.declaration.name]
    known = {parameter.name: parameter.default for parameter in exact.declaration.hyperparameters}
    same = {name: one[name] for name in ("l1", "l2", "loss", "fit_intercept") if name in known}
    state = exact.init(problem, [{**known, **same}])
    for _ in range(300):
        if not state.done.all():
            state = exact.step(
                problem, [{**known, **same}], state, exact.accumulate(problem, [known | same], state, shard)
            )
    tensors = exact.finalize(problem, [known], state, 0).tensors
    return objective(learner, problem, one, (tensors["weights"], tensors["intercept"]), shard)


def model(
    learner: StochasticGradientSolver, problem: Problem, configs: Sequence[Config], state: State, index: int
) -> Any:
    tensors = learner.finalize(problem, configs, state, index).tensors
    return tensors["weights"], tensors["intercept"]


@pytest.mark.examples(3)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_objective_comes_within_a_thousandth_of_the_least(case: str, sparse: bool) -> None:
    learner, label, values = CASES[case]
    columns = 20_000 if case == "logistic" else 1000
    problem, shard = data(learner, label, 1500, columns if sparse else 8, sparse)
    penalties = [{"l2": 20.0}, {"l2": 5.0, "l1": 4.0}] if sparse else [{"l2": 1.0}, {"l2": 0.0, "l1": 3.0}]
    steps = ("bottou", 2.0) if sparse or case == "softmax" else ("inverse_sqrt", 2.0)
    schedule = dict(zip(("schedule", "learning_rate"), steps, strict=True))
    for each in penalties if THOROUGH or not sparse else penalties[len(case) % 2 :][:1]:
        one = config(learner, **values, **each, **schedule, tolerance=0.0)
        state = train(learner, problem, [one], shard, epochs=300 if sparse else 150)
        reached, least = (
            objective(learner, problem, one, model(learner, problem, [one], state, 0), shard),
            optimum(learner, problem, one, shard),
        )
        assert least * (1 - 1e-7) <= reached <= least * (1 + 1e-3), each
        # What an epoch says it has reached is the mean over its steps, and of the last one the penalties.
        said = float(learner.losses(state)[0])
        assert said == pytest.approx(reached, rel=0.1)


@pytest.mark.parametrize("case", ["logistic", "squares", "hinge", "squared hinge"])
@pytest.mark.parametrize("penalty", [0.0, 30.0])
def test_one_epoch_is_that_of_scikit_learn_on_rows_in_the_same_order(case: str, penalty: float) -> None:
    learner, label, values = CASES[case]
    problem, shard = data(learner, label, n=500)
    one = config(learner, **values, l2=penalty, schedule="constant", average=False, learning_rate=0.05)
    state = train(learner, problem, [one], shard, epochs=1)
    order, total = visiting_order(problem.seed, 0, shard.n_rows), shard.weight.sum()
    names = {"logistic": "log_loss", "squares": "squared_error", "squared hinge": "squared_hinge"}
    kind = SGDRegressor if label == NUMBER else SGDClassifier
    plain = kind(
        loss=names.get(case, case), alpha=max(penalty, 1e-300) / total, learning_rate="constant", shuffle=False, max_iter=1,
        tol=None, eta0=0.05 * state.tensors["rate"][0],
    )  # fmt: skip
    mean = shard.totals.label_mean
    start = {"squares": mean, "logistic": scipy.special.logit(mean)}.get(case, 0.0)
    plain.fit(
        shard.x[order], shard.y[order], coef_init=np.zeros(8), intercept_init=np.array([start]),
        sample_weight=shard.weight[order] * shard.n_rows / total,
    )  # fmt: skip
    weights, intercept = model(learner, problem, [one], state, 0)
    np.testing.assert_allclose(weights[0], plain.coef_.ravel(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(intercept, plain.intercept_, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_split_resumed_and_packed_states_have_the_same_bits(case: str) -> None:
    learner, label, values = CASES[case]
    problem, shard = data(learner, label, n=700)
    shard = replace(shard, cuts=(0, 300, 300, 520, 700))
    for penalties in (
        [{"l2": 1.0}, {"l2": 9.0, "learning_rate": 0.1, "schedule": "constant"}],
        [{"l1": 1.0}, {"l1": 5.0}],
    ):
        configs = [config(learner, **values, batch_size=3, **each) for each in penalties]
        assert len({learner.pack_key(each) for each in configs}) == 1
        whole, apart = train(learner, problem, configs, shard), learner.init(problem, configs)
        for epoch in range(3):
            for first, last in ((0, 1), (1, 4)):
                apart = State.from_bytes(apart.to_bytes())
                assert learner.resumes(problem, configs, apart)
                apart = learner.train(problem, configs, apart, shard.part(first, last), epoch)
        assert whole.to_bytes() == apart.to_bytes()
        for index, one in enumerate(configs):
            alone = train(learner, problem, [one], shard)
            for name, tensor in alone.tensors.items():
                np.testing.assert_array_equal(tensor[0], whole.tensors[name][index], err_msg=name)
        scores = learner.scores(problem, configs, whole, shard.x)
        finished = learner.finalize(problem, configs, whole, 1)
        np.testing.assert_allclose(scores[:, 1], learner.score(label, finished, shard.x), rtol=1e-13)


def test_precision_and_sparsity_of_rows_do_not_matter() -> None:
    problem, shard = data(LOGISTIC, TWO_CLASSES)
    x = shard.x.astype(np.float32)
    wide, single = (
        train(LOGISTIC, problem, [config(LOGISTIC)], replace(shard, x=each)) for each in (x.astype(float), x)
    )
    sparse = train(LOGISTIC, problem, [config(LOGISTIC)], replace(shard, x=scipy.sparse.csr_matrix(x)))
    assert wide.to_bytes() == single.to_bytes() == sparse.to_bytes()


def test_a_state_is_not_changed_and_configs_that_are_done_stay() -> None:
    problem, shard = data(LOGISTIC, TWO_CLASSES)
    configs = [config(LOGISTIC, l2=l2) for l2 in (1.0, 2.0, 3.0)]
    state = train(LOGISTIC, problem, configs, shard, epochs=1)
    before = state.to_bytes()
    stopped = State(state.tensors, np.array([False, True, False]))
    after = LOGISTIC.train(problem, configs, stopped, shard, 1)
    assert state.to_bytes() == before
    on = LOGISTIC.train(problem, configs, state, shard, 1)
    for name, tensor in after.tensors.items():
        np.testing.assert_array_equal(tensor[1], state.tensors[name][1])
        np.testing.assert_array_equal(tensor[[0, 2]], on.tensors[name][[0, 2]])


def test_a_learning_rate_that_is_too_large_ends_its_config_alone() -> None:
    problem, shard = data(LINEAR, NUMBER)
    configs = [config(LINEAR, l2=1.0), config(LINEAR, l2=1.0, learning_rate=1e4, schedule="constant")]
    state = train(LINEAR, problem, configs, shard)
    assert state.done.tolist() == [False, True]
    np.testing.assert_array_equal(np.isnan(LINEAR.losses(state)), [False, True])
    with pytest.raises(Diverged, match="the weights became infinite; hint: lower learning_rate"):
        LINEAR.finalize(problem, configs, state, 1)
    alone = train(LINEAR, problem, configs[:1], shard)
    np.testing.assert_array_equal(
        model(LINEAR, problem, configs, state, 0)[0], model(LINEAR, problem, configs, alone, 0)[0]
    )


def test_training_ends_when_nothing_is_gained() -> None:
    problem, shard = data(LINEAR, NUMBER, n=400)
    configs = [config(LINEAR, l2=1.0, tolerance=tolerance) for tolerance in (0.5, 1e-3, 0.0)]
    ended: dict[int, int] = {}
    state = LINEAR.init(problem, configs)
    for epoch in range(40):
        state = LINEAR.train(problem, configs, state, shard, epoch)
        ended |= {index: epoch + 1 for index in np.flatnonzero(state.done).tolist() if index not in ended}
    assert ended[0] == 6
    assert 6 < ended[1] < 40
    assert 2 not in ended
    assert np.isfinite(LINEAR.losses(state)).all()


def test_bad_rows() -> None:
    problem, shard = data(POISSON, NUMBER)
    one, y = [config(POISSON)], shard.y.copy()
    y[5] = -1
    with pytest.raises(
        ValueError, match="the label is negative in 1 row; poisson_regression predicts counts and rates"
    ):
        train(POISSON, problem, one, replace(shard, y=y))
    with pytest.raises(Diverged, match="there are no training rows"):
        train(POISSON, problem, one, replace(shard, x=shard.x[:0], y=y[:0], weight=y[:0]))
    with pytest.raises(Diverged, match=r"the squares of the features overflow; hint: bring them to one scale"):
        train(POISSON, problem, one, replace(shard, x=shard.x * 1e200))


def test_a_mean_of_steps_is_not_asked_for_with_l1() -> None:
    conflict = LOGISTIC.conflict(config(LOGISTIC, average=True, l1=1.0))
    assert conflict is not None
    assert conflict.parameters == ("average", "l1")
    assert LOGISTIC.conflict(config(LOGISTIC, average=True)) is None
    assert LOGISTIC.conflict(config(LOGISTIC, l1=1.0)) is None
    keys = {
        LOGISTIC.pack_key(config(LOGISTIC, **each)) for each in ({}, {"l1": 1.0}, {"average": False}, {"batch_size": 2})
    }
    assert len(keys) == 4


def test_the_intercept_begins_at_the_mean_and_may_be_left_out() -> None:
    problem, shard = data(LINEAR, NUMBER)
    configs = [config(LINEAR), config(LINEAR, fit_intercept=False)]
    state = train(LINEAR, problem, configs, replace(shard, x=np.zeros_like(shard.x)), epochs=1)
    assert abs(model(LINEAR, problem, configs, state, 0)[1][0] - shard.totals.label_mean) < 0.2
    assert model(LINEAR, problem, configs, state, 1)[1].tolist() == [0.0]


# --- means of states, parts of them, gradients ---------------------------------------------------------------------------


def partitions(shard: Shard, count: int) -> list[Shard]:
    cuts = np.linspace(0, shard.n_rows, count + 1).astype(int).tolist()
    return [replace(shard, cuts=tuple(cuts)).part(place, place + 1) for place in range(count)]


def mean(states: Sequence[State], weights: Sequence[float], of: int = 1) -> State:
    parts = [LOGISTIC.average([LOGISTIC.part(state, number, of) for state in states], weights) for number in range(of)]
    return LOGISTIC.of_parts(parts, np.logical_or.reduce([state.done for state in states]))


@pytest.mark.parametrize("penalty", [{"l2": 1.0}, {"l1": 3.0, "l2": 0.5}, {"l2": 1.0, "average": False}])
def test_the_mean_of_states_has_the_mean_weights_part_by_part(penalty: dict[str, Any]) -> None:
    problem, shard = data(LOGISTIC, SEVERAL_CLASSES)
    configs = [config(LOGISTIC, **penalty, learning_rate=rate, batch_size=2) for rate in (0.5, 0.1)]
    begun = LOGISTIC.init(problem, configs)
    states = [LOGISTIC.train(problem, configs, begun, part, 0) for part in partitions(shard, 3)]
    shares = [1.0, 2.0, 5.0]
    found = mean(states, shares)
    by_hand = sum(
        share / 8 * sgd_state.models_of(each.tensors).weights() for share, each in zip(shares, states, strict=True)
    )
    np.testing.assert_allclose(sgd_state.models_of(found.tensors).weights(), by_hand, rtol=1e-12, atol=1e-15)
    finished = [sgd_state.finished(each, slice(None), averaged(configs))[0] for each in (found, *states)]
    if penalty.get("average") is not False and "l1" not in penalty:
        counted = np.array([each.tensors["counted"] for each in states]) * np.array(shares)[:, None]
        weighed = counted / counted.sum(axis=0)
        by_hand = sum(share[:, None, None] * each for share, each in zip(weighed, finished[1:], strict=True))
    np.testing.assert_allclose(finished[0], by_hand, rtol=1e-10, atol=1e-13)
    assert mean(states, shares, of=3).to_bytes() == mean(states, shares, of=8).to_bytes() == found.to_bytes()
    assert LOGISTIC.resumes(problem, configs, found)
    same = mean([states[0]] * 3, shares)
    np.testing.assert_array_equal(
        sgd_state.models_of(same.tensors).weights(), sgd_state.models_of(states[0].tensors).weights()
    )


@pytest.mark.parametrize("penalty", [{"l2": 5.0}, {"l1": 4.0, "l2": 0.0}])
def test_averaging_over_partitions_every_epoch_reaches_the_least_objective(penalty: dict[str, Any]) -> None:
    problem, shard = data(LOGISTIC, TWO_CLASSES)
    one = config(LOGISTIC, **penalty, schedule="inverse_sqrt")
    state, parts = LOGISTIC.init(problem, [one]), partitions(shard, 4)
    for epoch in range(60):
        states = [LOGISTIC.train(problem, [one], state, part, epoch) for part in parts]
        state = mean(states, [part.weight.sum() for part in parts])
    reached = objective(LOGISTIC, problem, one, model(LOGISTIC, problem, [one], state, 0), shard)
    least = optimum(LOGISTIC, problem, one, shard)
    assert least * (1 - 1e-9) <= reached <= least * (1 + 1e-3)
    assert float(LOGISTIC.losses(state)[0]) == pytest.approx(least, rel=0.02)


@pytest.mark.parametrize("penalty", [{"l2": 1.0}, {"l1": 3.0, "l2": 0.0}])
def test_steps_by_the_gradient_of_all_rows_are_a_proximal_gradient_descent(penalty: dict[str, Any]) -> None:
    problem, shard = data(LOGISTIC, TWO_CLASSES)
    one = config(LOGISTIC, **penalty, schedule="constant", learning_rate=4.0, average=False, tolerance=0.0)
    state, w, b = (
        LOGISTIC.init(problem, [one]),
        np.zeros(8),
        float(np.log(shard.totals.label_mean / (1 - shard.totals.label_mean))),
    )
    share, total = shard.weight / shard.weight.sum(), shard.weight.sum()
    rate = 4.0 / (0.25 * (share @ (shard.x**2).sum(axis=1) + 1))
    for _ in range(200):
        sums = [
            LOGISTIC.gradient(problem, [one], state, part, Visit(0, 0, part.n_rows)) for part in partitions(shard, 3)
        ]
        both = {name: sums[0][name] + sums[1][name] + sums[2][name] for name in sums[0]}
        before = objective(LOGISTIC, problem, one, (np.array([w]), np.array([b])), shard)
        state = LOGISTIC.stepped(problem, [one], state, both, shard.totals, Piece(0, 1))
        assert float(LOGISTIC.losses(state)[0]) == pytest.approx(before, rel=1e-9)
        rest = share * (scipy.special.expit(shard.x @ w + b) - shard.y)
        moved = w * (1 - rate * one["l2"] / total) - rate * (shard.x.T @ rest)  # type: ignore[operator]
        w, b = np.sign(moved) * np.maximum(np.abs(moved) - rate * one["l1"] / total, 0), b - rate * rest.sum()  # type: ignore[operator]
    weights, intercept = model(LOGISTIC, problem, [one], state, 0)
    np.testing.assert_allclose(weights[0], w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(intercept, [b], rtol=1e-9)
    reached = objective(LOGISTIC, problem, one, (weights, intercept), shard)
    assert reached == pytest.approx(optimum(LOGISTIC, problem, one, shard), rel=1e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sparse", [False, True])
def test_visits_of_some_batches_after_another_are_a_pass(name: str, sparse: bool) -> None:
    learner, label, options = CASES[name]
    problem, shard = data(learner, label, 300, 40, sparse)
    configs = [config(learner, batch_size=7, l1=penalty, **options) for penalty in (0.5,)]
    whole = state = learner.init(problem, configs)
    for epoch in (0, 1):
        whole = learner.train(problem, configs, whole, shard, epoch)
        for start, stop in ((0, 7), (7, 105), (105, 300)):
            state = learner.train_batches(problem, configs, state, shard, Visit(epoch, start, stop, begins=not start))
    for field in ("unscaled", "intercept", "step", "paid", "scale"):
        np.testing.assert_array_equal(state.tensors[field], whole.tensors[field])
    np.testing.assert_allclose(learner.losses(state), learner.losses(whole), rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("of", [2, 5])
def test_a_step_of_pieces_is_the_step_of_the_whole(name: str, of: int) -> None:
    learner, label, options = CASES[name]
    problem, shard = data(learner, label, 300, 40, sparse=True)
    configs = [config(learner, l2=penalty, average=True, **options) for penalty in (0.5, 2.0)]
    state = learner.train(problem, configs, learner.init(problem, configs), shard, 0)
    visit = Visit(1, 20, 80)
    sums = learner.gradient(problem, configs, state, shard, visit)
    whole = learner.stepped(
        problem, configs, State(dict(learner.part(state, 0, 1)), state.done), sums, shard.totals, Piece(0, 1)
    )
    rows = visiting_order(problem.seed, 1, 300)[20:80]
    alone = learner.gradient(
        problem, configs, state, replace(shard, x=shard.x[rows], y=shard.y[rows], weight=shard.weight[rows], whole=shard.totals),
        Visit(0, 0, 60),
    )  # fmt: skip
    np.testing.assert_allclose(sums["gradient"], alone["gradient"], rtol=1e-9, atol=1e-12)
    parts = []
    for number in range(of):
        piece = Piece(number, of)
        own, rest = learner.part(state, *piece), learner.part(state, 0, 1)
        tensors = {**{key: value for key, value in rest.items() if key not in learner.averaged}, **own}
        cut = {**sums, **averaging.cut({"gradient": sums["gradient"]}, ["gradient"], *piece)}
        parts.append(learner.stepped(problem, configs, State(tensors, state.done), cut, shard.totals, piece))
    joined = learner.of_parts([part.tensors for part in parts], parts[0].done)
    assert joined.to_bytes() == whole.to_bytes()


@pytest.mark.parametrize("l2", [0.0, 0.01, 1.0, 10.0])
def test_rows_of_very_different_length_do_not_make_the_default_steps_diverge(l2: float) -> None:
    """Three rare flags, each brought to one scale: a row in fifty is seven times as long as the mean."""
    places = np.arange(600)
    flags = np.stack([places * step % size == 0 for step, size in ((31, 47), (17, 53), (29, 59))], axis=1).astype(float)
    x = (flags - flags.mean(axis=0)) / flags.std(axis=0)
    y = (places * 7919 % 101) / 50.0
    with grouplearn.connect(progress=False) as con:
        table = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})
        con.native.register("flags", table)
        found = []
        for solver in ("moments", "sgd"):
            con.execute(
                f"TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FROM flags WITH (solver = '{solver}', l2 = {l2})"
            ).fetchall()
            found += con.execute("SELECT train_rmse FROM m").fetchall()[0]
    assert found[1] == pytest.approx(found[0], rel=1e-3)


@pytest.mark.parametrize("penalty", [{}, {"l2": 0.1}, {"l1": 1.0}, {"schedule": "constant"}])
@pytest.mark.parametrize("batch_size", [1, 64])
def test_counts_of_very_different_size_do_not_make_steps_diverge(penalty: dict[str, Any], batch_size: int) -> None:
    """Labels from a thousandth to tens of thousands, where the curvature of Poisson's loss is what is predicted."""
    random = np.random.default_rng(7)
    x = random.normal(size=(1500, 16))
    score = x @ random.normal(size=16)
    problem, shard = Problem(NUMBER, 16, seed=3), Shard(x, np.exp(score), random.uniform(0.3, 2, 1500))
    one = config(POISSON, **penalty, batch_size=batch_size)
    state = train(POISSON, problem, [one], shard, epochs=60)
    assert not state.done.any()
    constant = objective(POISSON, problem, one, (np.zeros((1, 16)), np.log([shard.totals.label_mean])), shard)
    share = 0.5 if batch_size == 1 else 0.95  # long steps are for the largest labels, and few of them
    assert objective(POISSON, problem, one, model(POISSON, problem, [one], state, 0), shard) < share * constant


def test_the_curve_has_the_objective_as_other_ways_have_it() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT (i * 37 % 101) / 50.0 AS x, x + (i * 7 % 11) AS y FROM range(2000) AS r(i)"
        )
        last = []
        for solver in ("moments", "sgd"):
            con.execute(
                f"TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FROM t WITH (solver = '{solver}', l2 = 1)"
            )
            last += con.execute("SELECT arg_max(train_loss, epoch) FROM m_curves").fetchall()[0]
    assert last[1] == pytest.approx(last[0], rel=0.05)
