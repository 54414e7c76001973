"""A job's rows for workers: files that all workers map, or objects in Ray's store that they fetch as needed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grouplearn.data.dataset import Dataset, DatasetFiles, Group
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.data.shard import RowNumbers
from grouplearn.runtime.ray.cluster import import_ray
from grouplearn.runtime.ray.products import FETCH_SECONDS
from grouplearn.train.job import Job, group_of
from grouplearn.train.rows.sources import RowsAtHand, RowSource, dataset_bytes, joined, pick

#: Bytes of rows per object: small, so that a worker fetches little that it does not need.
CHUNK_BYTES = 8 << 20
#: A directory in memory, and how many bytes of it are left free for others.
_MEMORY, _SPARED_BYTES = Path("/dev/shm"), 256 << 20  # noqa: S108 - run directories are private


@dataclass(frozen=True, slots=True)
class Chunk:
    """The rows ``start`` to ``stop`` of a job's dataset, as one object of the store."""

    start: int
    stop: int
    rows: Any


@dataclass(frozen=True, slots=True)
class JobRows:
    """Where a worker finds a job's rows: in files that it maps, or in chunks of Ray's store.

    Rows ``in_memory`` are in files so that processes can share them, but count as memory.
    """

    files: DatasetFiles | None
    in_memory: bool
    chunks: tuple[Chunk, ...] = ()

    def of(self, job: Job) -> tuple[Job, RowSource]:
        """Return a job that was sent without rows together with those that are available, and a source of the others."""
        if self.files is None:
            return job, FetchedRows(job, self.chunks)
        mapped = replace(job, dataset=self.opened())
        return mapped, RowsAtHand(mapped)

    def opened(self) -> Dataset:
        """Return the rows, mapped from their files."""
        if self.files is None:
            raise ValueError("these rows are in no file")
        dataset = self.files.open()
        return replace(dataset, files=None) if self.in_memory else dataset


def bare(job: Job) -> Job:
    """Return a job without its rows and without the code of a third-party learner."""
    return replace(job, dataset=pick(job.dataset, slice(0, 0)), own=None)


def shared_files(dataset: Dataset, directory: RunDirectory) -> DatasetFiles:
    """Return files with the rows of a dataset: its own, or copies made in ``directory``; raises TrainingFailed."""
    if dataset.files is not None:
        return dataset.files
    for name in dataset.array_names:
        array = dataset.array(name)
        directory.array(name, array.shape, array.dtype)[...] = array
    names, has_lists = (dataset.dictionaries, dataset.classes), dataset.lists is not None
    return DatasetFiles(str(directory.path), 0, dataset.n_rows, *names, has_lists, dataset.order)


def place_for(n_bytes: int) -> Path:
    """Return where run directories for ``n_bytes`` are made: in memory if possible and there is room, else on disk."""
    with suppress(OSError):
        if shutil.disk_usage(_MEMORY).free > 2 * n_bytes + _SPARED_BYTES:
            return _MEMORY / f"grouplearn-{os.getuid()}"
    return Path(tempfile.gettempdir()) / f"grouplearn-{os.getuid()}"


def stored(ray: Any, job: Job, dataset: Dataset) -> tuple[Chunk, ...]:
    """Put a dataset into Ray's store in chunks, without the strings that all rows share."""
    nameless = replace(dataset, dictionaries=(), classes=(), files=None)
    whole = replace(job, dataset=dataset)
    return tuple(Chunk(start, stop, ray.put(pick(nameless, slice(start, stop)))) for start, stop in cut_rows(whole))


def cut_rows(job: Job) -> list[tuple[int, int]]:
    """Return runs of dataset rows of about ``CHUNK_BYTES`` that end where groups end, unless groups are too large."""
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
    """Rows fetched from the object store on demand; on one machine this shares memory."""

    def __init__(self, job: Job, chunks: Sequence[Chunk]) -> None:
        self._job, self._chunks = job, chunks

    def job_of(self, groups: Sequence[int]) -> tuple[Job, int]:
        """Return the job with only the rows of these groups, and the bytes of these rows."""
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
