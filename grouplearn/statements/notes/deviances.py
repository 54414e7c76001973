"""Models whose deviance is worse than that of a constant, the mean of their group's labels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from grouplearn.catalog.notes import JUDGES
from grouplearn.catalog.poor_fits import advice
from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.dataset import Group
from grouplearn.data.shard import FloatArray
from grouplearn.models.metrics.deviances import has_constant, row_losses
from grouplearn.models.metrics.metric import FAR
from grouplearn.statements.notes.best_trials import BestTrials
from grouplearn.train.job import Job

#: Groups that have a note.
_MOST_GROUPS = 1000


def poor_deviances(job: Job, definition: ModelDefinition, best: BestTrials) -> Mapping[int, str]:
    """Return by group number the note on models whose deviance is far worse than a constant's on the rows that they learned
    from, or worse on held-out rows."""
    metric = definition.metric
    if not has_constant(metric):
        return {}
    learned, held_out = job.split.ever_trains(job.dataset.split), job.split.ever_judges(job.dataset.split)
    own = best.metric(metric, "train") > FAR * _of_constant(job, definition, best, learned)
    new = best.metric(metric, "valid") > _of_constant(job, definition, best, held_out)
    new &= _sums(held_out.astype(np.float64), best.groups) >= JUDGES
    told_own = f"the best trial is worse on its own rows than a constant: {advice(definition)}"
    told_new = f"no better on held-out rows than the mean, by valid_{metric}: try fewer features or more rows"
    poor = np.flatnonzero(own | new)[:_MOST_GROUPS].tolist()
    return {best.groups[place].id: told_own if own[place] else told_new for place in poor}


def _of_constant(job: Job, definition: ModelDefinition, best: BestTrials, rows: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the deviance of the mean of each group's labels among some rows; NaN without such rows."""
    counts = rows & np.isfinite(job.dataset.y)
    weight = np.where(counts, job.dataset.weight, 0.0)
    y = np.where(counts, job.dataset.y, 1.0)
    total = _sums(weight, best.groups)
    found = np.full(len(best.groups), np.nan)
    for number in np.unique(best.configs).tolist():
        own = best.configs == number
        (loss,) = row_losses([definition.metric], definition.configs[number])
        of_config = loss.of_constant(y, lambda values: _sums(weight * values, best.groups) / total)
        found[own] = of_config[own]
    return found


def _sums(values: FloatArray, groups: Sequence[Group]) -> FloatArray:
    """Return the sum of the values in each group's rows."""
    runs = np.array(list(itertools.chain.from_iterable(group.ranges for group in groups)), np.intp)
    of_runs = np.add.reduceat(np.append(values, 0.0), runs.ravel())[::2]
    first = np.cumsum([0, *(len(group.ranges) for group in groups)])[:-1]
    sums: FloatArray = np.add.reduceat(of_runs, first)
    return sums
