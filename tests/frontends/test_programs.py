"""Programs that we start are not those of the current directory, and import nothing from there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grouplearn.frontends.native import build, launch
from grouplearn.kernels.build import compiling

#: Programs by which we would run something, and modules that Python would import.
PROGRAMS, MODULES = ("duckdb", "g++", "clang++", "as", "ld"), ("duckdb_cli", "pip", "ziglang", "os", "runpy")


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a directory that somebody else has filled; return the file that tells what has run."""
    place, found = tmp_path / "place", tmp_path / "marks"
    place.mkdir()
    for name in PROGRAMS:
        (place / name).write_text(f"#!/bin/sh\necho {name} >> {found}\necho v1.5.6\n")
        (place / name).chmod(0o755)
    for name in MODULES:
        (place / f"{name}.py").write_text(f"open({str(found)!r}, 'a').write('{name}\\n')\n__file__ = '/bin/sh'\n")
    monkeypatch.chdir(place)
    monkeypatch.delenv("GROUPLEARN_DUCKDB", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    return found


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script of duckdb-cli, as pip makes it."""
    found = tmp_path / "bin" / "duckdb"
    found.parent.mkdir()
    found.write_text(f"#!{sys.executable}\nfrom duckdb_cli.__main__ import main\nmain()\n")
    found.chmod(0o755)
    return found


@pytest.mark.parametrize("python_path", [None, "", ".", ":/nowhere"])
def test_the_package_of_the_shell_is_not_one_of_the_current_directory(
    marks: Path, script: Path, monkeypatch: pytest.MonkeyPatch, python_path: str | None
) -> None:
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    if python_path is not None:
        monkeypatch.setenv("PYTHONPATH", python_path)
    found = launch.find_shell()
    assert not marks.exists(), marks.read_text()
    assert found is not None
    assert Path(found) == script or Path(found).parent.name == "duckdb_cli"


@pytest.mark.parametrize("line", ["#!python", "#!./python", "#!/usr/bin/env python3", "#!", "#!/nowhere/\u00e9"])
def test_a_script_of_no_whole_path_is_not_asked(marks: Path, script: Path, line: str) -> None:
    script.write_text(f"{line}\n# duckdb_cli\n")
    assert launch._behind_script(script) == str(script)
    assert not marks.exists()


@pytest.mark.parametrize("entry", ["", ".", "../place", "./"])
def test_an_entry_of_the_path_that_is_the_current_directory_does_not_count(
    marks: Path, script: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([entry, str(script.parent)]))
    found = launch.find_shell()
    assert found is not None
    assert not found.startswith((str(marks.parent / "place"), "."))
    assert compiling.compiler() in (None, [sys.executable, "-P", "-m", "ziglang", "c++"])
    with pytest.raises(build.BuildError, match="there is no C"):
        build.compiler()
    assert not marks.exists()


def test_a_program_that_is_named_with_its_place_is_taken(marks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPLEARN_DUCKDB", "./duckdb")
    monkeypatch.setenv("CXX", "./g++ -O0")
    own = str(marks.parent / "place")
    assert launch.find_shell() == f"{own}/duckdb"
    assert compiling.compiler() == [f"{own}/g++", "-O0"]


def test_what_a_compiler_starts_is_looked_for_in_whole_places(
    marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def run(*_: object, env: dict[str, str], **__: Any) -> subprocess.CompletedProcess[str]:
        started.append(env["PATH"])
        return subprocess.CompletedProcess([], 1, "", "no")

    monkeypatch.setenv("PATH", f".:/usr/bin:{os.pathsep}")
    monkeypatch.setenv("CXX", "./g++")
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(compiling.CompileError):
        compiling.compile_library(tmp_path / "kernels.so", (), [tmp_path / "kernels.cpp"])
    with pytest.raises(build.BuildError):
        build._compile("1.5.6", tmp_path, tmp_path / "extension.so")
    assert started == ["/usr/bin", "/usr/bin"]
    assert not marks.exists()


@pytest.mark.usefixtures("marks")
def test_modules_that_are_run_are_installed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that runs a module would otherwise look for it in the current directory first."""
    started: list[list[str]] = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append(words)
        return subprocess.CompletedProcess(words, 1, "", "no")

    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling.importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(build.BuildError):
        build.headers("1.5.6")
    with pytest.raises(compiling.CompileError):
        compiling.compile_library(tmp_path / "kernels.so", (), [tmp_path / "kernels.cpp"])
    assert [words[:4] for words in started] == [[sys.executable, "-P", "-m", name] for name in ("pip", "ziglang")]
