"""On real flights, every carrier and configuration, run to convergence: equal to the reference libraries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import lightgbm
import numpy as np
import pytest
import scipy.special
import torch
from helpers.thorough import THOROUGH
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
from threadpoolctl import threadpool_limits

from grouplearn.bind.bind import bind
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.records import RunOutcome
from grouplearn.data.shard import Shard
from grouplearn.data.split import FINAL
from grouplearn.extract.counts.statistics import statistics
from grouplearn.extract.extract import extract
from grouplearn.frontends.shell.flights import load_flights
from grouplearn.kernels.networks import visiting_order
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.neural.mlp import Mlp
from grouplearn.learners.neural.mlp_rows import shape_of
from grouplearn.learners.registry import learner
from grouplearn.learners.trees.lightgbm.group_parameters import lightgbm_parameters
from grouplearn.models.label import TWO_CLASSES
from grouplearn.parser.parse import parse
from grouplearn.parser.statements import TrainModel
from grouplearn.plan.physical import plan
from grouplearn.statements.workflow import planning, training
from grouplearn.statements.workflow.scheduled import RunControls
from grouplearn.train.job import Job
from grouplearn.train.results.trials import TrialResult
from grouplearn.train.rows.prepare import Prepared, prepare

FEATURES = "FEATURES (zscore(dep_delay, distance, air_time), onehot(origin), sin(hour * 2 * pi() / 24))"
ALL = "FROM flights WHERE arr_delay IS NOT NULL GROUP BY carrier"
#: The carriers of few flights, and one of more than a block; ``make thorough`` takes the seven larger ones, too.
SOME = ("AS", "F9", "FL", "HA", "MQ", "OO", "VX", "WN", "YV")
ROWS, CARRIERS = (ALL, 16) if THOROUGH else (ALL.replace("GROUP", f"AND carrier IN {SOME} GROUP"), len(SOME))


@pytest.fixture(scope="module")
def flights() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        load_flights(connection)
        yield connection


@dataclass
class Trained:
    job: Job
    outcome: RunOutcome

    def prepared(self) -> list[tuple[int, Prepared]]:
        return [(group.id, prepare(self.job, group, FINAL)) for group in self.job.groups]


def train(connection: duckdb.DuckDBPyConnection, text: str) -> Trained:
    statement = parse(text)[0]
    assert isinstance(statement, TrainModel)
    checker = SqlChecker(connection, text)
    bound = bind(checker, statement, "memory", "main", {})
    physical = plan(bound, statistics(checker, bound))
    dataset, groups = extract(connection, checker, bound, physical.stats)
    job = training.job_of(physical, dataset, groups, checker)
    work = training.begun(physical, planning.choose(physical, lambda: False), job, lambda: False)
    return Trained(job, training.run(work, RunControls()))


def linear(trial: TrialResult) -> tuple[np.ndarray, float]:
    assert trial.artifact is not None
    return trial.artifact.tensors["weights"][0], float(trial.artifact.tensors["intercept"][0])


def logistic_objective(weights: np.ndarray, intercept: float, rows: Shard, config: Config) -> float:
    scores = rows.x @ weights + intercept
    losses = np.logaddexp(0.0, scores) - rows.y * scores
    return float(rows.weight @ losses + config["l1"] * np.abs(weights).sum() + 0.5 * config["l2"] * weights @ weights)


def test_logistic_regression_reaches_the_objective_of_scikit_learn(flights: duckdb.DuckDBPyConnection) -> None:
    trained = train(
        flights,
        f"TRAIN MODEL m USING logistic_regression PREDICT arr_delay > 15 {FEATURES} {ROWS} "
        "OVER GRID (l1 IN (0), l2 IN (1, 100)) VALIDATE NONE WITH (epochs = 300)",
    )
    for group, prepared in trained.prepared():
        rows = prepared.train
        for trial in trained.outcome.found.trials.only(group):
            config = trained.job.configs[trial.config]
            with threadpool_limits(1):
                reference = LogisticRegression(C=1 / config["l2"], tol=1e-10, max_iter=5000).fit(rows.x, rows.y)
            least = logistic_objective(reference.coef_[0], reference.intercept_[0], rows, config)
            ours = logistic_objective(*linear(trial), rows, config)
            assert ours <= least * (1 + 1e-5)
    assert len(trained.outcome.found.groups) == CARRIERS


@pytest.mark.filterwarnings(
    "ignore:The max_iter was reached"
)  # saga may stop early: then we are below it, and only that counts
def test_logistic_regression_with_l1_reaches_the_objective_of_scikit_learn(flights: duckdb.DuckDBPyConnection) -> None:
    """The run a user gets is within 1e-6 of one run to machine precision, which duality shows to be near the optimum.

    The dual bound is tight to 1e-4 only: with a small l1, rounding in X'r alone shrinks the dual point by that much.
    """
    statement = (
        f"TRAIN MODEL m USING logistic_regression PREDICT arr_delay > 15 {FEATURES} {ROWS} "
        "OVER GRID (l1 IN (1, 0.5, 0.1, 0.05, 50)) VALIDATE NONE WITH (epochs = 300, l2 = 0"
    )
    trained, exact = train(flights, statement + ")"), train(flights, statement + ", tolerance = 1e-14)")
    for group, prepared in trained.prepared():
        rows = prepared.train
        trials = zip(
            trained.outcome.found.trials.only(group),
            exact.outcome.found.trials.only(group),
            strict=True,
        )
        for trial, proof in trials:
            config = trained.job.configs[trial.config]
            ours = logistic_objective(*linear(trial), rows, config)
            least = logistic_objective(*linear(proof), rows, config)
            assert ours <= least * (1 + 1e-6)
            assert least <= lower_bound(*linear(proof), rows, config) * (1 + 1e-4)
            if rows.n_rows < 4000:  # saga needs minutes on the large carriers; the bound above covers them
                saga = LogisticRegression(
                    C=1 / config["l1"], l1_ratio=1.0, solver="saga", tol=1e-6, max_iter=1000, random_state=0
                ).fit(rows.x, rows.y)
                assert ours <= logistic_objective(saga.coef_[0], saga.intercept_[0], rows, config) * (1 + 1e-5)


def lower_bound(weights: np.ndarray, intercept: float, rows: Shard, config: Config) -> float:
    """A lower bound of the least objective by Fenchel duality: nothing that scikit-learn finds can be below it.

    For losses f(s) = log(1 + exp(s)) - y s, the dual of min sum f(x w + b) + l1 |w|_1 is max of -sum f*(r) over r with
    X'r in the l1 box and sum r = 0, where f*(r) is the negative entropy of r + y.
    """
    residual = scipy.special.expit(rows.x @ weights + intercept) - rows.y
    # Feasible: move along the constant until sum r = 0, then shrink into the box.
    positive = rows.y > 0
    excess = residual.sum()
    residual = residual.copy()
    side = ~positive if excess > 0 else positive
    residual[side] -= excess * residual[side] / residual[side].sum()
    size = np.abs(rows.x.T @ residual).max()
    residual *= min(1.0, config["l1"] / size)
    probability = np.clip(residual + rows.y, 0.0, 1.0)
    return float(
        -(scipy.special.xlogy(probability, probability) + scipy.special.xlogy(1 - probability, 1 - probability)).sum()
    )


def test_linear_regression_equals_closed_form_and_scikit_learn(flights: duckdb.DuckDBPyConnection) -> None:
    trained = train(
        flights,
        f"TRAIN MODEL m USING linear_regression PREDICT arr_delay {FEATURES} {ALL} "
        "OVER GRID ((l1, l2) IN ((0, 1), (0, 100), (200, 0), (50, 20))) VALIDATE NONE",
    )
    for group, prepared in trained.prepared():
        rows = prepared.train
        n = rows.n_rows
        for trial in trained.outcome.found.trials.only(group):
            config = trained.job.configs[trial.config]
            l1, l2 = float(config["l1"]), float(config["l2"])
            if l1:
                # Thousands of rounds, each of few sums.
                exact = {"tol": 1e-14, "max_iter": 1_000_000, "precompute": True}
                reference = ElasticNet(alpha=(l1 + l2) / n, l1_ratio=l1 / (l1 + l2), **exact)
            else:
                reference = Ridge(alpha=l2, solver="cholesky")
            reference.fit(rows.x, rows.y)
            weights, intercept = linear(trial)
            ours = rows.x @ weights + intercept
            np.testing.assert_allclose(ours, reference.predict(rows.x), rtol=1e-6, atol=1e-6 * rows.y.std())


def test_gbdt_equals_lightgbm_called_by_hand(flights: duckdb.DuckDBPyConnection) -> None:
    trained = train(
        flights,
        f"TRAIN MODEL m USING gbdt PREDICT arr_delay > 15 {FEATURES} {ROWS} "
        "OVER GRID (learning_rate IN (1, 0.1), num_leaves IN (10, 30)) VALIDATE NONE WITH (num_iterations = 10)",
    )
    gbdt = learner("gbdt")
    for group, prepared in trained.prepared():
        rows = prepared.train
        for trial in trained.outcome.found.trials.only(group):
            parameters = lightgbm_parameters(prepared.problem, trained.job.configs[trial.config])
            data = lightgbm.Dataset(rows.x, rows.y, weight=rows.weight, params=parameters)
            booster = lightgbm.train(parameters, data, num_boost_round=10)
            ours = gbdt.score(trained.job.target.label, trial.artifact, rows.x)[:, 0]
            np.testing.assert_allclose(ours, booster.predict(rows.x), rtol=0, atol=2**-43)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_mlp_equals_a_plain_torch_loop(flights: duckdb.DuckDBPyConnection, precision: str) -> None:
    """In single precision, rounding alone moves two loops apart with every step: there the carriers of few steps count."""
    trained = train(
        flights,
        f"TRAIN MODEL m USING mlp PREDICT arr_delay > 15 {FEATURES} {ROWS} "
        "OVER GRID (learning_rate IN (0.01, 0.001)) VALIDATE NONE "
        f"WITH (epochs = 2, hidden_layers = [8], batch_size = 256, precision = '{precision}')",
    )
    mlp = learner("mlp")
    for group, prepared in trained.prepared():
        rows = prepared.train
        if precision == "single" and rows.n_rows > 10_000:
            continue
        for trial in trained.outcome.found.trials.only(group):
            config = trained.job.configs[trial.config]
            dtype = torch.float64 if precision == "double" else torch.float32
            expected = torch_loop(rows, prepared.problem.seed, float(config["learning_rate"]), dtype)
            ours = mlp.score(trained.job.target.label, trial.artifact, rows.x)[:, 0]
            np.testing.assert_allclose(ours, expected, atol=1e-5)


@threadpool_limits.wrap(limits=1)  # a second thread costs small batches more than it saves
def torch_loop(rows: Shard, seed: int, learning_rate: float, dtype: torch.dtype) -> np.ndarray:
    network = torch.nn.Sequential(torch.nn.Linear(rows.x.shape[1], 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(dtype)
    problem = Problem(TWO_CLASSES, rows.x.shape[1], 2, seed)
    config: Config = {"hidden_layers": (8,), "activation": "relu"}
    start = torch.from_numpy(Mlp().init(problem, [{**config, "precision": "double"}]).tensors["parameters"])
    for module, (weight, bias) in zip(network[::2], shape_of(problem, config).layers(start.numpy()), strict=True):
        module.load_state_dict({"weight": torch.tensor(weight[0]), "bias": torch.tensor(bias[0])})
    optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
    x, y = torch.tensor(rows.x, dtype=dtype), torch.tensor(rows.y, dtype=dtype)
    for epoch in range(2):
        for batch in batches_in_order(rows, seed, epoch):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(network(x[batch])[:, 0], y[batch])
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return torch.sigmoid(network(x))[:, 0].numpy().astype(np.float64)


def batches_in_order(rows: Shard, seed: int, epoch: int) -> Iterator[torch.Tensor]:
    """Blocks in order, each in a shuffled order of its own; no batch has rows of two blocks."""
    for block, (start, stop) in enumerate(itertools.pairwise(rows.bounds)):
        order = torch.from_numpy(visiting_order(seed, epoch, stop - start, block))
        yield from (order + start).split(256)


def test_data_is_all_flights(flights: duckdb.DuckDBPyConnection) -> None:
    assert flights.execute("SELECT count(*) FROM flights").fetchone() == (336_776,)
