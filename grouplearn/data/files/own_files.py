"""This user's own files and directories, opened only as what they are and never through a link.

Somebody else may have put something beside a database: a link to another directory, a pipe that blocks, an endless device.
What is opened here is a regular file or a directory of this user that others cannot change.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

#: Access for the user only, for directories and for files.
PRIVATE, _PRIVATE_FILE = 0o700, 0o600
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: How files are opened, by Python's names: to be read, to be changed, to be made or changed, to be made.
_FLAGS = {
    "rb": os.O_RDONLY,
    "r+b": os.O_RDWR,
    "a+b": os.O_RDWR | os.O_CREAT | os.O_APPEND,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
}


class NotOwn(PermissionError):
    """A file or directory that is not this user's alone; ``strerror`` says why."""

    def __init__(self, what: str, path: str) -> None:
        super().__init__(errno.EPERM, what, path)


def own_file(path: str | os.PathLike[str], mode: str, within: int | None = None) -> IO[Any]:
    """Open a file of this user, as ``open`` without a buffer; ``within`` is the descriptor of its directory.

    Raises NotOwn for what is not a regular file, belongs to somebody else, or has a second name (a hard link).
    """
    descriptor = _opened(path, _FLAGS[mode], within)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():
            raise NotOwn("it is another user's", os.fspath(path))
        if found.st_nlink > 1:
            raise NotOwn("the file has several names", os.fspath(path))
        return os.fdopen(descriptor, mode.replace("x", "w"), buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def plain_file(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open any user's file for reading; raises NotOwn for what is not a regular file."""
    return os.fdopen(_opened(path, os.O_RDONLY, None), "rb")


def _opened(path: str | os.PathLike[str], flags: int, within: int | None) -> int:
    try:
        descriptor = os.open(path, flags | _PLAIN, _PRIVATE_FILE, dir_fd=within)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotOwn("it is a link", os.fspath(path)) from None
        if error.errno == errno.ENXIO:  # a pipe that nobody reads
            raise NotOwn("it is not a regular file", os.fspath(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotOwn("it is not a regular file", os.fspath(path))
    return descriptor


@contextmanager
def plain_directory(path: str | os.PathLike[str], within: int | None = None) -> Iterator[int]:
    """Yield the descriptor of any user's directory; raises NotOwn for a link.

    The descriptor stays that of the opened directory even if its name is replaced.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    except OSError as error:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.stat(path, dir_fd=within, follow_symlinks=False).st_mode):
                raise NotOwn("it is a link", os.fspath(path)) from None
        raise error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def own_directory(path: str | os.PathLike[str], within: int | None = None) -> Iterator[int]:
    """Yield the descriptor of a directory whose files are safe from others: owned by this user, and not writable by others.

    A sticky directory (mode 1777, as ``/tmp``) is accepted if it is this user's or the system's.
    Raises NotOwn.
    """
    with plain_directory(path, within) as descriptor:
        flaw = _ownership_error(os.fstat(descriptor))
        if flaw is not None:
            raise NotOwn(flaw, os.fspath(path))
        yield descriptor


def write_whole(file: IO[Any], content: bytes) -> None:
    """Write all bytes to an unbuffered file, which may take them in parts."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def _ownership_error(found: os.stat_result) -> str | None:
    """Return why files in a directory are not safe from others, None if they are."""
    shared = bool(found.st_mode & stat.S_ISVTX)
    if found.st_uid != os.getuid() and not (shared and found.st_uid == 0):
        return "it is another user's"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not shared:
        return "other users may write to it"
    return None


def make_own(path: Path) -> None:
    """Make a directory for this user if there is none, with its parents; raises NotOwn if anybody may write to it.

    A group-writable one is accepted: other programs of the user may have made it, with that default on some systems.
    """
    path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid != os.getuid():
        raise NotOwn("it is another user's", str(path))
    if found.st_mode & stat.S_IWOTH:
        raise NotOwn("every user may write to it", str(path))


def replace_file(path: Path, content: bytes, mode: int = _PRIVATE_FILE) -> None:
    """Atomically replace whatever has the file's name; if that is a link, its target is left alone."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with own_file(draft, "xb") as file:
            os.fchmod(file.fileno(), mode)
            write_whole(file, content)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
