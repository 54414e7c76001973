"""The rows of a job on their way to workers: maps of its files, or objects of Ray's store, of which each fetches its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from grouplearn.data.dataset import Dataset, Group
from grouplearn.data.shard import RowNumbers
from grouplearn.runtime.job import Job
from grouplearn.runtime.ray_cluster import import_ray
from grouplearn.runtime.rows import RowsAtHand, RowSource, dataset_bytes, joined, pick
from grouplearn.runtime.unit import group_of

#: How long a worker waits for rows, or for a product that another one made.
FETCH_SECONDS = 60.0
#: Bytes of rows that are one object: few enough that a worker fetches little that it does not need.
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """The rows ``start`` to ``stop`` of a job's dataset, as one object of the store."""

    start: int
    stop: int
    rows: Any


def sent_job(ray: Any, job: Job) -> Job:
    """Return the job as workers get it: without its rows, and with the files that have them if they can open these."""
    files = job.dataset.files if _on_one_machine(ray) else None
    return replace(job, dataset=replace(pick(job.dataset, slice(0, 0)), files=files))


def put_rows(ray: Any, job: Job) -> list[Chunk]:
    """Put the job's rows into the store, without the texts that all rows share; nothing where workers map its files."""
    if job.dataset.files is not None and _on_one_machine(ray):
        return []
    bare = replace(job.dataset, dictionaries=(), classes=())
    return [Chunk(start, stop, ray.put(pick(bare, slice(start, stop)))) for start, stop in cut_rows(job)]


def _on_one_machine(ray: Any) -> bool:
    """Return whether all workers share this machine: the driver is on one of the cluster's nodes, and there is one."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    return len(alive) == 1


def rows_of(job: Job, chunks: Sequence[Chunk]) -> tuple[Job, RowSource]:
    """Return a job as it was sent and where its rows come from; of files, the job has the rows."""
    if job.dataset.files is None:
        return job, FetchedRows(job, chunks)
    mapped = replace(job, dataset=job.dataset.files.open())
    return mapped, RowsAtHand(mapped)


def cut_rows(job: Job) -> list[tuple[int, int]]:
    """Return runs of dataset rows of about ``CHUNK_BYTES``, that end where groups end wherever one is not too large."""
    n_rows = job.dataset.n_rows
    most = max(1, CHUNK_BYTES * n_rows // max(1, dataset_bytes(job.dataset)))
    ends = sorted({bound for group in job.groups for run in group.ranges for bound in run} | {n_rows})
    runs, start, last = [], 0, 0
    for end in ends:
        if end - start > most and last > start:
            runs.append((start, last))
            start = last
        while end - start > most:
            runs.append((start, start + most))
            start += most
        last = end
    return [*runs, (start, n_rows)] if start < n_rows else runs


class FetchedRows:
    """Rows that are fetched from the object store as they are needed; on one machine this shares memory."""

    def __init__(self, job: Job, chunks: Sequence[Chunk]) -> None:
        self._job, self._chunks = job, chunks

    def job_of(self, groups: Sequence[int]) -> tuple[Job, int]:
        """Return the job with the rows of these groups alone, and the bytes of these rows."""
        pieces, moved, start = [], [], 0
        for number in groups:
            group = group_of(self._job, number)
            pieces += [self._run(first, last) for first, last in group.ranges]
            moved.append(Group(group.id, group.level, group.keys, ((start, start + group.n_rows),)))
            start += group.n_rows
        data = self._named(joined(pieces or [self._job.dataset]))
        return replace(self._job, dataset=data, groups=tuple(moved)), dataset_bytes(data)

    def take(self, rows: RowNumbers) -> Dataset:
        """Return rows by their numbers in the job's dataset."""
        parts, start = [], 0
        while start < rows.size:
            chunk = self._chunk(int(rows[start]))
            inside = (rows[start:] >= chunk.start) & (rows[start:] < chunk.stop)
            stop = start + (int(inside.argmin()) if not inside.all() else inside.size)
            parts.append(pick(self._fetch(chunk), rows[start:stop] - chunk.start))
            start = stop
        return self._named(joined(parts or [self._job.dataset]))

    def _run(self, first: int, last: int) -> Dataset:
        parts = []
        while first < last:
            chunk = self._chunk(first)
            stop = min(last, chunk.stop)
            parts.append(pick(self._fetch(chunk), slice(first - chunk.start, stop - chunk.start)))
            first = stop
        return joined(parts or [self._job.dataset])

    def _chunk(self, row: int) -> Chunk:
        return next(chunk for chunk in self._chunks if chunk.start <= row < chunk.stop)

    def _fetch(self, chunk: Chunk) -> Dataset:
        data: Dataset = import_ray().get(chunk.rows, timeout=FETCH_SECONDS)
        return data

    def _named(self, data: Dataset) -> Dataset:
        own = self._job.dataset
        return replace(data, dictionaries=own.dictionaries, classes=own.classes)
