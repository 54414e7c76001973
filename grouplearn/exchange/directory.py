"""A directory of exported files: made whole or not at all, its manifest last, every file with its SHA-256."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grouplearn.data.memory import memory_limit

MANIFEST = "manifest.json"
#: The layout of manifests that this code writes and reads.
LAYOUT = 1
_PROGRAM = "grouplearn"
#: What exports call their files; nothing in it leads to another directory.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
#: Bytes of the largest manifest: a hundred and more for each of a million files.
_LARGEST_MANIFEST = 1 << 26
#: Lists and objects in one: an empty one takes 20 times its text.
_MOST_PARTS = 1 << 21
#: Characters of a manifest that an error has at most.
_LONGEST = 60
_MOST_VERSION = 2**31 - 1
#: The size of the largest file that there can be.
_MOST_BYTES = 2**63 - 1
#: What to do about an export of another version.
OTHER_VERSION = "Export it again, or import it with the grouplearn that exported it."
_AGAIN = "Export the model again."


class CannotExchange(ValueError):
    """A directory cannot be written or read; the message says why, ``hint`` what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def located(text: str) -> Path:
    """Return the whole path of a directory as it was written; raises CannotExchange."""
    try:
        return Path(os.path.abspath(os.path.expanduser(text)))
    except OSError:
        message = (
            f'there is no directory "{text}": the current one, in which it would be, was removed or may not be entered'
        )
        raise CannotExchange(message, "Name a whole path, or change to a directory that exists.") from None


@dataclass(frozen=True, slots=True)
class Written:
    """What an export came to: its number of files, the manifest included, and their bytes."""

    files: int
    size: int


def write(path: Path, facts: dict[str, Any], files: Iterable[tuple[str, bytes]], *, overwrite: bool) -> Written:
    """Make directory ``path`` of the files (name, content) and a manifest of ``facts``; what was there stays until then.

    Raises CannotExchange when something is there that may not be replaced, and when the disk says no.
    """
    path = Path(os.path.abspath(path))
    try:
        _refuse_taken(path, overwrite)
        if not path.parent.is_dir():
            raise CannotExchange(f'there is no directory "{path.parent}"', "Make it first.")
        with _draft(path) as draft:
            listed = [_entry(draft, name, content) for name, content in files]
            manifest = {"program": _PROGRAM, "layout": LAYOUT, **facts, "files": listed}
            text = json.dumps(manifest, indent=1, ensure_ascii=False).encode()
            (draft / MANIFEST).write_bytes(text)
    except OSError as error:
        raise CannotExchange(f'directory "{path}" could not be written: {error.strerror}') from None
    return Written(len(listed) + 1, sum(entry["bytes"] for entry in listed) + len(text))


