"""Durable runs: a TRAIN that is a directory beside its database until its models are in it.

The directory has the rows (``*.npy``), the ledger of units done, and last the manifest: once that is there the run can be
resumed by another process, without the statement's tables and on another number of workers. It holds no code, and goes when
the models are stored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from grouplearn.data.dataset import Dataset, DatasetFiles, Group
from grouplearn.data.plain import NotPlain, from_bytes, to_bytes
from grouplearn.data.run_directory import (
    MANIFEST,
    RunDirectory,
    durable_runs,
    identity_of,
    is_locked,
    remove_stale,
    runs_of,
)
from grouplearn.errors import TrainingError
from grouplearn.learners import registry
from grouplearn.learners.base import Task
from grouplearn.plan.definition import HyperparameterColumn, ItemColumn, KeyColumn, ModelDefinition
from grouplearn.runtime import ledger
from grouplearn.runtime.job import Job
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.workload import Hops, Workload
from grouplearn.search.procedures import SearchPlan
from grouplearn.search.space import Choices, Range

#: What is written and read back; another version's runs are refused.
FORMAT = 3


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a run needs to go on; ``job`` is without its rows, which are in files.

    ``workload`` is for as many workers as the run began with. ``replaces`` and ``validated`` are what the statement said:
    OR REPLACE, and whether rows are held out; ``within`` are the seconds that WITHIN gave. ``began`` is a ``time.time()``.
    A search in rounds has its plan in ``search``, and no ``units``: they follow from results; ``stored`` and ``outputs`` are
    what those are estimated by.
    """

    definition: ModelDefinition
    job: Job
    rows: DatasetFiles
    units: tuple[Unit, ...]
    workload: Workload
    operator: str
    executor: str
    replaces: bool
    validated: bool
    within: float | None
    began: float
    search: SearchPlan | None
    stored: int
    outputs: int
    format: int = FORMAT

    def job_with_rows(self, directory: Path) -> Job:
        """Return the job with its rows, which are in ``directory`` now; DataError when its network is not registered."""
        dataset = replace(self.rows, directory=str(directory)).open()
        return replace(self.job, dataset=dataset, network=registry.network(self.job.learner))


_KINDS = (
    *ledger.RESULT_KINDS, Dataset, DatasetFiles, Group, HyperparameterColumn, ItemColumn, Job, KeyColumn, Manifest,
    Choices, Hops, ModelDefinition, Range, SearchPlan, Task, Workload,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """A durable run as it is found on disk; ``alive``: a process works on it. ``n_bytes`` is what it takes."""

    path: Path
    manifest: Manifest
    alive: bool

    @property
    def id(self) -> str:
        """What tells it from others: the first digits of its identity."""
        return self.identity[:8]

    @property
    def identity(self) -> str:
        """The identity of the model that it makes."""
        return identity_of(self.path)

    @property
    def n_bytes(self) -> int:
        """Bytes on disk, but for files that are replaced at this moment."""
        found = 0
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found += entry.stat().st_size if entry.is_file() else 0
        return found


def keep(directory: RunDirectory, manifest: Manifest) -> None:
    """Make a run one that can be resumed: force its rows to the disk, and write the manifest; raises TrainingError."""
    try:
        for path in directory.path.glob("*.npy"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
    except OSError as error:
        message = f"the run could not be kept on disk: {error.strerror}\nDirectory: {directory.path}"
        raise TrainingError(message, hint="free disk space, or train WITH (durable = false)") from None
    nothing = manifest.job.dataset.rows(0, 0)
    job = replace(manifest.job, dataset=replace(nothing, files=None), network=None)  # a network is code
    hint = "free disk space, or train WITH (durable = false)"
    ledger.write(directory.path / MANIFEST, to_bytes(replace(manifest, job=job)), hint)
    directory.keep()


def runs(database: str) -> Iterator[Run]:
    """Yield the durable runs of a database file, the oldest first.

    Those without a manifest cannot be resumed: what dead processes left of them is removed.
    """
    found = []
    remove_stale(runs_of(database))
    for path in durable_runs(runs_of(database)):
        content = ledger.checked(path / MANIFEST)
        try:
            manifest = None if content is None else from_bytes(content, _KINDS)
        except NotPlain:
            continue
        if isinstance(manifest, Manifest) and manifest.format == FORMAT:
            found.append(Run(path, manifest, is_locked(path)))
    yield from sorted(found, key=lambda run: run.manifest.began)


def of_model(database: str, schema: str, name: str) -> list[Run]:
    """Return the runs that train a model, the oldest first."""
    wanted = (schema.casefold(), name.casefold())
    definitions = ((run, run.manifest.definition) for run in runs(database))
    return [run for run, each in definitions if (each.schema.casefold(), each.name.casefold()) == wanted]
