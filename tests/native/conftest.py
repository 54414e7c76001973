"""The extension, built for the tests, and the ``duckdb`` shell of the package duckdb-cli."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from native_builds import built

from grouplearn.frontends.native import launch


@pytest.fixture(scope="session")
def shell() -> str:
    """The duckdb command, for which there is a build."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        found = launch.find_shell()
    if found is None:
        pytest.skip("there is no duckdb command here (pip install duckdb-cli)")
    built(launch.version_of(found))
    return found


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension starts this python; the shell reads no start-up file of whoever runs the tests."""
    monkeypatch.setenv("GROUPLEARN_PYTHON", sys.executable)
    monkeypatch.setenv("HOME", "/nonexistent")


@pytest.fixture
def run(shell: str):
    """Run ``grouplearn duckdb ARGUMENTS`` to its end."""

    def run(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).parent / "grouplearn"), "duckdb", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "GROUPLEARN_DUCKDB": shell, **environment},
            check=False,
        )

    return run
