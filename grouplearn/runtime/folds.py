"""All folds of small and large groups in one pass: a model needs moments only, and held-out rows are a difference of sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grouplearn.data.shard import FloatArray, Stack
from grouplearn.learners import linear_model, moments
from grouplearn.learners.base import Config, MomentsLearner, Problem, Solved
from grouplearn.learners.stack_metrics import measure_stack
from grouplearn.runtime.packed import mean_known
from grouplearn.runtime.prepare_stack import PreparedFolds


def solve_folds(
    learner: MomentsLearner, configs: Sequence[Config], prepared: PreparedFolds
) -> tuple[Solved, dict[str, FloatArray]]:
    """Return the models of all rows, and the means over folds of the metrics on the rows that a fold holds out.

    The moments of the rows that train fold f are those of all rows without those of fold f, so every row is read once for
    sums and once to be measured, whatever the number of folds and configs.
    """
    problem = prepared.problem
    by_fold = [moments.stack_moments(part.x, part.y[:, :, None], part.weight) for part in prepared.parts]
    folds = {name: np.stack([sums[name] for sums in by_fold], axis=1) for name in by_fold[0]}
    every = learner.solve_moments(problem, configs, moments.leave_one_out(folds))
    models = [_of_fold(every, fold) for fold in range(len(by_fold) + 1)]
    measured = [
        _measured(learner, problem, solved, part) for solved, part in zip(models[:-1], prepared.parts, strict=True)
    ]
    return models[-1], mean_known(measured)


def _of_fold(every: Solved, fold: int) -> Solved:
    """Return the models of one fold's training rows, or of all rows for the last."""
    return Solved(
        every.weights[:, fold],
        every.intercept[:, fold],
        every.loss[:, fold],
        every.epochs[:, fold],
        every.curve[:, :, fold],
    )


def _measured(learner: MomentsLearner, problem: Problem, solved: Solved, rows: Stack) -> dict[str, FloatArray]:
    scores = linear_model.stack_scores(learner, problem.task, rows.x, solved)
    found = measure_stack(problem.task, problem.n_classes, scores, rows.y, rows.weight)
    broken = ~np.isfinite(solved.loss)
    return {name: np.where(broken, np.nan, values) for name, values in found.items()}
