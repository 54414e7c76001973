"""Generalised linear models of few rows beside one that outweighs all others: whole groups and epoch by epoch end at the same
least objective, as the kernel for few rows, which is tested by itself, finds it."""

import numpy as np
import pytest
import scipy.sparse
from helpers.passes import trained
from helpers.stacks import stack_of

from grouplearn.data.shard import Shard
from grouplearn.kernels.linear import few_rows, generalised_linear
from grouplearn.learners import registry
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear.newton import NewtonSolver
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES

LEARNERS: dict[str, NewtonSolver] = {
    "logistic": registry.learner("logistic_regression"),
    "poisson": registry.learner("poisson_regression"),
    "squared_hinge": registry.learner("linear_svm"),
}
CONFIGS = [{"l1": 0.03, "l2": 0.0}, {"l1": 1.0, "l2": 0.0}, {"l1": 0.0, "l2": 0.1}]


def made(loss: str, rows: int, columns: int, classes: int = 2) -> tuple[Problem, Shard]:
    random = np.random.default_rng(1)
    x = random.normal(size=(rows, columns))
    x[0] *= 1e4 if loss != "poisson" else 1e2
    weight = random.uniform(0.5, 2, rows)
    if loss == "poisson":
        return Problem(NUMBER, columns, epochs=300), Shard(x, random.poisson(2, rows).astype(float), weight)
    label = TWO_CLASSES if classes == 2 else SEVERAL_CLASSES
    return Problem(label, columns, classes, epochs=300), Shard(
        x, random.integers(0, classes, rows).astype(float), weight
    )


def least(loss: str, shard: Shard, y: np.ndarray) -> np.ndarray:
    columns = [np.array([config[name] for config in CONFIGS]) for name in ("l1", "l2")]
    penalties = generalised_linear.GlmPenalties(*columns, np.full(3, 1e-9))
    found = few_rows.solve(shard.x, y, shard.weight, loss, True, penalties)
    assert found.converged.all()
    return found.value


@pytest.mark.examples(4)
@pytest.mark.parametrize("loss", LEARNERS)
@pytest.mark.parametrize(("rows", "columns"), [(30, 50), (60, 300)])
def test_epochs_and_stacks_end_at_the_least_objective(loss: str, rows: int, columns: int) -> None:
    learner, (problem, shard) = LEARNERS[loss], made(loss, rows, columns)
    expected = least(loss, shard, shard.y)
    dense = trained(learner, problem, CONFIGS, shard, 16, 300)
    sparse = trained(learner, problem, CONFIGS, Shard(scipy.sparse.csr_matrix(shard.x), shard.y, shard.weight), 16, 300)
    for state in (dense, sparse):
        assert state.done.all()
        assert state.tensors["loss"] == pytest.approx(expected, rel=1e-6)
    if columns <= 256:
        found = learner.solve(problem, CONFIGS, stack_of([shard, shard]), lambda _: None, lambda: False)
        assert found.converged.all()
        assert found.loss == pytest.approx(np.array([expected, expected]), rel=1e-6)
        ends = np.array([[found.curve[found.epochs[g, c] - 1, g, c] for c in range(3)] for g in range(2)])
        np.testing.assert_array_equal(ends, found.loss)


def test_each_class_against_the_rest_ends_too() -> None:
    learner, (problem, shard) = LEARNERS["squared_hinge"], made("squared_hinge", 30, 50, 3)
    expected = np.sum([least("squared_hinge", shard, (shard.y == place).astype(float)) for place in range(3)], axis=0)
    state = trained(learner, problem, CONFIGS, shard, 16, 300)
    found = learner.solve(problem, CONFIGS, stack_of([shard]), lambda _: None, lambda: False)
    assert state.done.all()
    assert found.converged.all()
    assert state.tensors["loss"] == pytest.approx(expected, rel=1e-6)
    assert found.loss[0] == pytest.approx(expected, rel=1e-6)


def test_few_epochs_are_no_more_than_asked_for() -> None:
    learner, (problem, shard) = LEARNERS["squared_hinge"], made("squared_hinge", 30, 50)
    problem = Problem(TWO_CLASSES, 50, 2, epochs=5)
    found = learner.solve(problem, CONFIGS, stack_of([shard]), lambda _: None, lambda: False)
    assert found.epochs.max() == 5
    assert not found.converged[0, 0]


def test_it_stops_on_rows_where_it_is_told_to() -> None:
    learner, (problem, shard) = LEARNERS["squared_hinge"], made("squared_hinge", 78, 129)
    asked = []

    def cancelled() -> bool:
        asked.append(None)
        return len(asked) > 1

    with pytest.raises(Interrupted):
        learner.solve(problem, CONFIGS, stack_of([shard] * 40), lambda _: None, cancelled)


@pytest.mark.examples(1)
@pytest.mark.parametrize("seed", [0, 1])
def test_what_the_gradient_does_not_prove_is_not_said_to_have_converged(seed: int) -> None:
    """Beside rows of 10,000s the steps of a guessed matrix promise nothing at 1.8 times the least objective."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(600, 300))
    x[:3] *= 1e4
    x[5, 0] = 1e4
    score = 2 * (x - x.mean(0)) / x.std(0) @ random.normal(size=300) / np.sqrt(300)
    shard = Shard(x, random.poisson(np.exp(np.clip(score, -4, 4))).astype(float), np.ones(600))
    problem, learner = Problem(NUMBER, 300, epochs=300), LEARNERS["poisson"]
    state = trained(learner, problem, CONFIGS, shard, 16_384, 300)
    assert state.done[2]
    assert state.tensors["loss"][2] == pytest.approx(least("poisson", shard, shard.y)[2], rel=1e-6)
