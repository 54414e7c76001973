"""Every way of every learner keeps the contract: deterministic, resumable, indifferent to its pack, and scored alike."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.measuring import default_metric, finish, measure

import grouplearn
from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract import hyperparameter_values
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Stop
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import predicting
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner, RoundsLearner, SamplingLearner, SequentialLearner
from grouplearn.models.label import LABELLED, NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.state import State


def named(way: str) -> Learner:
    """Return the way of a learner that is called so; after a comma comes what is special in its grid."""
    found = registry.by_way(way.partition(",")[0])
    assert found is not None
    return found


LINEAR = ("linear_regression", "logistic_regression", "poisson_regression", "linear_svm")
GRIDS: dict[str, Sequence[dict[str, Any]]] = {
    "linear_regression": [{"l1": 0.0, "l2": 0.0}, {"l1": 0.0, "l2": 3.0}, {"l1": 2.0, "l2": 0.5}],
    "logistic_regression": [
        {"l1": 0.0, "l2": 1.0},
        {"l1": 2.0, "l2": 0.0},
        {"l1": 0.5, "l2": 0.1, "learning_rate": 0.5},
    ],
    "linear_svm": [{"l2": 1.0}, {"l1": 2.0, "l2": 0.0}, {"l1": 0.5, "l2": 0.1, "learning_rate": 0.5}],
    "poisson_regression": [{"l2": 1.0}, {"l1": 2.0, "l2": 0.0}, {"l1": 0.5, "l2": 0.1}],
    **{
        f"{name} by coordinate_descent": [{"l2": 1.0}, {"l1": 2.0, "l2": 0.0}, {"l1": 0.5, "l2": 0.1}]
        for name in LINEAR
    },
    **{
        # Each config chooses for itself, so that only equal ones are packed.
        f"{name} by coordinate_descent, greedy": [{"l1": 0.5, "l2": 0.1, "selection": "greedy"}] * 2
        for name in LINEAR
    },
    **{
        f"{name} by sgd": [{"l2": 1.0}, {"l2": 0.1, "learning_rate": 0.2}, {"l2": 3.0, "schedule": "inverse_sqrt"}]
        for name in LINEAR
    },
    "linear_learner": [{"l2": 1.0}, {"l2": 0.1, "learning_rate": 0.2}, {"l1": 2.0, "schedule": "inverse_sqrt"}],
    # A pack of one loss each, of which some are averaged, and some have l1.
    "linear_learner, of numbers": [
        {"loss": "absolute"},
        {"loss": "quantile", "alpha": 0.8, "l1": 0.5},
        {"loss": "poisson", "average": False},
        {"loss": "huber", "delta": 2.0},
    ],
    "linear_learner, of classes": [{"loss": "hinge"}, {"loss": "logistic", "l1": 0.5}, {"loss": "squared_hinge"}],
    "gbdt": [
        {"num_iterations": 5},
        {"num_iterations": 8, "num_leaves": 7},
        {"num_iterations": 6, "learning_rate": 0.3},
    ],
    "random_forest": [
        {"num_iterations": 5},
        {"num_iterations": 8, "num_leaves": 7},
        {"num_iterations": 6, "bagging_fraction": 0.5, "bagging_freq": 1},
    ],
    "mlp": [
        {"hidden_layers": (6,)},
        {"hidden_layers": (6,), "learning_rate": 0.01},
        {"hidden_layers": (6,), "l2": 2.0},
    ],
    **{
        name: [{"k": 3}, {"k": 5, "n_init": 1}, {"k": 1, "tolerance": 0.0}]
        for name in ("kmeans", "kmeans by coreset", "kmeans by facility_location")
    },
    "kmeans by facility_location, few rows": [{"k": k, "k_max": 5} for k in (3, 5, None)],
    "kmeans by coreset, few rows": [{"k": k, "k_max": 5, "coreset_rows": 40} for k in (3, 5, 1)],
    "pca": [{"n_components": 2}, {"n_components": 3, "whiten": True}, {"n_components": None}],
    "pca by sketch": [
        {"n_components": 2, "sketch_rows": 3},
        {"n_components": 3, "sketch_rows": 3},
        {"n_components": 1, "sketch_rows": 3, "whiten": True},
    ],
    "own_network": [{"width": 6}, {"width": 6, "learning_rate": 0.01}, {"width": 6, "l2": 2.0}],
}
#: Series are in test_series.py: their only feature is the step of a row.
WAYS = [way.way for way in registry.every_way() if not way.declaration.takes_series]
SPECIAL = [name for name in GRIDS if "," in name]
#: Labels of grids that are not for all labels of their learner.
LABELS = {"linear_learner, of numbers": {NUMBER}, "linear_learner, of classes": {TWO_CLASSES, SEVERAL_CLASSES}}
PAIRS = [
    *(
        (name, label)
        for name in (*WAYS, *SPECIAL)
        for label in sorted(LABELS.get(name, named(name).declaration.labels), key=lambda label: label.name)
    ),
    *(("own_network", label) for label in sorted(LABELLED, key=lambda label: label.name)),
]


def own_network(problem: Problem, config: Config) -> Any:
    from torch import nn

    width = int(config["width"])  # type: ignore[arg-type]
    layers = [nn.Linear(problem.n_features, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(width, problem.n_outputs))


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    grouplearn.register("own_network", own_network, hyperparameters={"width": 8})
    yield
    grouplearn.unregister("own_network")


def configs_of(name: str) -> list[Config]:
    base = {parameter.name: parameter.default for parameter in named(name).declaration.hyperparameters}
    return [{**base, **changes} for changes in GRIDS.get(name, [{}] * 3)]


def data(label: Label) -> tuple[Problem, Shard]:
    random = np.random.default_rng(5)
    x = random.normal(size=(300, 4))
    scores = x @ random.normal(size=(4, 3)) + random.normal(size=(300, 3))
    y = {
        NUMBER: np.exp(0.3 * scores[:, 0]) * 10,  # positive, for counts and rates
        TWO_CLASSES: (scores[:, 0] > 0).astype(float),
        SEVERAL_CLASSES: scores.argmax(axis=1).astype(float),
    }.get(label, np.zeros(300))
    n_classes = {TWO_CLASSES: 2, SEVERAL_CLASSES: 3}.get(label, 0)
    problem = Problem(label, n_features=4, n_classes=n_classes, seed=11, epochs=4)
    return problem, Shard(x, y, random.uniform(0.5, 2.0, size=300))


def advance(
    learner: Learner, problem: Problem, configs: Sequence[Config], state: State, rows: Shard, epoch: int
) -> State:
    if isinstance(learner, AlgebraicLearner):
        sums = None
        for block in rows.blocks(128):
            found = learner.accumulate(problem, configs, state, block)
            sums = found if sums is None else learner.merge(sums, found)
        assert sums is not None
        return learner.step(problem, configs, state, sums)
    if isinstance(learner, RoundsLearner):
        return after_rounds(learner, problem, configs, state, rows)
    if isinstance(learner, SequentialLearner):
        return learner.train(problem, configs, state, rows, epoch)
    assert isinstance(learner, SamplingLearner)
    return learner.boost(problem, configs, state, rows, None, Stop("log_loss"))[0]


def after_rounds(
    learner: RoundsLearner, problem: Problem, configs: Sequence[Config], state: State, rows: Shard
) -> State:
    """Return the state after the rounds of an epoch, and what is kept of the rows made anew with each epoch."""
    memory = learner.remember(problem, configs, state, rows)
    while True:
        now = learner.next_round(problem, configs, state)
        (sums,) = learner.work(problem, configs, state, [(rows, memory)])
        state = learner.take(problem, configs, state, [learner.reduce(problem, configs, state, sums, 0, now.columns)])
        if now.prepares:
            memory = learner.remember(problem, configs, state, rows)
        if now.ends_epoch:
            return state


def epochs(learner: Learner, problem: Problem) -> int:
    return problem.epochs if learner.declaration.default_epochs else 1


def trained(
    learner: Learner, problem: Problem, configs: Sequence[Config], rows: Shard, through_bytes: bool = False
) -> State:
    state = learner.init(problem, configs)
    for epoch in range(epochs(learner, problem)):
        if state.done.all():
            break
        state = advance(learner, problem, configs, state, rows, epoch)
        if through_bytes:
            state = State.from_bytes(state.to_bytes())
    return state


def scores(learner: Learner, problem: Problem, configs: Sequence[Config], state: State, rows: Shard) -> np.ndarray:
    return learner.scores(problem, configs, state, rows.x)


#: The learners whose trials get rounds, see ``Declaration.rounds``.
BOOSTED = ("gbdt", "random_forest")


def test_every_learner_has_a_grid() -> None:
    assert set(GRIDS) == {*WAYS, *SPECIAL, "own_network"}


@pytest.mark.parametrize(("name", "label"), PAIRS)
def test_same_seed_gives_the_same_bytes(name: str, label: Label) -> None:
    learner, (problem, rows) = named(name), data(label)
    first, second = (trained(learner, problem, configs_of(name), rows).to_bytes() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("name", "label"), PAIRS)
def test_state_survives_bytes_at_every_epoch(name: str, label: Label) -> None:
    learner, (problem, rows) = named(name), data(label)
    straight = trained(learner, problem, configs_of(name), rows)
    resumed = trained(learner, problem, configs_of(name), rows, through_bytes=True)
    assert straight.to_bytes() == resumed.to_bytes()


@pytest.mark.parametrize(("name", "label"), PAIRS)
def test_a_pack_of_n_equals_n_packs_of_one(name: str, label: Label) -> None:
    learner, (problem, rows) = named(name), data(label)
    configs = configs_of(name)
    together = scores(learner, problem, configs, trained(learner, problem, configs, rows), rows)
    for number, config in enumerate(configs):
        alone = scores(learner, problem, [config], trained(learner, problem, [config], rows), rows)
        np.testing.assert_allclose(together[:, number, : alone.shape[2]], alone[:, 0], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(("name", "label"), PAIRS)
def test_a_finished_model_scores_as_its_state_does(name: str, label: Label) -> None:
    learner, (problem, rows) = named(name), data(label)
    configs = configs_of(name)
    state = trained(learner, problem, configs, rows)
    live = scores(learner, problem, configs, state, rows)
    assert live.shape[:2] == (rows.n_rows, len(configs))
    assert live.shape[2] == problem.n_outputs or not label.is_given
    for number in range(len(configs)):
        artifact = learner.finalize(problem, configs, state, number)
        finished = predicting(learner, configs[number]).score(label, artifact, rows.x)
        np.testing.assert_allclose(finished, live[:, number, : finished.shape[1]], rtol=1e-9, atol=1e-9)
        assert np.isnan(live[:, number, finished.shape[1] :]).all()


@pytest.mark.parametrize(("name", "label"), PAIRS)
def test_it_learns_something(name: str, label: Label) -> None:
    learner, (problem, rows) = named(name), data(label)
    configs = configs_of(name)[1:2]
    problem = replace(problem, epochs=30)
    found = scores(learner, problem, configs, trained(learner, problem, configs, rows), rows)[:, 0]
    if not label.is_given:
        sums = measure(label, 0, found[:, None], rows.y, rows.weight)
        assert finish(sums)[default_metric(label)][0] > 0.2
    elif label == NUMBER:
        assert np.corrcoef(found[:, 0], rows.y)[0, 1] > 0.3
    else:
        chosen = found.argmax(axis=1) if label == SEVERAL_CLASSES else (found[:, 0] > 0.5)
        assert (chosen == rows.y).mean() > 1.1 * max(np.bincount(rows.y.astype(int))) / rows.n_rows


@pytest.mark.parametrize("name", [*WAYS, "own_network"])
def test_hyperparameters_are_documented_and_their_defaults_allowed(name: str) -> None:
    for parameter in named(name).declaration.hyperparameters:
        assert parameter.doc
        assert parameter.source
        if parameter.default is not None:
            assert hyperparameter_values.resolve(parameter, parameter.default) == parameter.default


@pytest.mark.examples(6)
@pytest.mark.parametrize("name", [*WAYS, "own_network"])
def test_a_group_without_a_category_has_a_model_of_a_constant_or_says_why_not(name: str) -> None:
    learner = named(name)
    label = "y" if NUMBER in learner.declaration.labels else "y % 2 = 0"
    with grouplearn.connect(progress=None) as con, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's, of tensors without elements
        con.execute(
            "CREATE TABLE t AS SELECT i % 2 AS g, if(g = 1, 'k' || i % 3, NULL) AS k, i // 2 AS y FROM range(40) AS r(i)"
        )
        predict = f"PREDICT {label} AS label" if learner.declaration.labels & LABELLED else ""
        solver = "" if learner.way == learner.declaration.name else f"WITH (solver = '{learner.declaration.solver}')"
        con.execute(
            f"TRAIN MODEL m USING {learner.declaration.name} {predict} FEATURES (onehot(k)) FROM t GROUP BY g {solver}"
        )
        found = con.execute("SELECT g, status, error FROM m ORDER BY g").fetchall()
        shown = con.sql("FROM m_predict(t)").columns[3]
        missing = con.execute(f"SELECT DISTINCT g, {shown} IS NULL FROM m_predict(t) ORDER BY g").fetchall()
    constant = learner.declaration.form == "linear" or name == "own_network"
    told = "done" if constant else "failed", None if constant else "there are no features"
    assert found == [(0, *told), (1, "done", None)]
    assert missing == [(0, not constant), (1, False)]


@pytest.mark.parametrize(("name", "label"), [pair for pair in PAIRS if pair[0] in BOOSTED])
def test_more_rounds_go_on_from_fewer_as_in_one_training(name: str, label: Label) -> None:
    learner, (problem, rows), configs = named(name), data(label), configs_of(name)
    assert isinstance(learner, SamplingLearner)
    fewer = [{**config, str(learner.declaration.rounds): 2} for config in configs]
    stop = Stop("log_loss", carries=True)
    begun, _ = learner.boost(problem, fewer, learner.init(problem, fewer), rows, None, stop)
    states = [learner.trial_state(begun, index) for index in range(len(configs))]
    assert [state is not None for state in states] == [learner.continues(config) for config in configs]
    kept = [State.from_bytes(state.to_bytes()) for state in states if state is not None]
    start = learner.pack_state(kept) if len(kept) == len(configs) else learner.init(problem, configs)
    whole, _ = learner.boost(problem, configs, start, rows, None, stop)
    alone = trained(learner, problem, configs, rows)
    for index in range(len(configs)):
        continued, straight = (learner.finalize(problem, configs, state, index) for state in (whole, alone))
        assert continued.text == straight.text
