"""Counts the rows of a group that train: a gang shares only these, which may be far fewer than all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grouplearn.data.dataset import Group
from grouplearn.interrupting import with_checks
from grouplearn.learners.contract.ways import batch_rows
from grouplearn.schedule.workload import Workload
from grouplearn.train.job import Job
from grouplearn.train.rows.sampled import share_of
from grouplearn.train.rows.used import GroupRuns, adjoining, forget, has_weight


def with_training_rows(workload: Workload, job: Job) -> Workload:
    """Return the workload with the numbers of training rows for groups of several blocks and for learners with batches;
    sums need only the numbers of all rows."""
    if not workload.in_gangs or workload.most_places < 2:
        return workload
    rows = list(workload.rows)
    for group in with_checks(job.groups):
        if group.n_rows > workload.block_rows:
            rows[group.id] = _training_rows(job, group)
    return replace(workload, training_rows=tuple(rows), batch_rows=batch_rows(job.trainer, job.configs))


def _training_rows(job: Job, group: Group) -> int:
    """Return the number of rows with label and weight that are not held out, in the fold with fewest."""
    data, kinds = job.dataset, 1 + job.split.farthest
    counts = np.zeros(kinds, dtype=np.int64)
    for numbers, _ in GroupRuns([group]):
        rows = adjoining(numbers)
        used = has_weight(data.y[rows], data.weight[rows])
        counts += np.bincount(data.split[rows][used], minlength=kinds)[:kinds]
        forget(data, numbers)
    return int(job.split.fewest_training(counts) * share_of(job.round.share, group.n_rows))
