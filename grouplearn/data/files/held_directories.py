"""Directories that processes hold: each has a lock file, and a lock that can be acquired means that its process is dead.

So whatever a dead process leaves is found and removed by the next one. Others may have manipulated the place: nothing is
opened through a link, only this user's directories with our names are touched, and removal works on descriptors. Two of our
processes may remove the same directory at the same time.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from grouplearn.data.files.own_files import PRIVATE, own_directory, own_file

#: Prefix of directories that are being removed; and seconds for which a directory may exist without a lock.
_GONE, _NEW_SECONDS = "gone-", 60.0
#: Retries when another process is briefly in the way: one that removes the parent as it ends, or one that tests the lock.
_ATTEMPTS = 100


class HeldDirectories:
    """The directories in ``parent`` whose names match ``names`` in full; ``lock`` is the name of the lock file in each.

    Methods raise NotOwn where ``parent`` is a link, another user's, or open to the writing of others.
    """

    def __init__(self, parent: Path, names: str, lock: str) -> None:
        self.parent = parent
        self._names, self._lock = re.compile(names), lock

    def make(self, name: str) -> IO[Any]:
        """Make a directory, and ``parent`` if needed; return its empty lock file, held by this process."""
        for attempt in itertools.count(1):
            with suppress(FileExistsError):
                self.parent.mkdir(mode=PRIVATE)
            try:
                with own_directory(self.parent) as parent:
                    os.mkdir(name, PRIVATE, dir_fd=parent)
                    return self._locked_first(name, parent)
            except FileNotFoundError:  # the last process there has just ended, and removed the parent
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError

    def _locked_first(self, name: str, parent: int) -> IO[Any]:
        """Return the lock of a new directory; it is locked under another name first, so that nobody sees it unlocked."""
        with own_directory(name, parent) as own:
            lock = own_file(f".{self._lock}", "a+b", own)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.rename(f".{self._lock}", self._lock, src_dir_fd=own, dst_dir_fd=own)
            except BaseException:
                lock.close()
                raise
        return lock

    def hold(self, name: str) -> IO[Any]:
        """Return the emptied lock of a directory that another process left; waits briefly for processes that test the lock.

        Raises BlockingIOError while that process lives, and FileNotFoundError where it has just removed the directory.
        """
        with self._entered(name) as own:
            lock = own_file(self._lock, "r+b", own)
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
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.parent / name))
        lock.truncate(0)
        return lock

    def is_held(self, name: str) -> bool:
        """Whether a living process holds a directory."""
        try:
            with self._entered(name) as own, own_file(self._lock, "r+b", own) as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two tests do not block each other
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def names(self) -> list[str]:
        """Return the sorted names of the directories; none if there is no parent."""
        try:
            with own_directory(self.parent) as parent:
                found = [name for name in os.listdir(parent) if self._names.fullmatch(name)]
                return [name for name in sorted(found) if _is_own_directory(name, parent)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, name: str) -> None:
        """Remove a directory, and ``parent`` when it is empty."""
        with suppress(OSError), own_directory(self.parent) as parent:
            _remove(name, parent)
        self._remove_empty()

    def clear(
        self, spared: Callable[[Path], bool] = lambda _: False, before: Callable[[Path, str], None] = lambda *_: None
    ) -> None:
        """Remove the directories whose processes are dead, except those that are ``spared``.

        ``before`` is called for each, with what its process had written into its lock file.
        """
        with suppress(FileNotFoundError, NotADirectoryError), own_directory(self.parent) as parent:
            for name in os.listdir(parent):
                if self._names.fullmatch(name.removeprefix(_GONE)):
                    with suppress(OSError):
                        self._clear_one(name, parent, spared, before)
            self._remove_empty()

    def _clear_one(
        self, name: str, parent: int, spared: Callable[[Path], bool], before: Callable[[Path, str], None]
    ) -> None:
        path = self.parent / name
        with own_directory(name, parent) as own:
            if name.startswith(_GONE):
                _remove(name, parent)
                return
            if spared(path):
                return
            lock = self._lock_of_dead(own)
            if lock is None:
                return
            with lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock.seek(0)
                before(path, lock.read().decode(errors="replace"))
                _remove(name, parent)

    def _lock_of_dead(self, own: int) -> IO[Any] | None:
        """Return a lock that was free; None if a process has just made the directory and not locked it yet."""
        try:
            return own_file(self._lock, "r+b", own)
        except FileNotFoundError:  # just made, or its process died while making it
            is_new = time.time() - os.fstat(own).st_mtime <= _NEW_SECONDS
            return None if is_new else own_file(f".{self._lock}", "a+b", own)

    @contextmanager
    def _entered(self, name: str) -> Iterator[int]:
        with own_directory(self.parent) as parent, own_directory(name, parent) as own:
            yield own

    def _remove_empty(self) -> None:
        """Remove the parent if it is empty and not shared by all users, as ``/tmp`` is."""
        with suppress(OSError):
            if not self.parent.lstat().st_mode & stat.S_ISVTX:
                self.parent.rmdir()


def _is_own_directory(name: str, parent: int) -> bool:
    with suppress(OSError), own_directory(name, parent):
        return True
    return False


def _remove(name: str, parent: int) -> None:
    """Remove a directory under another name first: if that is interrupted, the remainder is known to be free."""
    gone = name if name.startswith(_GONE) else f"{_GONE}{name}"
    with suppress(OSError):
        os.rename(name, gone, src_dir_fd=parent, dst_dir_fd=parent)
        name = gone
    shutil.rmtree(name, ignore_errors=True, dir_fd=parent)
