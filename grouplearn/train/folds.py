"""All folds of a group in one pass over its rows: each has its own moments, and trains on the sum of the others'."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from grouplearn.data.shard import FloatArray, Stack
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import MomentsLearner, states_of
from grouplearn.learners.linear.least_squares import moments
from grouplearn.learners.linear.solved import SolvedLinear, measure
from grouplearn.train.results.outcome import mean_known
from grouplearn.train.rows.prepare_stack import FoldOf, PreparedStack


def solve_folds(
    learner: MomentsLearner, configs: Sequence[Config], stack: PreparedStack, folds: FoldOf, wanted: Collection[str]
) -> tuple[SolvedLinear, dict[str, FloatArray]]:
    """Return the models of all rows, and the means over folds of the ``wanted`` metrics on their held-out rows.

    The moments that train fold f are merged from the other folds', so every row is read once for sums and once for metrics,
    whatever the number of folds and configs.
    """
    rows, (fold_of, n_folds) = stack.train, folds
    run = moments.at_a_time(stack.problem.n_features, n_folds + 1)
    parts, means = [], []
    for first in range(0, rows.n_groups, run):
        last = min(first + run, rows.n_groups)
        fold = fold_of[rows.start[first] : rows.start[last]]
        solved, mean = _solve_some(learner, configs, stack.problem, rows.part(first, last), (fold, n_folds), wanted)
        parts.append(solved)
        means.append(mean)
    return SolvedLinear.joined(parts), {name: np.concatenate([mean[name] for mean in means]) for name in means[0]}


def _solve_some(
    learner: MomentsLearner,
    configs: Sequence[Config],
    problem: Problem,
    rows: Stack,
    folds: FoldOf,
    wanted: Collection[str],
) -> tuple[SolvedLinear, dict[str, FloatArray]]:
    sums = moments.leave_one_out(moments.fold_moments(rows, *folds))
    every = cast(SolvedLinear, learner.solve_moments(problem, configs, sums))
    whole = {name: value[:, -1] for name, value in sums.items()}
    final = _of_all_rows(every)
    final = replace(final, states=states_of(whole)) if rows.keeps_sums else final
    final.loss[learner.unclear(configs, whole, rows)] = np.nan
    known = np.isfinite(every.loss[:, :-1])
    measured = measure(learner, problem, rows, every, wanted, folds)
    # A mean over only some folds would be that of the easier ones.
    sound = known.all(axis=1)
    means = {
        name: mean_known(np.where(known, each[:, : folds[1]], np.nan).swapaxes(0, 1)) for name, each in measured.items()
    }
    return final, {name: np.where(sound, mean, np.nan) for name, mean in means.items()}


def _of_all_rows(every: SolvedLinear) -> SolvedLinear:
    """Return the models of all rows, which follow those of the folds."""
    return SolvedLinear(
        every.weights[:, -1],
        every.intercept[:, -1],
        every.loss[:, -1],
        every.epochs[:, -1],
        every.curve[:, :, -1],
        every.converged[:, -1],
    )
