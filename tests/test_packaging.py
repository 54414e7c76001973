"""The wheel holds what the repository holds: every package, and every file that is read as a resource."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
FOLDERS = {"grouplearn": "grouplearn", "sql": "grouplearn.sql", "udfs": "grouplearn.udfs"}


def package_of(path: Path) -> str:
    first, *rest = path.relative_to(ROOT).parent.parts
    return ".".join([FOLDERS[first], *rest])


def enclosing(package: str) -> list[str]:
    parts = package.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def files() -> list[Path]:
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


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