def _entry(draft: Path, name: str, content: bytes) -> dict[str, Any]:
    (draft / name).write_bytes(content)
    return {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """Give a new directory beside ``path`` that takes its place at the end, or is removed when that is not reached."""
    draft = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    draft.mkdir()
    try:
        yield draft
        _take_place(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _take_place(draft: Path, path: Path) -> None:
    if not path.exists():
        draft.rename(path)
        return
    before = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    path.rename(before)
    try:
        draft.rename(path)
    except OSError:
        before.rename(path)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _refuse_taken(path: Path, overwrite: bool) -> None:
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_dir() or path.is_symlink():
        raise CannotExchange(f'"{path}" is not a directory')
    found = {entry.name for entry in path.iterdir()}
    if not found:
        return
    if not overwrite:
        raise CannotExchange(
            f'directory "{path}" is not empty', "Name another, or say (OVERWRITE) to replace an export."
        )
    ours = {MANIFEST, *(entry["name"] for entry in read_manifest(path)["files"])} if MANIFEST in found else set()
    ours = {name for name in ours & found if stat.S_ISREG((path / name).lstat().st_mode)}  # no export makes directories
    if found - ours:
        other = sorted(found - ours)[0]
        message = f'directory "{path}" has files that no export made, such as {other}, so it is not replaced'
        raise CannotExchange(message, "Name another directory, or empty this one yourself.")


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of an exported directory, its form checked; raises CannotExchange."""
    manifest = _parsed(_manifest_of(path))
    if not isinstance(manifest, dict) or manifest.get("program") != _PROGRAM or not _lists_files(manifest):
        raise CannotExchange(f"{MANIFEST} of that directory is not one of an exported model")
    layout = number_in(manifest, "layout")
    if layout != LAYOUT:
        raise CannotExchange(f"the export has layout {layout}, and this version reads layout {LAYOUT}", OTHER_VERSION)
    return manifest


def number_in(manifest: dict[str, Any], name: str) -> int:
    """Return the version that a manifest has under a name; raises CannotExchange for what is no whole number."""
    value = manifest.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MOST_VERSION:
        what = f"is {_short(json.dumps(value))}, and not a whole number" if name in manifest else "is missing"
        raise CannotExchange(
            f"{name} of {MANIFEST} {what}", "The file is damaged, or was changed: export the model again."
        )
    return value


def said(value: Any) -> str:
    """Return a value of a manifest as it may stand in an error: short, and without anything that moves a terminal."""
    return _short(value if isinstance(value, str) and value.isascii() and value.isprintable() else json.dumps(value))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _manifest_of(path: Path) -> bytes:
    try:
        if not path.is_dir():
            raise CannotExchange(f'there is no directory "{path}"')
        return _content(path, MANIFEST, None)
    except FileNotFoundError:
        raise CannotExchange(f'directory "{path}" is no export of a model: it has no {MANIFEST}') from None
    except OSError as error:
        raise CannotExchange(f'directory "{path}" cannot be read: {error.strerror}') from None


def _content(path: Path, name: str, n_bytes: int | None) -> bytes:
    """Return the bytes of a file, which is a regular one in the directory, of ``n_bytes`` or, if None, of few enough.

    A link may lead anywhere, a pipe waits for ever, a device has no end: none of them is read. Raises OSError, CannotExchange.
    """
    try:
        descriptor = os.open(path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CannotExchange(f"{name} of the export is a link, and no file of its own") from None
        raise
    try:
        about = os.fstat(descriptor)
        _refuse_odd(about, name, n_bytes)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(about.st_size)
    finally:
        os.close(descriptor)


def _refuse_odd(about: os.stat_result, name: str, n_bytes: int | None) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise CannotExchange(f"{name} of the export is no regular file")
    if n_bytes is None and about.st_size > _LARGEST_MANIFEST:
        raise CannotExchange(f"{name} of the export has {about.st_size:,} bytes, which no manifest has")
    if n_bytes is not None and about.st_size != n_bytes:
        raise CannotExchange(_changed(name, f"it has {about.st_size:,} bytes, and {MANIFEST} says {n_bytes:,}"), _AGAIN)
    if about.st_size > memory_limit():
        raise CannotExchange(f"{name} of the export has {about.st_size:,} bytes, which do not fit into memory")


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
    """Return whether a manifest names a file beside it, as exports do, with its bytes and their digest."""
    name, n_bytes = entry.get("name"), entry.get("bytes")
    known = isinstance(name, str) and _NAME.fullmatch(name) is not None and isinstance(entry.get("sha256"), str)
    return known and type(n_bytes) is int and 0 <= n_bytes <= _MOST_BYTES


def read_file(path: Path, manifest: dict[str, Any], name: str) -> bytes:
    """Return the bytes of an exported file, which are those that were written; raises CannotExchange."""
    entry = next((entry for entry in manifest["files"] if entry["name"] == name), None)
    if entry is None:
        raise CannotExchange(f"the export has no {name}: its {MANIFEST} is damaged")
    try:
        content = _content(path, name, entry["bytes"])
    except OSError as error:
        raise CannotExchange(f"file {name} of the export cannot be read: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise CannotExchange(_changed(name, "its bytes do not match their SHA-256"), _AGAIN)
    return content
