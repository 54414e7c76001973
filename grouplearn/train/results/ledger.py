"""The ledger: the results of a run's units on disk, from which the run resumes.

Results wait in memory for at most ``FLUSH_SECONDS`` and then become one segment, a file that is written atomically: under
another name, flushed to disk and renamed. A unit and its models enter the ledger together, or the unit is trained again,
which gives the same models. A segment begins with the SHA-256 of the rest, which is checked before reading.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grouplearn.data.dataset import Item
from grouplearn.data.encoders import FittedItem
from grouplearn.data.files.own_files import own_file, write_whole
from grouplearn.data.files.plain_values import NotPlain, from_bytes, to_bytes
from grouplearn.data.memory import memory_limit
from grouplearn.failures import TrainingFailed
from grouplearn.interrupting import with_checks
from grouplearn.layout.ragged import Ragged
from grouplearn.schedule.messages import BlockRange, Push, Unit
from grouplearn.train.job import GroupFacts, LostWork, StepRecord, UnitResult
from grouplearn.train.results.trials import CurvePoint, Curves, Models, States, TrialProgress, Trials

#: Seconds of results that can be lost, besides units in flight, when everything dies.
FLUSH_SECONDS = 1.0
#: Smallest ledger that is worth compacting.
COMPACT_BYTES = 1 << 22
#: The types of values in results.
RESULT_KINDS = (
    BlockRange, TrialProgress, Curves, CurvePoint, FittedItem, GroupFacts, Item, LostWork, Models, Push, Ragged, States,
    StepRecord, Trials, Unit, UnitResult,
)  # fmt: skip

_DIGEST = 32
#: More seconds than any run takes.
_LONGEST = 1e12
#: Names of segments; other files in the directory are not ours.
_SEGMENT = re.compile(r"units-([0-9]{6,12})\.segment")
_STATE = re.compile(r"state-([0-9]{6,12})(?:\.-?[0-9]{1,12}){4}\.(?:part|draft)")


@dataclass(frozen=True, slots=True)
class Segment:
    """Some results, and the seconds that the run had taken when they were written."""

    results: tuple[UnitResult, ...]
    seconds: float


class Ledger:
    """The ledger of the run in ``directory``; one process writes at a time.

    With ``again`` units with failed trials will be trained again, as are results that are not ``sound``.
    """

    def __init__(
        self, directory: Path, *, again: bool = False, sound: Callable[[UnitResult], bool] = lambda _: True
    ) -> None:
        self.directory = directory
        self._waiting: list[UnitResult] = []
        self._began = self._flushed = time.monotonic()
        before = read(directory)
        # Later results of a unit replace earlier ones.
        latest = {result.unit.id: result for segment in before for result in segment.results}
        self.results = tuple(result for result in latest.values() if not (again and result.failed) and sound(result))
        self._compacted = 0
        self._done = {result.unit.id for result in self.results}
        #: Training seconds of earlier processes.
        self.seconds = max((segment.seconds for segment in before), default=0.0)

    @property
    def done(self) -> int:
        """The number of units in the ledger, including those not flushed."""
        return len(self._done)

    def add(self, result: UnitResult) -> None:
        """Add a result; raises TrainingFailed if the disk is full, after which the run can be resumed."""
        self._waiting.append(result)
        self._done.add(result.unit.id)
        self.flush_when_due()

    def flush_when_due(self) -> None:
        """Flush if results have waited long enough."""
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write everything that was added to disk."""
        self._flushed = time.monotonic()
        if self._waiting:
            segment = Segment(tuple(self._waiting), self.seconds + self._flushed - self._began)
            write(_next(self.directory), to_bytes(segment))
            _forget_states(self.directory, {result.unit.id for result in self._waiting})
            self._waiting.clear()

    def compact(self, needed: Callable[[UnitResult], UnitResult]) -> None:
        """Rewrite the ledger with what is ``needed`` of each result, once it has doubled since the last time.

        So it takes at most about twice the needed space. Dying meanwhile leaves results twice: the later ones count.
        """
        self.flush()
        paths = segments(self.directory)
        if sum(path.lstat().st_size for path in paths) < 2 * self._compacted + COMPACT_BYTES:
            return
        before = read(self.directory)
        latest = {result.unit.id: result for segment in before for result in segment.results}
        whole = Segment(tuple(map(needed, latest.values())), max(segment.seconds for segment in before))
        path = _next(self.directory)
        write(path, to_bytes(whole))
        for each in paths:
            _remove(each)
        self._compacted = path.stat().st_size


def _forget_states(directory: Path, units: set[int]) -> None:
    """Remove checkpoints of units that are done."""
    for number, path in _numbered(directory, _STATE):
        if number in units:
            _remove(path)


def segments(directory: Path) -> list[Path]:
    """Return the segment files in ``directory``, in order."""
    return [path for _, path in _numbered(directory, _SEGMENT)]


def _next(directory: Path) -> Path:
    """Return the path of the next segment."""
    number = 1 + max((number for number, _ in _numbered(directory, _SEGMENT)), default=0)
    return directory / f"units-{number:06d}.segment"


def _numbered(directory: Path, names: re.Pattern[str]) -> list[tuple[int, Path]]:
    """Return the files with such names in a directory, ordered by their numbers."""
    found = ((names.fullmatch(name), name) for name in os.listdir(directory))
    return sorted((int(match[1]), directory / name) for match, name in found if match)


def _remove(path: Path) -> None:
    """Remove a file; anything else, such as a directory, stays."""
    with suppress(OSError):
        path.unlink()


def read(directory: Path) -> tuple[Segment, ...]:
    """Return the segments in ``directory``; damaged ones are ignored and their units trained again."""
    found: list[Segment] = []
    for path in segments(directory):
        content = checked(path)
        with suppress(NotPlain):
            segment = None if content is None else from_bytes(content, (*RESULT_KINDS, Segment))
            found += [segment] if isinstance(segment, Segment) and 0 <= segment.seconds < _LONGEST else []
    return tuple(found)


def write(path: Path, content: bytes, hint: str = "free disk space, and RESUME MODEL goes on from here") -> None:
    """Write a file with its digest atomically; raises TrainingFailed."""
    draft = path.with_suffix(".draft")
    try:
        draft.unlink(missing_ok=True)
        with own_file(draft, "xb") as file:
            write_whole(file, hashlib.sha256(content).digest())
            write_whole(file, content)
            os.fsync(file.fileno())
        draft.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        _remove(draft)
        message = f"what the run has reached could not be kept: {error.strerror}\nFile: {path}"
        raise TrainingFailed(message, hint=hint) from None


def checked(path: Path) -> bytes | None:
    """Return the content of a file from ``write``, None if it is damaged, missing, or not this user's.

    A file too large for memory, which may be sparse, was not written by us.
    """
    try:
        with own_file(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > memory_limit():
                return None
            data = file.read()
    except (FileNotFoundError, PermissionError):  # NotOwn is a PermissionError
        return None
    content = data[_DIGEST:]
    return content if hashlib.sha256(content).digest() == data[:_DIGEST] else None


def sync_directory(directory: Path) -> None:
    """Flush a directory's entries to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def units_left(units: Sequence[Unit], results: Sequence[UnitResult]) -> tuple[Unit, ...]:
    """Return the units without a result, in order."""
    done = {result.unit.id for result in with_checks(results)}
    return tuple(unit for unit in with_checks(units) if unit.id not in done)
