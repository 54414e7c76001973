"""A directory of exported files: made whole or not at all, its manifest last, every file with its SHA-256."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
#: The layout of manifests that this code writes and reads.
LAYOUT = 1
_PROGRAM = "grouplearn"


class CannotExchange(ValueError):
    """A directory cannot be written or read; the message says why, ``hint`` what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


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
    if found - ours:
        other = sorted(found - ours)[0]
        message = f'directory "{path}" has files that no export made, such as {other}, so it is not replaced'
        raise CannotExchange(message, "Name another directory, or empty this one yourself.")


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of an exported directory, its form checked; raises CannotExchange."""
    manifest = _parsed(_content(path))
    if not isinstance(manifest, dict) or manifest.get("program") != _PROGRAM or not _lists_files(manifest):
        raise CannotExchange(f"{MANIFEST} of that directory is not one of an exported model")
    if manifest.get("layout") != LAYOUT:
        message = f"the export has layout {manifest.get('layout')}, and this version reads layout {LAYOUT}"
        raise CannotExchange(message, "Export it again, or import it with the grouplearn that exported it.")
    return manifest


def _content(path: Path) -> bytes:
    try:
        if path.is_dir():
            return (path / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise CannotExchange(f'directory "{path}" is no export of a model: it has no {MANIFEST}') from None
    except OSError as error:
        raise CannotExchange(f'directory "{path}" cannot be read: {error.strerror}') from None
    raise CannotExchange(f'there is no directory "{path}"')


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise CannotExchange(f"{MANIFEST} of that directory is damaged: it is not JSON") from None


def _lists_files(manifest: dict[str, Any]) -> bool:
    files = manifest.get("files")
    return isinstance(files, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("sha256"), str)
        for entry in files
    )


def read_file(path: Path, manifest: dict[str, Any], name: str) -> bytes:
    """Return the bytes of an exported file, which are those that were written; raises CannotExchange."""
    expected = next((entry["sha256"] for entry in manifest["files"] if entry["name"] == name), None)
    if expected is None:
        raise CannotExchange(f"the export has no {name}: its {MANIFEST} is damaged")
    try:
        content = (path / name).read_bytes()
    except OSError as error:
        raise CannotExchange(f"file {name} of the export cannot be read: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() != expected:
        message = f"file {name} of the export was changed or is damaged: its bytes do not match their SHA-256"
        raise CannotExchange(message, "Export the model again.")
    return content
