"""Writes a directory of exported files: completely or not at all, the manifest last, every file with its SHA-256.

It is written beside its target, closed to other users, through its descriptor. When it becomes the target it gets the
permissions of what it replaces, or those that the umask gives.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grouplearn.data.files.own_files import PRIVATE, NotOwn, own_file, plain_directory, write_whole
from grouplearn.exchange.directory_reader import LAYOUT, MANIFEST, PROGRAM, CannotExchange
from grouplearn.exchange.export_target import ExportTarget, Stamps, place_of

#: Retries if other processes take the target first; theirs is replaced, too.
_ATTEMPTS = 100
_ANY_FILE, _OWN_FILE = 0o666, 0o600


@dataclass(frozen=True, slots=True)
class WrittenExport:
    """A written export: its number of files, the manifest included, and their bytes."""

    files: int
    size: int


@dataclass(frozen=True, slots=True)
class _Draft:
    """A directory beside its target: its name and descriptor, and the mode of new directories by the umask."""

    name: str
    directory: int
    mode: int

    def write(self, name: str, content: bytes) -> None:
        with own_file(name, "xb", self.directory) as file:
            write_whole(file, content)


def write(path: Path, facts: dict[str, Any], files: Iterable[tuple[str, bytes]], *, overwrite: bool) -> WrittenExport:
    """Write the files (name, content) and a manifest of ``facts`` to directory ``path``, which is replaced at the end.

    Raises CannotExchange if something there may not be replaced, and for disk errors.
    """
    try:
        with place_of(path) as place:
            place.clear()
            known, before = place.files(overwrite), place.stat()
            with _draft(place) as draft:
                listed = [_entry(draft, name, content) for name, content in files]
                manifest = {"program": PROGRAM, "layout": LAYOUT, **facts, "files": listed}
                text = json.dumps(manifest, indent=1, ensure_ascii=False).encode()
                draft.write(MANIFEST, text)
                _open_up(draft, place.stat() or before)  # another EXPORT may have moved the target away
                _take_place(draft, place, known, overwrite)
    except OSError as error:
        raise CannotExchange(f'directory "{path}" could not be written: {error.strerror}') from None
    return WrittenExport(len(listed) + 1, sum(entry["bytes"] for entry in listed) + len(text))


def _entry(draft: _Draft, name: str, content: bytes) -> dict[str, Any]:
    draft.write(name, content)
    return {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@contextmanager
def _draft(place: ExportTarget) -> Iterator[_Draft]:
    """Yield a new locked directory beside the target; it is removed at the end unless it has become the target."""
    name = place.draft_name()
    os.mkdir(name, PRIVATE, dir_fd=place.parent)
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(plain_directory(name, place.parent))
        except NotOwn:
            raise _moved(place) from None
        if os.fstat(directory).st_uid != os.getuid() or os.listdir(directory):
            raise _moved(place)
        try:
            with suppress(OSError):  # without locks in the file system, nobody removes what dead processes leave
                fcntl.flock(directory, fcntl.LOCK_EX)
            yield _Draft(name, directory, _mode_of_new(directory))
        except BaseException:
            if not place.is_at(place.name, directory):
                place.remove(name, directory, os.listdir(directory))
            raise


def _mode_of_new(directory: int) -> int:
    """Return the mode of a new directory under the umask, without changing the umask for other threads."""
    made = os.open("mode", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o777, dir_fd=directory)
    try:
        return stat.S_IMODE(os.fstat(made).st_mode)
    finally:
        os.close(made)
        os.unlink("mode", dir_fd=directory)


def _open_up(draft: _Draft, replaced: os.stat_result | None) -> None:
    """Give a draft the mode and, if permitted, owner and group of what it replaces; its files get no more permissions."""
    found = os.fstat(draft.directory)
    mode, names = draft.mode | (found.st_mode & stat.S_ISGID), os.listdir(draft.directory)
    if replaced is not None:
        mode = stat.S_IMODE(replaced.st_mode)
        if not any(_given(draft.directory, names, owner, replaced.st_gid) for owner in (replaced.st_uid, -1)):
            mode &= ~stat.S_IRWXG  # the group differs
        if replaced.st_uid != os.getuid():
            mode &= draft.mode  # another user's directory must not decide who reads this user's files
    with suppress(OSError):  # not every file system has modes
        for name in names:
            os.chmod(name, mode & draft.mode & _ANY_FILE | _OWN_FILE, dir_fd=draft.directory)
        os.fchmod(draft.directory, mode)


def _given(directory: int, names: list[str], owner: int, group: int) -> bool:
    """Give a directory and its files to an owner (-1: unchanged) and a group; False if not permitted."""
    try:
        for name in names:
            os.chown(name, owner, group, dir_fd=directory, follow_symlinks=False)
        os.fchown(directory, owner, group)
    except OSError:  # not permitted, or the file system has no owners
        return False
    return True


def _take_place(draft: _Draft, place: ExportTarget, known: Stamps, overwrite: bool) -> None:
    for _ in range(_ATTEMPTS):
        if not place.is_at(draft.name, draft.directory):
            raise _moved(place)
        if place.take(draft.name):
            return
        if not overwrite:
            raise place.taken()
        with suppress(FileNotFoundError), place.set_aside(known):
            if place.take(draft.name):
                return
            raise FileNotFoundError  # another EXPORT took the place
        place.clear()
    raise CannotExchange(f'directory "{place.path}" could not be written: others write it all the time')


def _moved(place: ExportTarget) -> CannotExchange:
    return CannotExchange(
        f'directory "{place.path}" could not be written: while that was done, what was written was moved or replaced',
        "Name a place in a directory where nobody else may write.",
    )
