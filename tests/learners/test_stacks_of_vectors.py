"""Groups that k-means and PCA train in one call have the bits, passes and metrics of each group alone, step by step."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers import measuring as metrics
from helpers.stacks import stack_of

from grouplearn.data.shard import Shard, Stack
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import StackLearner
from grouplearn.learners.unsupervised.kmeans import KMeans
from grouplearn.learners.unsupervised.one_pass.coreset import CoresetKMeans
from grouplearn.learners.unsupervised.one_pass.facility_location import FacilityKMeans
from grouplearn.learners.unsupervised.pca import Pca
from grouplearn.models.label import CLUSTERING, PROJECTION, Label
from grouplearn.models.state import State

SIZES = (30, 500, 9_000, 4, 12_000)
CASES: dict[str, tuple[StackLearner, Label, list[Config]]] = {
    "kmeans": (
        KMeans(),
        CLUSTERING,
        [{"k": k, "n_init": 2, "tolerance": tolerance} for k in (1, 2, 9) for tolerance in (0.0, 1e-3)],
    ),
    "kmeans by coreset": (
        CoresetKMeans(),
        CLUSTERING,
        [
            {"k": k, "n_init": 2, "tolerance": tolerance, "k_max": 9, "coreset_rows": 1_000}
            for k in (1, 2, 9)
            for tolerance in (0.0, 1e-3)
        ],
    ),
    "kmeans by facility_location": (
        FacilityKMeans(),
        CLUSTERING,
        [{"k": k, "n_init": 2, "tolerance": 0.0, "k_max": 9, "facility_cost": 0.02} for k in (1, 2, 9, None)],
    ),
    "pca": (Pca(), PROJECTION, [{"n_components": each} for each in (None, 1, 3, 40)]),
}


def groups() -> list[Shard]:
    random = np.random.default_rng(0)
    return [
        Shard(random.normal(size=(n, 5)) + random.integers(0, 3, (n, 1)) * 4, np.zeros(n), random.uniform(0.5, 2, n))
        for n in SIZES
    ]


def by_steps(
    learner: StackLearner, problem: Problem, configs: Sequence[Config], rows: Shard
) -> tuple[State, np.ndarray]:
    state, curve = learner.init(problem, configs), []
    while not state.done.all() and len(curve) < problem.epochs:
        active = ~state.done
        state = learner.step(problem, configs, state, learner.accumulate(problem, configs, state, rows))
        curve.append(np.where(active, learner.losses(state), np.nan))
    return state, np.array(curve)


@pytest.mark.parametrize("epochs", [300, 3, 1])
@pytest.mark.parametrize("name", CASES)
def test_a_stack_is_each_group_alone(name: str, epochs: int) -> None:
    learner, label, configs = CASES[name]
    shards, seeds = groups(), np.arange(11, 16, dtype=np.uint64)
    problem = Problem(label, 5, epochs=epochs if learner.declaration.default_epochs else 1)
    told: list[int] = []
    stack = replace(stack_of(shards), seed=seeds)
    solved = learner.solve(problem, configs, stack, told.append, lambda: False)
    assert solved.sound.all()
    assert sum(told) == solved.epochs.sum()
    wanted = metrics.metrics_for(label)
    measured, tensors = learner.measure(problem, configs, stack, solved, wanted), solved.tensors()
    for group, rows in enumerate(shards):
        own = replace(problem, seed=int(seeds[group]))
        state, curve = by_steps(learner, own, configs, rows)
        for place in range(len(configs)):
            for tensor, each in learner.finalize(own, configs, state, place).tensors.items():
                beside = tensors[tensor][group * len(configs) + place]
                assert (beside.shape, beside.tobytes()) == (each.shape, each.tobytes())
        np.testing.assert_array_equal(solved.epochs[group], np.isfinite(curve).sum(axis=0))
        np.testing.assert_allclose(solved.curve[: len(curve), group], curve, rtol=1e-13)
        np.testing.assert_array_equal(solved.converged[group], state.done)
        scores = learner.scores(own, configs, state, rows.x)
        alone = metrics.finish(metrics.measure(label, 0, scores, rows.y, rows.weight), *wanted)
        for metric in wanted:
            assert alone[metric].tobytes() == measured[metric][group].tobytes(), metric


@pytest.mark.parametrize("name", CASES)
def test_held_out_rows_of_some_groups(name: str) -> None:
    learner, label, configs = CASES[name]
    stack = replace(stack_of(groups()), seed=np.arange(5, dtype=np.uint64))
    problem = Problem(label, 5, epochs=50 if learner.declaration.default_epochs else 1)
    solved = learner.solve(problem, configs, stack, lambda _: None, lambda: False)
    held_out = Stack(stack.x[:200], stack.y[:200], stack.weight[:200], np.minimum(stack.start, 200), stack.seed)
    found = learner.measure(problem, configs, held_out, solved, metrics.metrics_for(label))
    for values in found.values():
        assert np.isfinite(values[:2]).all()
        assert np.isnan(values[2:]).all()


def test_groups_without_directions_have_no_components() -> None:
    learner, label, configs = CASES["pca"]
    shards = groups()[:3]
    shards[1] = replace(shards[1], x=np.ones((500, 5)))
    shards[2] = replace(shards[2], x=shards[2].x * 1e200)
    solved = learner.solve(Problem(label, 5), configs, stack_of(shards), lambda _: None, lambda: False)
    assert solved.sound.tolist() == [True, False, False]
