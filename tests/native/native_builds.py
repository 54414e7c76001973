"""Builds of the extension for the tests, and the shells of PyPI that they are tested in."""

import functools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.one_at_a_time import one_at_a_time
from helpers.overlay import overlay

from grouplearn.frontends.native import launch
from grouplearn.frontends.native.build import BuildError, build

GROUPLEARN = str(Path(sys.executable).parent / "grouplearn")
#: The shell that the test group of pyproject.toml installs, by the name that stands for it in test ids.
INSTALLED = "installed"

TABLE = "CREATE TABLE t AS SELECT (i % 3)::INTEGER AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i);"
TRAIN = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE NONE;"
COUNT = "SELECT count(*) AS n FROM m;"


@functools.cache
def built(version: str) -> Path:
    """Return the build for a DuckDB version; a machine that cannot build skips, and says why."""
    try:
        with one_at_a_time("extension"):
            return build(version)
    except BuildError as error:
        pytest.skip(f"the extension cannot be built here: {error}")


def cli_versions() -> list[str]:
    """Return the versions of duckdb-cli to test, as ``GROUPLEARN_CLI_VERSIONS`` says: ``all`` are those of PyPI from 1.4 on."""
    asked = os.environ.get("GROUPLEARN_CLI_VERSIONS", INSTALLED)
    if asked != "all":
        return asked.split()
    index = [sys.executable, "-m", "pip", "index", "versions", "duckdb-cli"]
    told = subprocess.run(index, capture_output=True, text=True, check=True).stdout
    known = re.search(r"^Available versions: (.*)$", told, re.MULTILINE)
    assert known is not None, told
    return [version for version in known[1].split(", ") if tuple(map(int, version.split(".")[:2])) >= (1, 4)]


def cli(version: str) -> str:
    """Return the duckdb program of a version of duckdb-cli; it is installed on first use."""
    if version == INSTALLED:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("GROUPLEARN_DUCKDB", raising=False)
            patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
            found = launch.find_shell()
        return found or pytest.skip("there is no duckdb command here (pip install duckdb-cli)")
    folder = Path(overlay(f"duckdb-cli-{version}", f"duckdb-cli=={version}", dependencies=False)["PYTHONPATH"])
    program = next(path for path in (folder / "duckdb_cli/duckdb", folder / "bin/duckdb") if path.exists())
    program.chmod(0o755)
    return str(program)


def spelled(version: str, statement: str) -> str:
    """Return a statement of ours as DuckDB 1.4 needs it, whose own parser takes these few for statements of its own."""
    if version.startswith("1.4.") and statement.startswith(("SHOW ", "SET ", "RESET ")):
        return f"FROM grouplearn('{statement.rstrip(';')}');"
    return statement


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Return whether the condition came true in that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False
