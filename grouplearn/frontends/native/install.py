"""``grouplearn duckdb --install``: puts builds where DuckDB looks for extensions, so that ``LOAD grouplearn`` finds them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from grouplearn.frontends.native.locate import build_for, built_versions

#: In every build of ours, and in no other extension.
_MARK = b"grouplearn.frontends.native.worker"
#: Beside an installed build: the python that has this package. ``udfs/native/python.cpp`` reads it.
_PYTHON = "grouplearn.python"


def main() -> int:
    """Copy every build into the user's ``~/.duckdb/extensions`` and print where; nothing of others is overwritten."""
    folder = Path.home() / ".duckdb" / "extensions"
    targets = {build_for(version): build_for(version, folder) for version in built_versions()}
    foreign = [
        path for target in targets.values() for path in (target, target.with_name(_PYTHON)) if not _is_ours(path)
    ]
    if foreign or not targets:
        told = f"{foreign[0]} is not of grouplearn's, so nothing was written" if foreign else "nothing is built"
        print(f"grouplearn: {told}", file=sys.stderr)
        return 1
    for build, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target.with_name(_PYTHON), f"{sys.executable}\n".encode())
        _write(target, build.read_bytes())
        print(target)
    print(
        'LOAD grouplearn; works in these versions of DuckDB where unsigned extensions may be loaded: "duckdb -unsigned".'
    )
    return 0


def _is_ours(path: Path) -> bool:
    if not path.exists():
        return not path.is_symlink()
    content = path.read_bytes()
    if path.name == _PYTHON:
        return content.startswith(b"/") and content.count(b"\n") == 1 and content.endswith(b"\n")
    return _MARK in content


def _write(path: Path, content: bytes) -> None:
    """Write a file at once: a shell may be loading the one that is there."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)
