"""The run directory: a private directory for the rows of one TRAIN, removed however the run ends.

That of a durable run is kept until the run has finished: it contains all that is needed to resume.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.files.held_directories import HeldDirectories
from grouplearn.failures import TrainingFailed

#: Contains the number of the process that uses the directory, and is locked by it.
PID_FILE = "pid"
#: Prefixes of names: durable ones stay until the run is resumed or dropped.
_PASSING, _DURABLE = "run-", "durable-"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
#: The file whose presence makes a durable run resumable.
MANIFEST = "manifest"


class RunDirectory:
    """A directory ``run-<uuid>`` (mode 0700), made with its first array, and removed on leaving the context.

    ``parent`` holds the runs of one database; directories of dead processes there are removed on entering. A ``durable``
    directory is kept after ``keep`` was called, until it is removed by name. If ``closed`` says why ``parent`` may not be
    used, nothing is removed or made there.
    """

    def __init__(self, parent: Path, closed: str | None = None) -> None:
        self._directories, self._kept = _all_in(parent), False
        self.closed = closed
        #: Set before the first array is made.
        self.durable = False
        self._path: Path | None = None
        self._lock: Any = None
        self._maps: dict[str, mmap.mmap] = {}

    @classmethod
    def beside(cls, database: str | None, refusal: Callable[[Path], str | None] = lambda _: None) -> RunDirectory:
        """Return the directory ``<database>.grouplearn/run-<uuid>``, or one among the user's temporary files.

        The latter for an in-memory database or one without a local file (``database`` is its path, if it has one).
        ``refusal`` says why a place may not be used.
        """
        parent = Path(tempfile.gettempdir()) / f"grouplearn-{os.getuid()}"
        if database and Path(database).is_file():
            parent = runs_of(database)
        return cls(parent, refusal(parent))

    @classmethod
    def reopened(cls, path: Path) -> RunDirectory:
        """Return a durable directory that another process left.

        Raises BlockingIOError while that process lives, and FileNotFoundError where it has just removed the directory.
        """
        directory = cls(path.parent)
        directory.durable = True
        directory._lock = directory._directories.hold(path.name)
        directory._lock.write(str(os.getpid()).encode())
        directory._path, directory._kept = path, True
        return directory

    def __enter__(self) -> RunDirectory:
        if self.closed is None:
            with suppress(OSError):  # an unsafe place is reported when a directory is made there
                remove_stale(self._directories.parent)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._kept:
            self._let_go()
        else:
            self.remove()

    @property
    def identity(self) -> str | None:
        """The identity of the model that a durable run makes; the stored model has the same."""
        return identity_of(self._path) if self.durable and self._path is not None else None

    def keep(self) -> None:
        """Do not remove the directory on leaving the context."""
        self._kept = True

    @property
    def path(self) -> Path:
        """The directory, made if needed."""
        if self._path is not None:
            return self._path
        try:
            if self.closed is not None:
                raise PermissionError(errno.EPERM, self.closed, str(self._directories.parent))
            return self._make()
        except OSError as error:
            self.remove()
            why, other = self._reason
            message = f"{why}, and no directory for them could be made: {error}"
            raise TrainingFailed(message, hint=f"make that place writable, or {other}") from None

    @property
    def _reason(self) -> tuple[str, str]:
        """Why the rows are on disk, and how they need not be."""
        if self.durable:
            return "a durable run keeps its rows on disk", "train WITH (durable = false)"
        return "the rows do not fit in memory", "raise the memory limit"

    def _make(self) -> Path:
        name = f"{_DURABLE if self.durable else _PASSING}{uuid.uuid4()}"
        self._path = self._directories.parent / name
        self._lock = self._directories.make(name)
        self._lock.write(str(os.getpid()).encode())
        return self._path

    def array(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a new array in the file ``<name>.npy``, with its disk space reserved; raises TrainingFailed."""
        path = self.path / f"{name}.npy"
        kind = np.dtype(dtype)
        n_bytes = kind.itemsize * int(np.prod(shape, dtype=np.int64))
        try:
            with path.open("w+b") as file:
                header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                offset = file.tell()
                # Writing to pages of a sparse file on a full disk would kill the process (SIGBUS).
                _reserve(file, offset + n_bytes)
                pages = mmap.mmap(file.fileno(), offset + n_bytes)
        except OSError as error:
            raise self._disk_error(error, path, n_bytes) from None
        self._maps[name] = pages
        array: npt.NDArray[Any] = np.ndarray(shape, kind, buffer=pages, offset=offset)
        return array

    def discard(self, name: str) -> None:
        """Remove an array's file; the array stays readable until it is freed."""
        self._maps.pop(name)
        (self.path / f"{name}.npy").unlink()

    def _disk_error(self, error: OSError, path: Path, n_bytes: int) -> TrainingFailed:
        try:
            free = f"{size(shutil.disk_usage(path.parent).free)} are free"
        except OSError:  # already removed by somebody
            free = "its directory is not there any more"
        why, other = self._reason
        message = (
            f"{why}, and they could not be written: {error.strerror}\nFile: {path} needs {size(n_bytes)}, and {free}"
        )
        return TrainingFailed(message, hint=f"free disk space, or {other}")

    def forget_pages(self) -> None:
        """Let the operating system free the memory of what was written; the files keep it."""
        for pages in self._maps.values():
            pages.madvise(mmap.MADV_DONTNEED)

    def remove(self) -> None:
        """Remove the directory, and the parent if empty. Mapped arrays stay readable until they are freed."""
        if self._path is not None:
            self._directories.remove(self._path.name)
        self._let_go()

    def _let_go(self) -> None:
        self._maps.clear()
        self._path = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def runs_of(database: str) -> Path:
    """Return where the runs of a database file are."""
    return Path(database + ".grouplearn")


def _all_in(parent: Path) -> HeldDirectories:
    return HeldDirectories(parent, f"(?:{_PASSING}|{_DURABLE}){_UUID}", PID_FILE)


def durable_runs(parent: Path) -> list[Path]:
    """Return the sorted directories of durable runs in ``parent``; raises NotOwn."""
    return [parent / name for name in _all_in(parent).names() if name.startswith(_DURABLE)]


def identity_of(path: Path) -> str:
    """Return the identity of the model that the durable run in ``path`` makes."""
    return path.name.removeprefix(_DURABLE)


def remove_run(path: Path) -> None:
    """Remove the directory of a durable run; the parent too when it is empty."""
    _all_in(path.parent).remove(path.name)


def is_locked(path: Path) -> bool:
    """Whether a living process uses a run directory."""
    return _all_in(path.parent).is_held(path.name)


def remove_stale(parent: Path) -> None:
    """Remove run directories of dead processes in ``parent``, except resumable ones; raises NotOwn."""
    _all_in(parent).clear(spared=lambda path: path.name.startswith(_DURABLE) and (path / MANIFEST).exists())


def size(n_bytes: int) -> str:
    """Return a number of bytes in readable form: ``9.4 GB``."""
    amount, unit = float(n_bytes), "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"


def _reserve(file: Any, n_bytes: int) -> None:
    """Allocate the file's blocks on disk; raises OSError if there is no room."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, n_bytes)
        return
    zeros = bytes(1 << 20)
    for start in range(file.tell(), n_bytes, len(zeros)):
        file.write(zeros[: n_bytes - start])
    file.flush()
