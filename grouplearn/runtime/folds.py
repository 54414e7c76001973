"""All folds of small and large groups in one pass: a model needs moments only, and a fold's are merged from the other folds'."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners import linear_model, moments
from grouplearn.learners.base import Config, MomentsLearner, Problem, Solved
from grouplearn.learners.padded import Padded, padded
from grouplearn.learners.stack_metrics import first_alike, measure_stack
from grouplearn.runtime.packed import mean_known
from grouplearn.runtime.prepare_stack import PreparedFolds


def solve_folds(
    learner: MomentsLearner, configs: Sequence[Config], prepared: PreparedFolds, wanted: Collection[str]
) -> tuple[Solved, dict[str, FloatArray]]:
    """Return the models of all rows, and the means over folds of the ``wanted`` metrics on the rows that a fold holds out.

    The moments of the rows that train fold f are merged from those of the other folds, so every row is read once for
    sums and once to be measured, whatever the number of folds and configs.
    """
    problem = prepared.problem
    parts = [padded(prepared.rows.where(prepared.fold == fold)) for fold in range(prepared.n_folds)]
    by_fold = [moments.stack_moments(part.x, part.y[:, :, None], part.weight) for part in parts]
    folds = {name: np.stack([sums[name] for sums in by_fold], axis=1) for name in by_fold[0]}
    sums = moments.leave_one_out(folds)
    every = learner.solve_moments(problem, configs, sums)
    models = [_of_fold(every, fold) for fold in range(len(by_fold) + 1)]
    whole = {name: value[:, -1] for name, value in sums.items()}
    models[-1].loss[learner.unclear(configs, whole, prepared.rows)] = np.nan
    measured = [
        _measured(learner, problem, solved, part, wanted) for solved, part in zip(models[:-1], parts, strict=True)
    ]
    # A mean over some of the folds would be that of the easier ones.
    sound = np.all([np.isfinite(solved.loss) for solved in models[:-1]], axis=0)
    return models[-1], {name: np.where(sound, mean, np.nan) for name, mean in mean_known(measured).items()}


def _of_fold(every: Solved, fold: int) -> Solved:
    """Return the models of one fold's training rows, or of all rows for the last."""
    return Solved(
        every.weights[:, fold],
        every.intercept[:, fold],
        every.loss[:, fold],
        every.epochs[:, fold],
        every.curve[:, :, fold],
        every.converged[:, fold],
    )


def _measured(
    learner: MomentsLearner, problem: Problem, solved: Solved, rows: Padded, wanted: Collection[str]
) -> dict[str, FloatArray]:
    scores = linear_model.stack_scores(learner, problem.task, rows.x, solved)
    found = measure_stack(problem, scores, rows.y, rows.weight, wanted)
    broken, alike = ~np.isfinite(solved.loss), first_alike(solved)
    return {name: np.where(broken, np.nan, np.take_along_axis(each, alike, axis=1)) for name, each in found.items()}
