"""Durable runs: a TRAIN with a directory beside its database until its models are stored.

The directory has the rows (``*.npy``), the ledger of finished units and, written last, the manifest. As soon as that
exists, another process can resume the run without the statement's tables and with another number of workers. The directory
contains no code, and is removed when the models are stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from grouplearn.bind.run.options import EXECUTORS
from grouplearn.catalog.checks.definition_checks import check_definition
from grouplearn.catalog.rows.run_rows import as_stored
from grouplearn.data.files import checksums
from grouplearn.data.files.own_files import own_file
from grouplearn.data.files.plain_values import NotPlain, from_bytes, to_bytes
from grouplearn.data.files.run_directory import (
    MANIFEST,
    RunDirectory,
    durable_runs,
    identity_of,
    is_locked,
    remove_stale,
    runs_of,
)
from grouplearn.errors import DataError, TrainingError
from grouplearn.failures import Failure
from grouplearn.schedule.operators import OPERATORS
from grouplearn.search.procedures import PROCEDURES
from grouplearn.sqltext import folded
from grouplearn.statements.workflow.manifest import FORMAT, KINDS, Manifest, has_possible_numbers
from grouplearn.train.results import ledger

#: The last time, in seconds, that has a date in every time zone.
_LATEST = 253_402_214_400


@dataclass(frozen=True, slots=True)
class _OnDisk:
    """A durable run on disk; ``alive``: a process is working on it. ``n_bytes`` is its size."""

    path: Path
    alive: bool

    @property
    def id(self) -> str:
        """Its short name: the first digits of its identity."""
        return self.identity[:8]

    @property
    def identity(self) -> str:
        """The identity of the model that it trains."""
        return identity_of(self.path)

    @property
    def n_bytes(self) -> int:
        """Bytes on disk, except files that are being replaced."""
        found = 0
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found += entry.stat().st_size if entry.is_file(follow_symlinks=False) else 0
        return found


@dataclass(frozen=True, slots=True)
class UnfinishedRun(_OnDisk):
    """A run that can be resumed."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class UnreadableRun(_OnDisk):
    """A run that cannot be resumed: its manifest is ``damaged``, or ``of another version``. It can be dropped."""

    reason: Literal["damaged", "of another version"]

    @property
    def began(self) -> float:
        """Approximately when it began, as a ``time.time()``."""
        with suppress(OSError):
            return min(max(0.0, (self.path / MANIFEST).stat().st_mtime), _LATEST)
        return 0.0


def keep(directory: RunDirectory, manifest: Manifest, go_on: Callable[[], None]) -> None:
    """Make a run resumable: flush its rows to disk, and write the manifest; raises TrainingError.

    ``go_on`` is called from time to time, and may raise to stop.
    """
    try:
        paths = [directory.path / f"{name}.npy" for name in manifest.job.dataset.array_names]
        for path in paths:
            with own_file(path, "rb") as file:
                os.fsync(file.fileno())
        sums = checksums.measured(paths, go_on)
    except OSError as error:
        message = f"the run could not be kept on disk: {error.strerror}\nDirectory: {directory.path}"
        raise TrainingError(message, hint="free disk space, or train WITH (durable = false)") from None
    nothing = manifest.job.dataset.rows(0, 0)
    job = replace(manifest.job, dataset=replace(nothing, files=None, lists=None), own=None)  # ``own`` is code
    hint = "free disk space, or train WITH (durable = false)"
    ledger.write(directory.path / MANIFEST, to_bytes(replace(manifest, job=job, sums=sums)), hint)
    directory.keep()


def runs(database: str) -> Iterator[UnfinishedRun]:
    """Yield the resumable durable runs of a database file, oldest first.

    Runs without a manifest that dead processes left are removed.
    """
    found = [run for run in _every(database) if isinstance(run, UnfinishedRun)]
    yield from sorted(found, key=lambda run: run.manifest.began)


def unreadable(database: str) -> Iterator[UnreadableRun]:
    """Yield the durable runs of a database file that cannot be resumed, oldest first."""
    yield from sorted((run for run in _every(database) if isinstance(run, UnreadableRun)), key=lambda run: run.began)


def _every(database: str) -> Iterator[UnfinishedRun | UnreadableRun]:
    remove_stale(runs_of(database))
    for path in durable_runs(runs_of(database)):
        try:
            content = ledger.checked(path / MANIFEST)
            manifest = None if content is None else from_bytes(content, KINDS)
        except OSError:
            content = manifest = None
        except NotPlain:
            manifest = None
        ours = isinstance(manifest, Manifest) and manifest.format == FORMAT
        if isinstance(manifest, Manifest) and ours and _is_sound(manifest):
            yield UnfinishedRun(path, is_locked(path), manifest)
        elif path.exists():
            flaw: Literal["damaged", "of another version"] = (
                "damaged" if content is None or ours else "of another version"
            )
            yield UnreadableRun(path, is_locked(path), flaw)


def _is_sound(manifest: Manifest) -> bool:
    """Return whether a manifest's numbers refer to its own groups, configurations and rows, and TRAIN could write its words."""
    job, groups = manifest.job, len(manifest.job.groups)
    units = (
        all(0 <= unit.group < groups for unit in manifest.units)
        and _all_below(groups, (unit.others for unit in manifest.units))
        and _all_below(len(job.configs), (unit.configs for unit in manifest.units))
    )
    rows = len(manifest.workload.rows) == groups and 0 <= manifest.rows.start <= manifest.rows.stop
    numbers = units and rows and _groups_are_sound(manifest) and 0 <= manifest.began <= _LATEST
    return numbers and _has_known_words(manifest) and has_possible_numbers(manifest)


def _groups_are_sound(manifest: Manifest) -> bool:
    """Return whether groups are numbered, have the model's levels and keys, and existing rows."""
    groups, definition = manifest.job.groups, manifest.definition
    levels, keys, n_rows = len(definition.sets), len(definition.keys), manifest.rows.stop - manifest.rows.start
    return {each.id for each in groups} == set(range(len(groups))) and all(
        0 <= each.level < levels
        and len(each.keys) == keys
        and all(0 <= start <= stop <= n_rows for start, stop in each.ranges)
        for each in groups
    )


def _all_below(end: int, numbers: Iterable[tuple[int, ...]]) -> bool:
    """Return whether all numbers are below ``end`` and not negative; a repeated tuple is checked once."""
    distinct = {id(each): each for each in numbers}
    return all(0 <= number < end for each in distinct.values() for number in each)


def _has_known_words(manifest: Manifest) -> bool:
    """Return whether the model of a manifest could be stored, and its job belongs to that model."""
    job, definition, search = manifest.job, manifest.definition, manifest.search
    runs = manifest.operator in OPERATORS and manifest.executor in EXECUTORS
    same = (job.learner, job.target.label, job.target.metric, job.items) == (
        definition.learner, definition.label, definition.metric, tuple(each.item for each in definition.items),
    )  # fmt: skip
    if not (runs and same and (search is None or search.method in PROCEDURES)):
        return False
    try:
        if not all(map(definition.family.has, job.target.metrics)):
            return False
        check_definition(definition.catalog or "", as_stored(definition))
    except (DataError, Failure, KeyError, ValueError):
        return False
    return True


def of_model(database: str, schema: str, name: str) -> list[UnfinishedRun]:
    """Return the runs that train a model, oldest first."""
    wanted = (folded(schema), folded(name))
    definitions = ((run, run.manifest.definition) for run in runs(database))
    return [run for run, each in definitions if (folded(each.schema), folded(each.name)) == wanted]
