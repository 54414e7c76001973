"""Where a worker's rows come from, and how many bytes of them it loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from grouplearn.data.dataset import Dataset
from grouplearn.data.lists import Lists
from grouplearn.data.shard import RowNumbers
from grouplearn.train.job import Job, groups_of
from grouplearn.train.rows.used import forget


class RowSource(Protocol):
    """Gives a worker the rows of a job that it needs; every wait has a limit."""

    def job_of(self, groups: Sequence[int]) -> tuple[Job, int]:
        """Return the job with at least the rows of these groups, and the bytes of these rows."""
        ...

    def take(self, rows: RowNumbers) -> Dataset:
        """Return rows by their numbers in the job's dataset, in the order given."""
        ...


class RowsAtHand:
    """The rows of a job in this process."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._row_bytes = row_bytes(job.dataset)

    def job_of(self, groups: Sequence[int]) -> tuple[Job, int]:
        """Return the job unchanged, and the bytes of these groups' rows."""
        rows = sum([stop - start for group in groups_of(self._job, groups) for start, stop in group.ranges])
        return self._job, rows * self._row_bytes

    def take(self, rows: RowNumbers) -> Dataset:
        """Return a copy of these rows."""
        taken = pick(self._job.dataset, rows)
        forget(self._job.dataset, rows)
        return taken


def pick(dataset: Dataset, rows: RowNumbers | slice) -> Dataset:
    """Return some rows of a dataset with their own list entries: a copy by numbers, a view for a slice."""
    lists = dataset.lists and dataset.lists.rows(rows).packed()
    return replace(
        dataset,
        files=None,
        lists=lists,
        numeric=dataset.numeric[rows],
        codes=dataset.codes[rows],
        y=dataset.y[rows],
        weight=dataset.weight[rows],
        split=dataset.split[rows],
    )


def joined(parts: Sequence[Dataset]) -> Dataset:
    """Return the rows of all parts in order; a single part unchanged."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        numeric=np.concatenate([part.numeric for part in parts]),
        codes=np.concatenate([part.codes for part in parts]),
        y=np.concatenate([part.y for part in parts]),
        weight=np.concatenate([part.weight for part in parts]),
        split=np.concatenate([part.split for part in parts]),
        lists=Lists.joined(lists) if (lists := [part.lists for part in parts if part.lists is not None]) else None,
    )


def dataset_bytes(data: Dataset) -> int:
    """Return the bytes of a dataset's rows."""
    return data.n_bytes


def row_bytes(data: Dataset) -> int:
    """Return the bytes of one row."""
    return dataset_bytes(data) // max(1, data.n_rows)
