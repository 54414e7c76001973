"""``grouplearn duckdb``: the user's own ``duckdb`` shell, with our statements in it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from grouplearn import sqltext
from grouplearn.frontends.native import install
from grouplearn.frontends.native.locate import build_for, built_versions
from grouplearn.kernels.build.compiling import program

#: The newest version of database files that every shell reads for which there is a build.
_READ_BY_ALL = 64


def main(arguments: Sequence[str]) -> int:
    """Replace this process by the user's ``duckdb`` with our extension loaded; return only if that is impossible.

    With ``--install``, copy the builds where ``LOAD grouplearn`` finds them instead.
    """
    if arguments and arguments[0] == "--install":
        return install.main()
    shell = find_shell()
    if shell is None:
        print(
            "grouplearn: there is no duckdb here: not on the PATH, not the package duckdb-cli, not in GROUPLEARN_DUCKDB.\n"
            "pip install duckdb-cli brings one. grouplearn alone starts a shell in which the same statements work.",
            file=sys.stderr,
        )
        return 1
    version = version_of(shell)
    extension = build_for(version)
    if not extension.exists():
        print(refusal(shell, version), file=sys.stderr)
        return 1
    refused = _newer_file(shell, arguments)
    if refused is not None:
        print(refused, file=sys.stderr)
        return 1
    load = ["-cmd", f"LOAD {sqltext.string(str(extension))}"]
    command = [shell, "-unsigned", *_packaged_extensions(shell), *load, *arguments]
    os.environ["GROUPLEARN_PYTHON"] = sys.executable
    return os.execv(shell, command)  # noqa: S606


def find_shell() -> str | None:
    """Return the ``duckdb`` program: from ``GROUPLEARN_DUCKDB``, the PATH, or the package duckdb-cli."""
    given = os.environ.get("GROUPLEARN_DUCKDB")
    found = program(given or "duckdb")
    if found:
        return _behind_script(Path(found))
    package = None if given else importlib.util.find_spec("duckdb_cli")
    places = [Path(folder) / "duckdb" for folder in (package.submodule_search_locations or ())] if package else []
    return next((str(place) for place in places if place.is_file()), None)


def _behind_script(found: Path) -> str:
    """Return the program behind duckdb-cli's script, which at Ctrl-C would end and take the program with it.

    Its Python is asked, which may be older than ours, and which imports modules from its working directory.
    """
    with found.open("rb") as file:
        head = file.read(4096)
    if not head.startswith(b"#!") or b"duckdb_cli" not in head:
        return str(found)
    python = os.fsdecode(head.splitlines()[0][2:]).strip()
    if not (os.path.isabs(python) and os.access(python, os.X_OK)):
        return str(found)
    question = "import duckdb_cli, os; print(os.path.join(os.path.dirname(duckdb_cli.__file__), 'duckdb'))"
    done = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False, cwd=os.sep)  # noqa: S603
    behind = done.stdout.strip()
    return behind if Path(behind).is_file() else str(found)


def _packaged_extensions(shell: str) -> list[str]:
    """Return the options with which duckdb-cli's script lets its shell find extensions that are Python packages."""
    folder = Path(shell).parent.parent / ".duckdb_extensions"
    if Path(shell).parent.name != "duckdb_cli" or not folder.is_dir():
        return []
    known = "current_setting('extension_directories')"
    before = f"if({known} = [], ['~/.duckdb/extensions'], {known})"
    return ["-cmd", f"SET extension_directories = list_append({before}, {sqltext.string(str(folder))})"]


def version_of(shell: str) -> str:
    """Return the version of a ``duckdb`` command, such as ``1.5.6``; empty if unknown."""
    done = subprocess.run([shell, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    found = re.match(r"v(\d+\.\d+\.\d+)\b", done.stdout)
    return found[1] if found else ""


def _newer_file(shell: str, arguments: Sequence[str]) -> str | None:
    """Return what the shell says of a database file that it is too old to read, and how to make one that it reads."""
    for path in filter(_is_newer, arguments):
        command = [shell, "-batch", "-init", os.devnull, "-readonly", path, "-c", "SELECT 1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
        if "read a database file with version number" in done.stderr:
            version = f"v{'.'.join(version_of(shell).split('.')[:2])}.0"
            return (
                f"{done.stderr.strip()}\n\n"
                f"Hint: grouplearn.connect({path!r}, storage_version={version!r}) makes files that this shell reads. A copy of "
                f"this one, made in Python: ATTACH {sqltext.literal(path)} AS newer; ATTACH 'copy.duckdb' AS older "
                f"(STORAGE_VERSION '{version}'); COPY FROM DATABASE newer TO older. grouplearn's own shell reads it as it is: "
                f"grouplearn {path}"
            )
    return None


def _is_newer(path: str) -> bool:
    """Return whether a path is a database that not every shell can read, by the version in its header."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except (OSError, ValueError):
        return False
    return head[8:12] == b"DUCK" and int.from_bytes(head[12:20], "little") > _READ_BY_ALL


def refusal(shell: str, version: str) -> str:
    """Return the message for a DuckDB version without a build, with alternatives."""
    known = ", ".join(built_versions()) or "none"
    return (
        f"grouplearn: {shell} is DuckDB {version or 'of an unknown version'}, and there is no build of the extension for it "
        f"(there are builds for: {known}).\n"
        f"What works: a duckdb of one of these versions (pip install duckdb-cli, or GROUPLEARN_DUCKDB=path); "
        f"building it, with g++: python -m grouplearn.frontends.native.build {version or 'VERSION'}; "
        f"or grouplearn's own shell, in which the same statements work: grouplearn [FILE]"
    )
