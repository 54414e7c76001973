"""What units take and move, against hand-computed cases, and that more work never costs less."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grouplearn
from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES
from grouplearn.plan.cost import durations as cost
from grouplearn.plan.cost.coefficients import Machine, Rates

NAMES = sorted(registry.LEARNERS)
#: Powers of two, so that sums are exact.
KNOWN = Coefficients(
    gradient=2.0**-30, row=2.0**-29, update=2.0**-12, step=2.0**-11, read=2.0**-28, config=0.25, group=0.5
)


def rates(learner: str, **changes: float) -> Rates:
    return Rates({learner: replace(KNOWN, **changes)}, Machine(load=0.5, encode=2.0**-20))


def config_of(learner: str, **values: object) -> dict:
    return {entry.name: entry.default for entry in registry.learner(learner).declaration.hyperparameters} | values


def test_a_unit_of_an_algebraic_learner() -> None:
    learner, configs = registry.learner("logistic_regression"), [{}, {}]
    seconds = cost.unit_seconds(learner, configs, 1024, 8, 10, 3, 2, rates(learner.declaration.name))
    fixed = 0.5 * 2 + 0.25 * 2 + 2.0**-28 * 1024 * 8
    gradients = 2 * 10 * (2.0**-30 * 8 + 2.0**-29) * 1024 * 3
    assert seconds == fixed + gradients + 2 * 10 * 2.0**-12 + 10 * 2.0**-11


def test_typical_epochs_cap_the_passes_and_a_correction_multiplies_everything() -> None:
    learner = registry.learner("logistic_regression")
    few = cost.unit_seconds(learner, [{}], 100, 4, 40, 1, rates=rates(learner.declaration.name))
    capped = cost.unit_seconds(learner, [{}], 100, 4, 1000, 1, rates=rates(learner.declaration.name, typical_epochs=40))
    doubled = cost.unit_seconds(learner, [{}], 100, 4, 40, 1, rates=rates(learner.declaration.name, correction=2.0))
    assert few == capped
    assert doubled == 2 * few


def test_eigenvectors_take_as_long_on_any_number_of_workers() -> None:
    """For every group, but once for all its configurations: 2,000 columns were said to take as long as two."""
    pca = registry.learner("pca")
    sums, whole = (
        cost.unit_seconds(pca, [{}, {}], 4096, 8, 1, 1, 2, rates("pca"), columns=columns) for columns in (0, 1000)
    )
    alone = cost.solving_seconds(pca, 2048, 1000, KNOWN)
    assert whole == sums + 2 * alone
    assert alone > 0.5
    assert cost.solving_seconds(pca, 2048, 100, KNOWN) == pytest.approx(alone / 1000)
    assert cost.solving_seconds(pca, 10, 1000, KNOWN) == pytest.approx(alone / 10000)
    with grouplearn.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 'k' || i AS c, i % 7 AS x FROM range(200000) AS r(i)")
        text = "EXPLAIN (FORMAT json) TRAIN MODEL m USING pca FEATURES (hash(c, 2000), x) FROM t WITH (workers = 4)"
        found = json.loads(con.execute(text).fetchall()[0][0])["operators"]
    least = cost.solving_seconds(pca, 200_000, 2001, pca.cost.coefficients)
    assert least > 3
    assert {each["operator"] for each in found} > {"gap", "group_task_parallel"}
    assert all(least < each["makespan_seconds"] < 2 * least for each in found)


def test_updates_of_each_access_pattern() -> None:
    mlp, gbdt, linear = (registry.learner(name) for name in ("mlp", "gbdt", "linear_regression"))
    assert mlp.cost.updates({"batch_size": 32}, 1000, 8) == 32  # ceil(1000 / 32)
    assert linear.cost.updates({}, 1000, 8) == 1
    assert gbdt.cost.updates({"num_leaves": 31, "min_data_in_leaf": 20}, 100_000, 8) == 31 * 8
    assert gbdt.cost.updates({"num_leaves": 31, "min_data_in_leaf": 20}, 100, 8) == 5 * 8  # 100 / 20 leaves
    assert [each.cost.steps({}, 1000) for each in (mlp, gbdt, linear)] == [32, 1, 1]


def test_loading() -> None:
    assert cost.load_seconds(1024, 8, rates("mlp")) == 0.5 + 2.0**-20 * 1024 * 8
    assert cost.row_bytes(6) == 64
    assert cost.row_bytes(6, single=True) == 40


@given(
    name=st.sampled_from(NAMES),
    rows=st.integers(1, 100_000),
    more=st.integers(0, 100_000),
    width=st.integers(1, 500),
    epochs=st.integers(1, 200),
    longer=st.integers(0, 200),
    configs=st.integers(1, 20),
)
def test_more_rows_configs_and_epochs_never_take_less(
    name: str, rows: int, more: int, width: int, epochs: int, longer: int, configs: int
) -> None:
    learner, config = registry.learner(name), config_of(name)

    def seconds(n_rows: int, n_configs: int, n_epochs: int) -> float:
        rounds = config | {"num_iterations": n_epochs} if "num_iterations" in config else config
        return cost.unit_seconds(learner, [rounds] * n_configs, n_rows, width, n_epochs, 1)

    least = seconds(rows, configs, epochs)
    assert least > 0
    assert seconds(rows + more, configs, epochs) >= least
    assert seconds(rows, configs + 1, epochs) >= least
    assert seconds(rows, configs, epochs + longer) >= least
    assert cost.state_bytes(learner, [config] * (configs + 1), width, 1) > cost.state_bytes(
        learner, [config] * configs, width, 1
    )


@pytest.mark.parametrize(
    ("name", "outputs"), [("linear_regression", 1), ("mlp", 1), ("poisson_regression", 1), ("linear_svm", 3)]
)
@pytest.mark.parametrize("width", [20, 60, 300])
def test_state_bytes_are_those_of_a_real_state(name: str, width: int, outputs: int) -> None:
    learner, configs = registry.learner(name), [config_of(name)] * 4
    problem = Problem(NUMBER if outputs == 1 else SEVERAL_CLASSES, width, 0 if outputs == 1 else outputs)
    state = learner.init(problem, configs)
    if isinstance(learner, AlgebraicLearner) and learner.declaration.default_epochs:
        rows = Shard(np.random.default_rng(0).random((400, width)), np.ones(400), np.ones(400))
        state = learner.step(problem, configs, state, learner.accumulate(problem, configs, state, rows))
    real = sum(tensor.nbytes for tensor in state.tensors.values())
    assert cost.state_bytes(learner, configs, width, outputs) == pytest.approx(real, rel=0.25)  # layers are padded


@pytest.mark.parametrize(
    "name", ["logistic_regression", "linear_regression", "poisson_regression", "linear_svm", "gbdt"]
)
def test_models_of_a_million_columns_are_estimated_by_their_columns(name: str) -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT 'k' || i AS k, i % 2 AS y FROM range(30000) AS r(i)")
        statement = f"TRAIN MODEL m USING {name} PREDICT y FEATURES (hash(k, 1000000)) FROM t WITH (workers = 2)"
        plan = json.loads(con.execute(f"EXPLAIN (FORMAT json) {statement}").fetchall()[0][0])
    operators = {each["operator"]: each for each in plan["operators"]}
    fewest = 8_000_000 if name == "gbdt" else 8 * 29_000  # linear models have the columns that rows set
    assert operators["gap"]["network_bytes"] > fewest
    if name != "gbdt":  # whose models are as large as their trees
        assert operators["group_task_parallel"]["peak_bytes_per_worker"] > fewest
