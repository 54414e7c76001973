"""The run directory: a private place on disk for the rows of one TRAIN, gone when it ends, however it ends.

That of a durable run stays when the run is not finished: what is in it is enough to go on.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import mmap
import os
import shutil
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.errors import TrainingError

#: Held locked by the process that uses the directory, so a lock that can be had says that the process is dead.
PID_FILE, _NEW_PID_FILE = "pid", ".pid"
_PRIVATE = 0o700
#: Names begin with it: those of the second kind stay until somebody resumes or drops the run.
_PASSING, _DURABLE = "run-", "durable-"
#: What is being removed; and seconds for which a directory may be without a pid file.
_GONE, _NEW_SECONDS = "gone-", 60.0
#: How often others may be in the way for a moment: runs that end and take the parent away, those who ask who lives.
_ATTEMPTS = 100
#: The file that makes a durable run one that can be resumed.
MANIFEST = "manifest"
_HINT = "free disk space, or let more rows stay in memory with a higher memory limit"


class RunDirectory:
    """A directory ``run-<uuid>`` (mode 0700), made when the first array is, and removed on leaving the context.

    ``parent`` holds the runs of one database. Directories that dead processes left there are removed on entering. One that
    is ``durable`` is left where it is once ``keep`` was called, until it is removed by name.
    """

    def __init__(self, parent: Path) -> None:
        self._parent, self._kept = parent, False
        #: Set before the first array is made.
        self.durable = False
        self._path: Path | None = None
        self._lock: Any = None
        self._maps: dict[str, mmap.mmap] = {}

    @classmethod
    def beside(cls, database: str | None) -> RunDirectory:
        """Return the directory ``<database>.grouplearn/run-<uuid>``, or one among the user's temporary files.

        The latter for a database in memory or without a local file (``database`` is its path, if it has one).
        """
        if database and Path(database).is_file():
            return cls(runs_of(database))
        return cls(Path(tempfile.gettempdir()) / f"grouplearn-{os.getuid()}")

    @classmethod
    def reopened(cls, path: Path) -> RunDirectory:
        """Return a durable directory that another process left.

        Raises BlockingIOError while that process lives, and FileNotFoundError where it has just removed the directory.
        """
        directory = cls(path.parent)
        directory.durable = True
        directory._lock = _taken(path / PID_FILE)
        directory._lock.truncate()
        directory._lock.write(str(os.getpid()).encode())
        directory._path, directory._kept = path, True
        return directory

    def __enter__(self) -> RunDirectory:
        remove_stale(self._parent)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._kept:
            self._let_go()
        else:
            self.remove()

    @property
    def identity(self) -> str | None:
        """The identity of the model that a durable run makes, by which a stored model is known as that of the run."""
        return identity_of(self._path) if self.durable and self._path is not None else None

    def keep(self) -> None:
        """From now on leave the directory where it is on leaving the context."""
        self._kept = True

    @property
    def path(self) -> Path:
        """The directory; made now if it is not there yet."""
        if self._path is not None:
            return self._path
        try:
            return self._make()
        except OSError as error:
            self.remove()
            message = f"the rows do not fit in memory, and no directory for them could be made: {error}"
            raise TrainingError(message, hint="make that place writable, or raise the memory limit") from None

    def _make(self) -> Path:
        self._path = path = self._new_directory()
        # Locked under another name first, which nobody looks at while the directory is new: a pid file is never seen unlocked
        # while its process lives.
        self._lock = (path / _NEW_PID_FILE).open("wb", buffering=0)  # on a full disk, what is buffered cannot be closed
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._lock.write(str(os.getpid()).encode())
        return (path / _NEW_PID_FILE).rename(path / PID_FILE).parent

    def _new_directory(self) -> Path:
        path = self._parent / f"{_DURABLE if self.durable else _PASSING}{uuid.uuid4()}"
        for attempt in itertools.count(1):
            try:
                self._parent.mkdir(mode=_PRIVATE, exist_ok=True)
                if self._parent.is_symlink() or self._parent.stat().st_uid != os.getuid():
                    raise PermissionError(errno.EPERM, "another user's directory", str(self._parent))
                path.mkdir(mode=_PRIVATE)
                break
            except (FileExistsError, FileNotFoundError):  # another run, the last one there, has just removed the parent
                if attempt == _ATTEMPTS:
                    raise
        return path

    def array(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a new array that lives in the file ``<name>.npy``, its disk space reserved; raises TrainingError."""
        path = self.path / f"{name}.npy"
        kind = np.dtype(dtype)
        n_bytes = kind.itemsize * int(np.prod(shape, dtype=np.int64))
        try:
            with path.open("w+b") as file:
                header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                offset = file.tell()
                # Pages of a file with holes, written to a full disk, would end the process (SIGBUS).
                _reserve(file, offset + n_bytes)
                pages = mmap.mmap(file.fileno(), offset + n_bytes)
        except OSError as error:
            raise self._disk_error(error, path, n_bytes) from None
        self._maps[name] = pages
        array: npt.NDArray[Any] = np.ndarray(shape, kind, buffer=pages, offset=offset)
        return array

    def discard(self, name: str) -> None:
        """Remove the file of an array; it stays readable until it is dropped."""
        self._maps.pop(name)
        (self.path / f"{name}.npy").unlink()

    def _disk_error(self, error: OSError, path: Path, n_bytes: int) -> TrainingError:
        free = shutil.disk_usage(path.parent).free
        message = (
            f"the rows do not fit in memory, and they could not be kept on disk: {error.strerror}\n"
            f"File: {path} needs {size(n_bytes)}, and {size(free)} are free"
        )
        return TrainingError(message, hint=_HINT)

    def forget_pages(self) -> None:
        """Let the operating system take back the memory of what was written; the files keep it."""
        for pages in self._maps.values():
            pages.madvise(mmap.MADV_DONTNEED)

    def remove(self) -> None:
        """Remove the directory; the parent too when it is empty. Mapped arrays stay readable until they are dropped."""
        if self._path is not None:
            _discard(self._path)
            _remove_empty(self._parent)
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


