"""The ``duckdb`` shell of the package duckdb-cli with our extension: run to its end, or typed into.

By default it is the version that the test group installs. ``GROUPLEARN_CLI_VERSIONS=all`` runs each test in every version that
PyPI has from 1.4 on (minutes), ``GROUPLEARN_CLI_VERSIONS="1.5.0 1.4.4"`` in those; they are installed on first use.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pexpect
import pytest
from native_builds import GROUPLEARN, TABLE, TRAIN, built, cli, cli_versions, spelled

from grouplearn.frontends.native import launch
from grouplearn.sqltext import string


@pytest.fixture(scope="session", params=cli_versions())
def shell(request: pytest.FixtureRequest) -> str:
    """The duckdb command, for which there is a build."""
    found = cli(request.param)
    built(launch.version_of(found))
    return found


@pytest.fixture
def ours(shell: str) -> Callable[[str], str]:
    """Spell a statement of ours for the shell."""
    return partial(spelled, launch.version_of(shell))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension starts this python; the shell reads no start-up file of whoever runs the tests."""
    monkeypatch.setenv("GROUPLEARN_PYTHON", sys.executable)
    monkeypatch.setenv("HOME", "/nonexistent")


@pytest.fixture(scope="session")
def launched(shell: str) -> list[str]:
    """What ``grouplearn duckdb`` replaces itself by: a python less to start; shells on terminals are started through it."""
    load = f"LOAD {string(str(built(launch.version_of(shell))))}"
    return [shell, "-unsigned", *launch._packaged_extensions(shell), "-cmd", load]


@pytest.fixture
def run(shell: str, launched: list[str]):
    """Run ``grouplearn duckdb ARGUMENTS`` to its end."""

    def run(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        command = [GROUPLEARN, "duckdb"] if "--install" in arguments else launched
        return subprocess.run(
            [*command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "GROUPLEARN_DUCKDB": shell, **environment},
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def trained(shell: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a table and a model, to be copied."""
    path = tmp_path_factory.mktemp("trained") / "a.duckdb"
    names = {"GROUPLEARN_DUCKDB": shell, "GROUPLEARN_PYTHON": sys.executable, "HOME": "/nonexistent"}
    command = [GROUPLEARN, "duckdb", str(path)]
    done = subprocess.run(
        command, input=TABLE + TRAIN, capture_output=True, text=True, env={**os.environ, **names}, check=True
    )
    assert done.stderr == ""
    return path


@pytest.fixture
def database(trained: Path, tmp_path: Path) -> str:
    """A database with a table and a model, which another process has trained."""
    return str(shutil.copy(trained, tmp_path))


@contextmanager
def typing(shell: str) -> Iterator[Callable[..., pexpect.spawn]]:
    """Give what starts ``grouplearn duckdb -csv ARGUMENTS`` on a terminal of its own."""
    told = subprocess.run([shell, "-help"], capture_output=True, text=True, check=False)
    # Since 1.5.1 the shell asks the terminal for its colours, and waits for an answer that nobody gives here.
    colours = ["-dark-mode"] if "-dark-mode" in told.stdout + told.stderr else []
    started: list[pexpect.spawn] = []

    def typed(*arguments: str) -> pexpect.spawn:
        options = ["duckdb", "-csv", *colours, *arguments]
        names = {"GROUPLEARN_DUCKDB": shell, "GROUPLEARN_PYTHON": sys.executable, "HOME": "/nonexistent"}
        environment = {**os.environ, **names}
        child = pexpect.spawn(GROUPLEARN, options, encoding="utf-8", timeout=30, dimensions=(40, 160), env=environment)
        child.delaybeforesend = None
        started.append(child)
        return child

    yield typed
    for child in started:
        child.close(force=True)


@pytest.fixture
def typed(shell: str):
    """Start ``grouplearn duckdb -csv ARGUMENTS`` on a terminal of its own."""
    with typing(shell) as started:
        yield started


@pytest.fixture
def terminal(typed) -> pexpect.spawn:
    """A shell on a terminal, with a database in memory."""
    return typed()


@pytest.fixture(scope="module")
def lasting(shell: str) -> Iterator[pexpect.spawn]:
    """A shell that a file's tests share, which leave it and its process as they were."""
    with typing(shell) as started:
        yield started()


@pytest.fixture
def place(lasting: pexpect.spawn) -> Iterator[pexpect.spawn]:
    """The shared shell in an empty database of the test's own."""
    lasting.send("ATTACH ':memory:' AS here; USE here; SELECT 'be' || 'gun';\r")
    lasting.expect("begun")
    yield lasting
    lasting.send("USE memory; DETACH here; SELECT 'le' || 'ft';\r")
    lasting.expect("left")
