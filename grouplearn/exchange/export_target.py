"""The target of an export: it is replaced if an export made all files in it, and nothing else is ever removed.

While EXPORT writes and replaces, hidden directories exist beside the target. The next EXPORT to the target removes those of
dead processes. Everything works on descriptors, as others may write to the surrounding directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from grouplearn.data.files.own_files import PRIVATE, NotOwn, plain_directory
from grouplearn.exchange.directory_reader import MANIFEST, CannotExchange, is_as_written, read_manifest, readable

#: Kinds of hidden directories: one that is being written, and the previous one until it is replaced.
_DRAFT, _EARLIER = "draft", "earlier"
#: Error codes of systems for renaming onto a directory that has files.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
#: Seconds for which a draft may exist without a lock.
_NEW_SECONDS = 60.0
#: Flags that suffice to create names in a directory, even if it cannot be listed.
_TO_NAME = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
#: Identifies a file and its version.
Stamps = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """The target ``name`` in the directory with the descriptor ``parent``; ``path`` is for errors."""

    path: Path
    parent: int
    name: str

    def draft_name(self) -> str:
        """Return a new name for a draft."""
        return self._beside(_DRAFT)

    def _beside(self, kind: str) -> str:
        return f".{self.name}.{kind}-{secrets.token_hex(8)}"

    def rename(self, name: str, to: str) -> None:
        """Rename a directory beside the target; the system allows it onto nothing or an empty directory only."""
        os.rename(name, to, src_dir_fd=self.parent, dst_dir_fd=self.parent)

    def take(self, name: str) -> bool:
        """Rename a directory to the target; False if files are there."""
        try:
            self.rename(name, self.name)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
        return True

    def stat(self) -> os.stat_result | None:
        """Return the stat of the target, None if there is none."""
        found = self._stat(self.name)
        return found if found is not None and stat.S_ISDIR(found.st_mode) else None

    def is_at(self, name: str, descriptor: int) -> bool:
        """Whether an opened directory currently has this name."""
        found = self._stat(name)
        return found is not None and os.path.samestat(found, os.fstat(descriptor))

    def _stat(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.parent, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def files(self, overwrite: bool) -> Stamps:
        """Return the target's files, which may be replaced; raises CannotExchange."""
        try:
            with plain_directory(self.name, self.parent) as directory:
                if not overwrite and os.listdir(directory):
                    raise self.taken()
                return self._replaceable(self.name, directory, {})
        except FileNotFoundError:  # there is none, or another EXPORT is replacing it
            return {}
        except (NotADirectoryError, NotOwn):
            raise CannotExchange(f'"{self.path}" is not a directory') from None

    def taken(self) -> CannotExchange:
        """Return the error for a target with other files."""
        return CannotExchange(
            f'directory "{self.path}" is not empty', "Name another, or say (OVERWRITE) to replace an export."
        )

    def _replaceable(self, name: str, directory: int, known: Stamps) -> Stamps:
        """Return the files of a directory, as below; raises FileNotFoundError if it lost its name meanwhile."""
        try:
            return self._made_by_export(directory, known)
        except CannotExchange:
            if self.is_at(name, directory):
                raise
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None

    def _made_by_export(self, directory: int, known: Stamps) -> Stamps:
        """Return the files of a directory if an export made all; those ``known`` to be so are not read again."""
        found = {name: _stamp(name, directory) for name in os.listdir(directory)}
        if found == known:
            return found
        listed = read_manifest(self.path, directory)["files"] if MANIFEST in found else []
        entries = {entry["name"]: entry for entry in listed}
        for name in sorted(found.keys() - ({MANIFEST} if MANIFEST in found else set())):
            if name not in entries or not is_as_written(entries[name], directory):
                raise CannotExchange(
                    f'directory "{self.path}" has files that no export made, such as {readable(name)}, so it is not replaced',
                    f"Only files of the size and the SHA-256 that {MANIFEST} says are replaced: name another directory,"
                    " or empty this one yourself.",
                )
        return found

    @contextmanager
    def set_aside(self, known: Stamps) -> Iterator[None]:
        """Rename the target, and remove it at the end; it is restored if that is not reached, or it has others' files.

        Raises CannotExchange for others' files, and FileNotFoundError if the target is gone.
        """
        name = self._beside(_EARLIER)
        self.rename(self.name, name)
        try:
            with plain_directory(name, self.parent) as directory:
                with suppress(OSError):  # only other processes need the lock, and not every file system has locks
                    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                files = self._replaceable(name, directory, known)
                yield
                self.remove(name, directory, files)
        except BaseException:
            with suppress(OSError):  # the target has files again, and is not replaced
                self.rename(name, self.name)
            raise

    def remove(self, name: str, directory: int, files: Iterable[str]) -> None:
        """Remove these files of a directory beside the target, and the directory if it is then empty."""
        with suppress(OSError):  # somebody else's, which others may write to
            os.fchmod(directory, PRIVATE)
        with suppress(OSError):
            for file in sorted(
                files, key=lambda file: file == MANIFEST
            ):  # at last: it says of the others what they are
                with suppress(FileNotFoundError):
                    os.unlink(file, dir_fd=directory)
            os.rmdir(name, dir_fd=self.parent)

    def clear(self) -> None:
        """Remove drafts of this user's dead processes; restore what they set aside, or remove it if it was replaced."""
        ours = re.compile(rf"\.{re.escape(self.name)}\.({_DRAFT}|{_EARLIER})-[0-9a-f]{{16}}")
        with suppress(PermissionError):  # the directory may be writable but not listable
            for match in filter(None, map(ours.fullmatch, os.listdir(self.path.parent))):
                with suppress(OSError, CannotExchange), plain_directory(match[0], self.parent) as directory:
                    self._clear_one(match[0], directory, match[1])

    def _clear_one(self, name: str, directory: int, kind: str) -> None:
        found = os.fstat(directory)
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # It may have become the target after it was opened and before it was locked.
        if found.st_uid != os.getuid() or not self.is_at(name, directory):
            return
        if kind == _EARLIER:
            if not self.take(name):
                self.remove(name, directory, self._made_by_export(directory, {}))
            return
        files = os.listdir(directory)
        if files or time.time() - found.st_mtime > _NEW_SECONDS:  # else it was just made and is not locked yet
            self.remove(name, directory, files)


@contextmanager
def place_of(path: Path) -> Iterator[ExportTarget]:
    """Open the directory around the target ``path``; raises CannotExchange if there is none."""
    try:
        parent = os.open(path.parent, _TO_NAME)
    except (FileNotFoundError, NotADirectoryError):
        raise CannotExchange(f'there is no directory "{path.parent}"', "Make it first.") from None
    try:
        yield ExportTarget(path, parent, path.name or os.curdir)
    finally:
        os.close(parent)


def _stamp(name: str, directory: int) -> tuple[int, ...]:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