def durable_runs(parent: Path) -> list[Path]:
    """Return the directories of durable runs in ``parent``, in order of their names."""
    return [path for path in _named(parent, _DURABLE) if path.is_dir()]


def _named(parent: Path, prefix: str) -> list[Path]:
    """Return what is in ``parent`` by the beginning of its name, in order; nothing when another run has removed it."""
    try:
        return sorted(path for path in parent.iterdir() if path.name.startswith(prefix))
    except (FileNotFoundError, NotADirectoryError):
        return []


def identity_of(path: Path) -> str:
    """Return the identity of the model that the durable run in ``path`` makes."""
    return path.name.removeprefix(_DURABLE)


def remove_run(path: Path) -> None:
    """Remove the directory of a durable run; the parent too when it is empty."""
    _discard(path)
    _remove_empty(path.parent)


def _taken(path: Path) -> Any:
    """Return a pid file, open and locked; waits a moment for those who only ask (``is_locked``)."""
    lock = path.open("r+b", buffering=0)
    for attempt in itertools.count(1):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if attempt == _ATTEMPTS:
                lock.close()
                raise
            time.sleep(0.001)
    if not os.fstat(lock.fileno()).st_nlink:
        lock.close()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return lock


def is_locked(path: Path) -> bool:
    """Whether a living process works in a run directory."""
    try:
        with (path / PID_FILE).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who ask are not each other's answer
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def remove_stale(parent: Path) -> None:
    """Remove the run directories in ``parent`` whose processes are dead, but for those that can be resumed."""
    for path in _named(parent, _GONE):
        shutil.rmtree(path, ignore_errors=True)
    begun = (path for path in durable_runs(parent) if not (path / MANIFEST).exists())
    for path in (*_named(parent, _PASSING), *begun):
        with suppress(OSError):
            lock = path / PID_FILE
            if not lock.exists():
                # Its process has just made it and not locked it yet, or died while it did.
                if not _is_old(path):
                    continue
                lock = path / _NEW_PID_FILE
            with lock.open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _discard(path)
    _remove_empty(parent)


def _is_old(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > _NEW_SECONDS


def _discard(path: Path) -> None:
    """Remove a directory; one that dying leaves half removed has another name, and is nobody's run any more."""
    gone = path.with_name(f"{_GONE}{path.name}")
    with suppress(OSError):
        path.rename(gone)
        path = gone
    shutil.rmtree(path, ignore_errors=True)


def size(n_bytes: int) -> str:
    """Return a number of bytes as people write it: ``9.4 GB``."""
    amount, unit = float(n_bytes), "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"


def _reserve(file: Any, n_bytes: int) -> None:
    """Give the file its blocks on disk; raises OSError when there is no room."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, n_bytes)
        return
    zeros = bytes(1 << 20)
    for start in range(file.tell(), n_bytes, len(zeros)):
        file.write(zeros[: n_bytes - start])
    file.flush()


def _remove_empty(parent: Path) -> None:
    with suppress(OSError):
        parent.rmdir()
