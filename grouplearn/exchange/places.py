"""The place of an export: what stands there is replaced where an export made all of it, and nothing else is ever removed.

While EXPORT writes, and as it replaces, directories with hidden names stand beside the place. Those that a process leaves when it
dies are found by the next EXPORT to that place. All goes through descriptors: others may write to the directory around it.
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
from grouplearn.exchange.directory import MANIFEST, CannotExchange, is_as_written, read_manifest, said

#: What a directory beside a place is: one that is being written, or one that stood there until it is replaced.
_DRAFT, _EARLIER = "draft", "earlier"
#: That a directory has files, as systems tell one that would rename another onto it.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
#: Seconds for which a draft may be without a lock.
_NEW_SECONDS = 60.0
#: Enough to make names beside a directory, which need not be one that may be listed.
_TO_NAME = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
#: What tells a file from others, and from itself before it was changed.
Stamps = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an export goes: ``name`` in the directory of which ``parent`` is the descriptor; ``path`` is for errors."""

    path: Path
    parent: int
    name: str

    def draft_name(self) -> str:
        """Return a new name for what is being written."""
        return self._beside(_DRAFT)

    def _beside(self, kind: str) -> str:
        return f".{self.name}.{kind}-{secrets.token_hex(8)}"

    def rename(self, name: str, to: str) -> None:
        """Rename a directory beside the place, from it or to it; the system does so onto nothing or an empty directory only."""
        os.rename(name, to, src_dir_fd=self.parent, dst_dir_fd=self.parent)

    def take(self, name: str) -> bool:
        """Rename a directory to the place; False where files stand there."""
        try:
            self.rename(name, self.name)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
        return True

    def stat(self) -> os.stat_result | None:
        """Return what is known of the directory at the place, None if there is none."""
        found = self._stat(self.name)
        return found if found is not None and stat.S_ISDIR(found.st_mode) else None

    def is_at(self, name: str, descriptor: int) -> bool:
        """Whether a directory that was opened has a name, still or by now."""
        found = self._stat(name)
        return found is not None and os.path.samestat(found, os.fstat(descriptor))

    def _stat(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.parent, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def files(self, overwrite: bool) -> Stamps:
        """Return the files that stand there, which may be replaced; raises CannotExchange."""
        try:
            with plain_directory(self.name, self.parent) as directory:
                if not overwrite and os.listdir(directory):
                    raise self.taken()
                return self._replaceable(self.name, directory, {})
        except FileNotFoundError:  # nothing, or what another EXPORT replaces now
            return {}
        except (NotADirectoryError, NotOwn):
            raise CannotExchange(f'"{self.path}" is not a directory') from None

    def taken(self) -> CannotExchange:
        """Return the error of a place with files."""
        return CannotExchange(
            f'directory "{self.path}" is not empty', "Name another, or say (OVERWRITE) to replace an export."
        )

    def _replaceable(self, name: str, directory: int, known: Stamps) -> Stamps:
        """Return the files of a directory, as below; raises FileNotFoundError where it lost its name while it was read."""
        try:
            return self._made_by_export(directory, known)
        except CannotExchange:
            if self.is_at(name, directory):
                raise
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None

    def _made_by_export(self, directory: int, known: Stamps) -> Stamps:
        """Return the files of a directory, all of which an export made; those ``known`` to be so are not read again."""
        found = {name: _stamp(name, directory) for name in os.listdir(directory)}
        if found == known:
            return found
        listed = read_manifest(self.path, directory)["files"] if MANIFEST in found else []
        entries = {entry["name"]: entry for entry in listed}
        for name in sorted(found.keys() - ({MANIFEST} if MANIFEST in found else set())):
            if name not in entries or not is_as_written(entries[name], directory):
                raise CannotExchange(
                    f'directory "{self.path}" has files that no export made, such as {said(name)}, so it is not replaced',
                    f"Only files of the size and the SHA-256 that {MANIFEST} says are replaced: name another directory,"
                    " or empty this one yourself.",
                )
        return found

    @contextmanager
    def set_aside(self, known: Stamps) -> Iterator[None]:
        """Rename what stands there, and remove it at the end; it comes back if that is not reached, or others' files are in it.

        Raises CannotExchange for the latter, and FileNotFoundError where nothing stands there any more.
        """
        name = self._beside(_EARLIER)
        self.rename(self.name, name)
        try:
            with plain_directory(name, self.parent) as directory:
                with suppress(OSError):  # it serves others, who clear, and not every file system has locks
                    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                files = self._replaceable(name, directory, known)
                yield
                self.remove(name, directory, files)
        except BaseException:
            with suppress(OSError):  # what stands there by now has files, and is not replaced
                self.rename(name, self.name)
            raise

    def remove(self, name: str, directory: int, files: Iterable[str]) -> None:
        """Remove files of a directory beside the place, and itself unless others are in it."""
        with suppress(OSError):  # somebody else's, who may let others write to it
            os.fchmod(directory, PRIVATE)
        with suppress(OSError):
            for file in sorted(
                files, key=lambda file: file == MANIFEST
            ):  # at last: it says of the others what they are
                with suppress(FileNotFoundError):
                    os.unlink(file, dir_fd=directory)
            os.rmdir(name, dir_fd=self.parent)

    def clear(self) -> None:
        """Remove drafts of this user's whose processes are dead; put back what they set aside, or remove it once replaced."""
        ours = re.compile(rf"\.{re.escape(self.name)}\.({_DRAFT}|{_EARLIER})-[0-9a-f]{{16}}")
        with suppress(PermissionError):  # a directory that may be written, and not listed
            for match in filter(None, map(ours.fullmatch, os.listdir(self.path.parent))):
                with suppress(OSError, CannotExchange), plain_directory(match[0], self.parent) as directory:
                    self._clear_one(match[0], directory, match[1])

    def _clear_one(self, name: str, directory: int, kind: str) -> None:
        found = os.fstat(directory)
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # It may have taken its place after it was opened here, and before it was locked.
        if found.st_uid != os.getuid() or not self.is_at(name, directory):
            return
        if kind == _EARLIER:
            if not self.take(name):
                self.remove(name, directory, self._made_by_export(directory, {}))
            return
        files = os.listdir(directory)
        if files or time.time() - found.st_mtime > _NEW_SECONDS:  # else it was made a moment ago, and is not locked yet
            self.remove(name, directory, files)


@contextmanager
def place_of(path: Path) -> Iterator[Place]:
    """Open the directory in which an export goes to ``path``; raises CannotExchange where there is none."""
    try:
        parent = os.open(path.parent, _TO_NAME)
    except (FileNotFoundError, NotADirectoryError):
        raise CannotExchange(f'there is no directory "{path.parent}"', "Make it first.") from None
    try:
        yield Place(path, parent, path.name or os.curdir)
    finally:
        os.close(parent)


def _stamp(name: str, directory: int) -> tuple[int, ...]:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
