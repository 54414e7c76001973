"""States that were read from a file: honest ones are gone on from, others are not, whatever a kernel would do with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner, SequentialLearner
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.state import State

ROWS, COLUMNS = 300, 4
KINDS: dict[str, tuple[str, Label, int, Config]] = {
    "logistic": ("logistic_regression", TWO_CLASSES, 2, {"l2": 1.0}),
    "softmax": ("logistic_regression", SEVERAL_CLASSES, 3, {"l1": 1.0}),
    "poisson": ("poisson_regression", NUMBER, 0, {"l2": 1.0}),
    "svm": ("linear_svm", TWO_CLASSES, 2, {"l2": 1.0}),
    "svm of classes": ("linear_svm", SEVERAL_CLASSES, 3, {"l2": 1.0}),
    "hinge": ("linear_svm", TWO_CLASSES, 2, {"l2": 1.0, "loss": "hinge"}),
    "hinge of classes": ("linear_svm", SEVERAL_CLASSES, 3, {"l2": 1.0, "loss": "hinge"}),
    "least squares": ("linear_regression", NUMBER, 0, {"l1": 1.0}),
    "mlp": ("mlp", SEVERAL_CLASSES, 3, {}),
}
#: Numbers of a model in training that lead somewhere: ``Field`` in ``generalised_linear/epochs.cpp``.
STRIDE, PASSES, RETRIES, AGE, STEPS, SMOOTHING, ANEW = 1, 2, 8, 9, 10, 20, 21


def trained(kind: str) -> tuple[Any, Problem, list[Config], State]:
    """Two configs after some epochs."""
    name, label, classes, config = KINDS[kind]
    learner = registry.learner(name)
    rng = np.random.default_rng(3)
    y = rng.integers(0, max(2, classes), size=ROWS).astype(float)
    shard = Shard(rng.normal(size=(ROWS, COLUMNS)), y, np.ones(ROWS))
    problem = Problem(label, COLUMNS, classes, 5, 7)
    configs = [dict(config), dict(config)]
    state = learner.init(problem, configs)
    for epoch in range(3):
        if name == "mlp":
            state = cast(SequentialLearner, learner).train(problem, configs, state, shard, epoch)
        else:
            sums = cast(AlgebraicLearner, learner).accumulate(problem, configs, state, shard)
            state = cast(AlgebraicLearner, learner).step(problem, configs, state, sums)
    return learner, problem, configs, state


def with_tensor(state: State, name: str, change: Callable[[Any], Any]) -> State:
    return State({**state.tensors, name: change(state.tensors[name].copy())}, state.done)


def set_number(place: int, value: float) -> Callable[[Any], Any]:
    def change(tensor: Any) -> Any:
        tensor[..., place] = value
        return tensor

    return change


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_state_is_gone_on_from_and_no_other(kind: str) -> None:
    learner, problem, configs, state = trained(kind)
    again = State.from_bytes(state.to_bytes())
    assert learner.resumes(problem, configs, learner.init(problem, configs))
    assert learner.resumes(problem, configs, again)
    begun = learner.init(problem, configs)
    for name in begun.tensors.keys() | (state.tensors.keys() & {"solver", "class_loss", "class_done"}):
        for change in (
            lambda each: each[..., :0],
            lambda each: each.astype(np.float16),
            lambda each: each[None],
            lambda each: np.zeros((), each.dtype),
        ):
            assert not learner.resumes(problem, configs, with_tensor(again, name, change)), name
        if name in begun.tensors:
            lacking = {each: tensor for each, tensor in again.tensors.items() if each != name}
            assert not learner.resumes(problem, configs, State(lacking, again.done)), name
    assert not learner.resumes(problem, configs[:1], again)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("mlp", "least squares")])
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (STRIDE, 0.0),
        (STRIDE, np.nan),
        (PASSES, -1.0),
        (RETRIES, 1e300),
        (AGE, 0.5),
        (STEPS, 1e6),
        (STEPS, -1.0),
        (STEPS, np.nan),
        (SMOOTHING, 0.0),
        (SMOOTHING, 2.0),
        (SMOOTHING, np.nan),
        (ANEW, -1.0),
        (ANEW, 0.5),
    ],
)
def test_counts_of_a_solver_are_counts(kind: str, place: int, value: float) -> None:
    """The solver divides rows by one of them, and looks that many steps back by another; a smooth hinge is none of width 0."""
    learner, problem, configs, state = trained(kind)
    assert not learner.resumes(problem, configs, with_tensor(state, "solver", set_number(place, value)))


@pytest.mark.parametrize("name", ["step", "visited"])
def test_counts_of_a_network_are_counts(name: str) -> None:
    learner, problem, configs, state = trained("mlp")
    assert not learner.resumes(problem, configs, with_tensor(state, name, lambda each: each - 10_000))


def test_networks_that_come_together_go_on() -> None:
    learner, problem, configs, state = trained("mlp")
    both = state
    for name in ("label_mean", "label_scale"):
        both = with_tensor(both, name, lambda each: np.repeat(each, len(configs)))
    assert learner.resumes(problem, configs, both)
