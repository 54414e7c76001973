"""Linear support vector machines with the hinge loss: at the optimum of scikit-learn's SVC and of a linear program."""

import functools

import numpy as np
import pytest
import scipy.sparse
from helpers.stacks import stack_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.svm import SVC

import grouplearn
from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.state import State

LEARNER = registry.learner("linear_svm")
CONFIGS = [
    {"loss": "hinge", **each}
    for each in ({"l2": 0.1}, {"l2": 1.0}, {"l2": 100.0}, {"l1": 3.0, "l2": 0.0}, {"l1": 1.0, "l2": 1.0})
]


def make_rows(n=200, classes=2, seed=0, d=5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.geomspace(0.1, 10, d)
    score = 2 * (x / x.std(axis=0)) @ rng.normal(size=(d, classes)) / np.sqrt(d)
    return Shard(x, (score + rng.gumbel(size=score.shape)).argmax(axis=1).astype(float), rng.uniform(0.3, 2, n))


def problem_of(shard, classes=2, epochs=300):
    return Problem(TWO_CLASSES if classes == 2 else SEVERAL_CLASSES, shard.x.shape[1], classes, epochs=epochs)


def solved(shards, configs=CONFIGS, classes=2):
    return LEARNER.solve(problem_of(shards[0], classes), configs, stack_of(shards), lambda _: None, lambda: False)


def fit(shard, configs=CONFIGS, classes=2, rows=64, epochs=300, after=lambda state: state):
    problem = problem_of(shard, classes)
    state = LEARNER.init(problem, configs)
    for _ in range(epochs):
        blocks = [LEARNER.accumulate(problem, configs, state, block) for block in shard.blocks(rows)]
        state = after(LEARNER.step(problem, configs, state, functools.reduce(LEARNER.merge, blocks)))
        if state.done.all():
            break
    return state


def objective(shard, config, weights, intercept):
    """Of the models of all classes (k, d), (k,)."""
    labels = shard.y[:, None] if len(weights) == 1 else shard.y[:, None] == np.arange(len(weights))
    margin = (2 * labels - 1) * (shard.x @ weights.T + intercept)
    return (
        (shard.weight @ np.maximum(0, 1 - margin)).sum()
        + config.get("l1", 0) * np.abs(weights).sum()
        + 0.5 * config.get("l2", 1) * np.square(weights).sum()
    )


def least_by_svc(shard, l2):
    """The dual that SVC maximises, l2·(Σα − ½·‖Σ α·s·x‖²): no objective is below it (Cristianini & Shawe-Taylor 2000, 6.1.2).

    Its intercept has no penalty either; it does not find one as near to the optimum as its α.
    """
    model = SVC(kernel="linear", C=1 / l2, tol=1e-10).fit(shard.x, shard.y, sample_weight=shard.weight)
    return l2 * (np.abs(model.dual_coef_).sum() - 0.5 * np.square(model.coef_).sum())


def least_by_program(shard, l1):
    """The optimum without l2: Σ w·ξ + l1·Σ(u + v) over ξ, u, v ≥ 0 and b with ξ ≥ 1 − s·(x'(u − v) + b)."""
    (n, d), sign = shard.x.shape, 2 * shard.y - 1
    cost = np.concatenate([shard.weight, np.full(2 * d, l1), [0.0]])
    rows = np.concatenate([np.eye(n), sign[:, None] * shard.x, -sign[:, None] * shard.x, sign[:, None]], axis=1)
    bounds = [(0, None)] * (n + 2 * d) + [(None, None)]
    return linprog(cost, A_ub=-rows, b_ub=-np.ones(n), bounds=bounds, method="highs").fun


def both_ways(shard, config):
    """The objectives of a whole solve and of epochs, each that of the model that comes with it."""
    config = {"loss": "hinge", **config}
    found, state = solved([shard], [config]), fit(shard, [config])
    values = [found.loss[0, 0], LEARNER.losses(state)[0]]
    models = [
        (found.weights[0, 0], found.intercept[0, 0]),
        (state.tensors["weights"][0], state.tensors["intercept"][0]),
    ]
    for value, model in zip(values, models, strict=True):
        assert value == pytest.approx(objective(shard, config, *model), rel=1e-10, abs=1e-12)
    assert found.converged.all()
    assert state.done.all()
    return values


def shape_of(kind):
    """Rows with one peculiarity each."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(25 if kind == "fewer rows than columns" else 120, 40 if kind.startswith("fewer") else 5))
    y, weight = (x[:, 0] + 0.5 * x[:, 1] > 0).astype(float), np.ones(len(x))
    if kind != "separable":
        y[:3] = 1 - y[:3]
    if kind == "collinear":
        x[:, 4], x[:, 3] = x[:, 0] - 2 * x[:, 1], 7.0
    if kind == "repeated":
        x = np.round(x)
    if kind == "rare class":
        y = (x[:, 0] > np.sort(x[:, 0])[-4]).astype(float)
        y[0] = 1.0
    if kind == "weights 0":
        weight[::2] = 0.0
    if kind == "scales":
        x *= [1e-6, 1e6, 1.0, 1e3, 1e-3]
    return Shard(x, y, weight)


KINDS = [
    *("plain", "separable", "collinear", "repeated", "rare class", "weights 0"),
    "fewer rows than columns",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("l2", [0.1, 3.0])
def test_it_is_svc(kind, l2):
    shard = shape_of(kind)
    least = least_by_svc(shard, l2)
    for value in both_ways(shard, {"l2": l2}):
        assert value == pytest.approx(least, rel=1e-6)
        assert value >= least * (1 - 1e-10)


@pytest.mark.parametrize("kind", [*KINDS, "scales"])
@pytest.mark.parametrize("l1", [0.0, 0.1, 5.0])
def test_without_l2_it_is_a_linear_program(kind, l1):
    shard = shape_of(kind)
    if kind == "scales":
        l1 *= 1e-3
    least = least_by_program(shard, l1)
    for value in both_ways(shard, {"l1": l1, "l2": 0.0}):
        assert value == pytest.approx(least, rel=1e-6, abs=1e-9)
        assert value >= least * (1 - 1e-8) - 1e-9


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 6), st.sampled_from([0.0, 0.3, 4.0]), st.booleans())
def test_it_is_the_linear_program_for_any_rows(seed, n, d, l1, whole):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-2, 3, d)
    shard = Shard(np.round(x) if whole else x, rng.integers(0, 2, n).astype(float), rng.integers(0, 3, n) / 2 + (n < 9))
    least = least_by_program(shard, l1)
    for value in both_ways(shard, {"l1": l1, "l2": 0.0}):
        assert value == pytest.approx(least, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rows_of_one_class_cost_nothing_with_an_intercept(fit_intercept):
    shard = Shard(make_rows().x, np.ones(200), np.ones(200))
    for value in both_ways(shard, {"fit_intercept": fit_intercept}):
        assert (value < 1e-12) == fit_intercept


def test_a_small_penalty_on_rows_that_are_apart_gives_the_widest_margin():
    """Twice the distance from the rows 1 and 3 is 1/|w|: the support vectors alone decide."""
    shard = Shard(np.array([[0.0], [1.0], [3.0], [9.0]]), np.array([0.0, 0.0, 1.0, 1.0]), np.ones(4))
    found = solved([shard], [{"loss": "hinge", "l2": 1e-6}])
    assert found.weights[0, 0, 0, 0] == pytest.approx(1.0, rel=1e-6)
    assert found.intercept[0, 0, 0] == pytest.approx(-2.0, rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_epochs_reach_what_a_stack_does_from_dense_and_sparse_rows(classes):
    shard = make_rows(classes=classes)
    shard.x[:, 2:4] *= np.random.default_rng(1).random((200, 2)) < 0.2
    sparse = Shard(scipy.sparse.csr_matrix(shard.x), shard.y, shard.weight)
    found, dense, other = solved([shard], classes=classes), fit(shard, classes=classes), fit(sparse, classes=classes)
    whole = fit(shard, classes=classes, rows=200)
    for state in (dense, other, whole):
        assert state.done.all()
        np.testing.assert_allclose(LEARNER.losses(state), found.loss[0], rtol=1e-8)
    for place, config in enumerate(CONFIGS):
        model = dense.tensors["weights"][place], dense.tensors["intercept"][place]
        np.testing.assert_allclose(LEARNER.losses(dense)[place], objective(shard, config, *model), rtol=1e-10)
    kept = fit(shard, classes=classes, after=lambda state: State.from_bytes(state.to_bytes()))
    assert kept.to_bytes() == dense.to_bytes()


@pytest.mark.parametrize("classes", [2, 3])
def test_a_group_does_not_know_of_others_nor_a_config_of_other_losses(classes):
    shards = [make_rows(n, classes, n) for n in (50, 200, 90)]
    configs = [{"l2": 1.0}, *CONFIGS, {"l1": 1.0}]
    together = solved(shards, configs, classes=classes)
    for number, shard in enumerate(shards):
        for place, config in enumerate(configs):
            alone = solved([shard], [config], classes)
            for name in ("weights", "intercept", "loss", "epochs", "converged"):
                assert getattr(alone, name)[0, 0].tobytes() == getattr(together, name)[number, place].tobytes()
            passes = len(alone.curve)
            np.testing.assert_array_equal(alone.curve[:, 0, 0], together.curve[:passes, number, place])
            assert np.isnan(together.curve[passes:, number, place]).all()


def test_a_class_that_a_group_lacks_has_a_model_that_is_never_right():
    """As that of the squared hinge: of rows that are all of the other side."""
    shard = make_rows(classes=3)
    found = solved([shard], CONFIGS[:1], classes=4)
    assert found.converged.all()
    assert (shard.x @ found.weights[0, 0, 3] + found.intercept[0, 0, 3] <= -1 + 1e-9).all()


def test_configs_of_another_loss_train_in_another_pack():
    assert LEARNER.pack_key({}) == LEARNER.pack_key({"loss": "squared_hinge"})
    assert LEARNER.pack_key({}) != LEARNER.pack_key({"loss": "hinge"})


def test_in_sql_the_loss_is_searched_as_any_other_hyperparameter():
    with grouplearn.connect(progress=False) as con:
        con.execute(
            """CREATE TABLE t AS SELECT i % 2 AS g, hash(i) % 2000 / 1000 - 1 AS a, hash(i + 7) % 500 / 100 AS b,
            a + 0.2 * b + hash(i + 3) % 100 / 60 > 1.3 AS y FROM range(400) AS r(i)"""
        )
        train = "PREDICT y FEATURES (a, b) FROM t GROUP BY g {} VALIDATE NONE WITH (class_weight = 'balanced')"
        grid = "OVER GRID (loss IN ('squared_hinge', 'hinge'), l2 IN (0.1, 10))"
        con.execute(f"TRAIN MODEL m USING linear_svm {train.format(grid)}")
        trials = con.execute("FROM m").fetchall()
        weights = con.execute("FROM m_weights WHERE loss = 'hinge'").df()
        rows = con.execute("SELECT a, b, y, g FROM t").df()
        with pytest.raises(grouplearn.Error, match="loss"):
            con.execute(f"TRAIN MODEL n USING linear_svm {train.format('OVER GRID (loss IN (1))')}")
        with pytest.raises(grouplearn.Error, match='Did you mean "linear_svm"'):
            con.execute(f"TRAIN MODEL n USING svm {train.format('')}")
    assert len(trials) == 8
    for g, part in rows.groupby("g"):
        y = part["y"].to_numpy().astype(float)
        weight = np.where(y == 1, len(y) / (2 * y.sum()), len(y) / (2 * (len(y) - y.sum())))
        shard = Shard(part[["a", "b"]].to_numpy(), y, weight)
        for l2 in (0.1, 10):
            chosen = weights[(weights["g"] == g) & (weights["l2"] == l2)].set_index("feature")["weight"]
            model = chosen[["a", "b"]].to_numpy()[None], chosen[["(intercept)"]].to_numpy()
            assert objective(shard, {"l2": l2}, *model) == pytest.approx(least_by_svc(shard, l2), rel=1e-6)
