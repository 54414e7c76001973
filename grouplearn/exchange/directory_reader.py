"""Reads a directory of exported files: only regular files, each with the size and SHA-256 in the manifest."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grouplearn.data.memory import memory_limit

MANIFEST = "manifest.json"
#: The layout of manifests that this version reads and writes.
LAYOUT = 1
#: The program named in manifests.
PROGRAM = "grouplearn"
#: Allowed names of files; none leads to another directory.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
#: Largest manifest in bytes: over a hundred for each of a million files.
_LARGEST_MANIFEST = 1 << 26
#: Most lists and objects in a manifest: an empty one takes 20 times its text in memory.
_MOST_PARTS = 1 << 21
#: Most characters of a manifest's value in an error.
_LONGEST = 60
_MOST_VERSION = 2**31 - 1
#: Largest size of a file.
_MOST_BYTES = 2**63 - 1
#: Advice for an export of another version.
OTHER_VERSION = "Export it again, or import it with the grouplearn that exported it."
_AGAIN = "Export the model again."


class CannotExchange(ValueError):
    """A directory cannot be written or read; the message says why, ``hint`` what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class NoSuchForm(CannotExchange):
    """The model has something in it that a format has no form of; another may."""


def located(text: str) -> Path:
    """Return the absolute path of a directory; raises CannotExchange."""
    try:
        return Path(os.path.abspath(os.path.expanduser(text)))
    except OSError:
        message = (
            f'there is no directory "{text}": the current one, in which it would be, was removed or may not be entered'
        )
        raise CannotExchange(message, "Name a whole path, or change to a directory that exists.") from None


def read_manifest(path: Path, within: int | None = None) -> dict[str, Any]:
    """Return the manifest of an exported directory after checking its form; raises CannotExchange.

    ``within`` is the descriptor of an already opened directory; errors then call it ``path``.
    """
    manifest = _parsed(_manifest_of(path, within))
    if not isinstance(manifest, dict) or manifest.get("program") != PROGRAM or not _lists_files(manifest):
        raise CannotExchange(f"{MANIFEST} of that directory is not one of an exported model")
    layout = number_in(manifest, "layout")
    if layout != LAYOUT:
        raise CannotExchange(f"the export has layout {layout}, and this version reads layout {LAYOUT}", OTHER_VERSION)
    return manifest


def number_in(manifest: dict[str, Any], name: str) -> int:
    """Return the version under a name in a manifest; raises CannotExchange if it is not an integer."""
    value = manifest.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MOST_VERSION:
        what = f"is {_short(json.dumps(value))}, and not a whole number" if name in manifest else "is missing"
        raise CannotExchange(
            f"{name} of {MANIFEST} {what}", "The file is damaged, or was changed: export the model again."
        )
    return value


def readable(value: Any) -> str:
    """Return a manifest's value for an error message: short and without terminal control characters."""
    return _short(value if isinstance(value, str) and value.isascii() and value.isprintable() else json.dumps(value))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _manifest_of(path: Path, within: int | None) -> bytes:
    try:
        if within is None and not path.is_dir():
            raise CannotExchange(f'there is no directory "{path}"')
        return _content(MANIFEST if within is not None else path / MANIFEST, None, within)
    except FileNotFoundError:
        raise CannotExchange(f'directory "{path}" is no export of a model: it has no {MANIFEST}') from None
    except OSError as error:
        raise CannotExchange(f'directory "{path}" cannot be read: {error.strerror}') from None


def _content(path: str | Path, n_bytes: int | None, within: int | None = None) -> bytes:
    """Return the content of a regular file of ``n_bytes`` or, if None, below the limit.

    Raises OSError, CannotExchange.
    """
    with _opened(path, n_bytes, within) as file:
        size = os.fstat(file.fileno()).st_size
        if size > memory_limit():
            name = os.path.basename(path)
            raise CannotExchange(f"{name} of the export has {size:,} bytes, which do not fit into memory")
        return file.read(size)


@contextmanager
def _opened(path: str | Path, n_bytes: int | None, within: int | None) -> Iterator[io.BufferedReader]:
    """Open a file of an export; links, pipes and devices are refused, as they may lead anywhere, block, or never end."""
    name = os.path.basename(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CannotExchange(f"{name} of the export is a link, and no file of its own") from None
        raise
    try:
        _refuse_odd(os.fstat(descriptor), name, n_bytes)
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _refuse_odd(about: os.stat_result, name: str, n_bytes: int | None) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise CannotExchange(f"{name} of the export is no regular file")
    if n_bytes is None and about.st_size > _LARGEST_MANIFEST:
        raise CannotExchange(f"{name} of the export has {about.st_size:,} bytes, which no manifest has")
    if n_bytes is not None and about.st_size != n_bytes:
        raise CannotExchange(_changed(name, f"it has {about.st_size:,} bytes, and {MANIFEST} says {n_bytes:,}"), _AGAIN)


def _changed(name: str, how: str) -> str:
    return f"file {name} of the export was changed or is damaged: {how}"


def _parsed(text: bytes) -> Any:
    parts = text.count(b"[") + text.count(b"{")
    if parts > _MOST_PARTS:
        raise CannotExchange(f"{MANIFEST} of that directory is damaged: it has {parts:,} lists and objects")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise CannotExchange(f"{MANIFEST} of that directory is damaged: it is not JSON") from None


def _lists_files(manifest: dict[str, Any]) -> bool:
    files = manifest.get("files")
    return isinstance(files, list) and all(isinstance(entry, dict) and _is_file(entry) for entry in files)


def _is_file(entry: dict[str, Any]) -> bool:
    """Return whether an entry of a manifest is a file as exports write it: a name beside it, bytes and digest."""
    name, n_bytes = entry.get("name"), entry.get("bytes")
    known = isinstance(name, str) and _NAME.fullmatch(name) is not None and isinstance(entry.get("sha256"), str)
    return known and type(n_bytes) is int and 0 <= n_bytes <= _MOST_BYTES


def read_file(path: Path, manifest: dict[str, Any], name: str) -> bytes:
    """Return the unchanged content of an exported file; raises CannotExchange."""
    entry = next((entry for entry in manifest["files"] if entry["name"] == name), None)
    if entry is None:
        raise CannotExchange(f"the export has no {name}: its {MANIFEST} is damaged")
    try:
        content = _content(path / name, entry["bytes"])
    except OSError as error:
        raise CannotExchange(f"file {name} of the export cannot be read: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise CannotExchange(_changed(name, "its bytes do not match their SHA-256"), _AGAIN)
    return content


def is_as_written(entry: dict[str, Any], within: int) -> bool:
    """Return whether a file in directory ``within`` matches its entry in the manifest; raises OSError."""
    try:
        with _opened(entry["name"], entry["bytes"], within) as file:
            return bool(hashlib.file_digest(file, "sha256").hexdigest() == entry["sha256"])
    except CannotExchange:
        return False
