"""The wheel holds what the repository holds: every package, and every file that is read as a resource."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from grouplearn.frontends.native.locate import build_for
from grouplearn.kernels.build.compiling import builds, path_of

ROOT = Path(__file__).parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
FOLDERS = {"grouplearn": "grouplearn", "sql": "grouplearn.sql", "udfs": "grouplearn.udfs"}


def package_of(path: Path) -> str:
    first, *rest = path.relative_to(ROOT).parent.parts
    return ".".join([FOLDERS[first], *rest])


def enclosing(package: str) -> list[str]:
    parts = package.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def files() -> list[Path]:
    """Return the files of the packages, without what Python and a compiler that is running keep there."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    return [path for path in found if path.is_file() and not re.search(r"/(__pycache__|\.compiling-\w+)/", str(path))]


def test_every_package_is_listed() -> None:
    assert {package_of(path) for path in files() if path.suffix == ".py"} == set(SETUPTOOLS["packages"])
    assert SETUPTOOLS["package-dir"] == {name: folder for folder, name in FOLDERS.items()}


def test_every_resource_is_listed() -> None:
    patterns = SETUPTOOLS["package-data"]
    resources = [path for path in files() if path.suffix != ".py"]
    assert len(resources) >= 4
    listed = {
        path: [each for name in enclosing(package_of(path)) for each in patterns.get(name, [])] for path in resources
    }
    left_out = [path for path in resources if not any(path.match(pattern) for pattern in listed[path])]
    assert left_out == []


#: Writes what it is told to compile, at once: the kernels take a minute, and those that the tests run were compiled.
COMPILER = '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho compiled > "$2"\n'


def test_a_wheel_has_every_file_and_what_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``make wheel`` tries such a wheel with real kernels and extensions."""
    copy, compiler = tmp_path / "copy", tmp_path / "c++"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    for path in [*files(), *(ROOT / name for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"))]:
        if path.suffix not in (".duckdb_extension", ".so"):
            target = copy / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    extension = build_for("9.8.7", copy / "udfs/extensions")
    extension.parent.mkdir(parents=True)
    extension.write_bytes(b"built")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(copy)]
    made = subprocess.run(command, capture_output=True, text=True)
    if "the requirement setuptools>=77" in made.stderr:
        pytest.skip(f"setuptools cannot be had here: {made.stderr[-300:]}")
    assert made.returncode == 0, made.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        held = set(wheel.namelist())
        kernels = {build: wheel.read(f"grouplearn/kernels/{path_of(build).name}") for build in builds()}
    assert set(kernels.values()) == {b"compiled\n"}
    expected = {Path(package_of(path).replace(".", "/"), path.name) for path in files() if path.suffix == ".py"}
    assert {str(path) for path in expected} <= held
    built = extension.relative_to(copy / "udfs")
    assert {f"grouplearn/udfs/{built}", "grouplearn/udfs/native/channel/channel.hpp", "grouplearn/py.typed"} <= held
