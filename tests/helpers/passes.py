"""Training by passes over blocks, as a unit trains a learner that needs sums."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from grouplearn.data.shard import Shard
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner
from grouplearn.models.state import State


def trained(
    learner: AlgebraicLearner, problem: Problem, configs: Sequence[Config], shard: Shard, rows: int, epochs: int
) -> State:
    """Return the state after so many ``epochs`` at most, each over blocks of ``rows``."""
    state = learner.init(problem, configs)
    for _ in range(epochs):
        blocks = [learner.accumulate(problem, configs, state, block) for block in shard.blocks(rows)]
        state = learner.step(problem, configs, state, functools.reduce(learner.merge, blocks))
        if state.done.all():
            break
    return state
