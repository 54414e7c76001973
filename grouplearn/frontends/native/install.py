"""``grouplearn duckdb --install``: copies builds where DuckDB looks for extensions, so that ``LOAD grouplearn`` works."""

from __future__ import annotations

import sys
from pathlib import Path

from grouplearn.data.files.own_files import NotOwn, make_own, plain_file, replace_file
from grouplearn.frontends.native.locate import build_for, built_versions

#: A text in every build of ours and in no other extension.
_MARK = b"grouplearn.frontends.native.worker"
#: A file beside an installed build with the Python that has this package; ``udfs/native/python.cpp`` reads it.
_PYTHON = "grouplearn.python"


def main() -> int:
    """Copy every build into the user's ``~/.duckdb/extensions`` and print where; other extensions are not overwritten.

    Whoever can write there runs code in every shell of this user, so others must not be able to.
    """
    folder = Path.home() / ".duckdb" / "extensions"
    targets = {build_for(version): build_for(version, folder) for version in built_versions()}
    foreign = [
        path for target in targets.values() for path in (target, target.with_name(_PYTHON)) if not _is_ours(path)
    ]
    if foreign or not targets:
        told = f"{foreign[0]} does not belong to grouplearn, so nothing was written" if foreign else "nothing is built"
        print(f"grouplearn: {told}", file=sys.stderr)
        return 1
    try:
        for target in targets.values():
            for place in (folder, target.parents[1], target.parent):
                make_own(place)
    except OSError as error:
        print(f"grouplearn: nothing was written to {place}: {error.strerror}", file=sys.stderr)
        return 1
    for build, target in targets.items():
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
    try:
        with plain_file(path) as file:
            content = file.read()
    except NotOwn:
        return False
    if path.name == _PYTHON:
        return content.startswith(b"/") and content.count(b"\n") == 1 and content.endswith(b"\n")
    return _MARK in content


def _write(path: Path, content: bytes) -> None:
    """Replace a file atomically: a shell may be loading the old one."""
    replace_file(path, content, mode=0o644)
