"""What is installed beside us: every requirement has its reason, lowest and highest versions; what is missing is named."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import grouplearn
from grouplearn.frontends.native import build

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: Of these we use what their makers do not promise to keep.
PRIVATE = {"duckdb", "ray", "lightgbm", "statsforecast", "sqlalchemy", "duckdb-engine", "sqlglot"}


def requirements() -> list[str]:
    listed = [
        *PROJECT["dependencies"],
        *(each for extra in PROJECT["optional-dependencies"].values() for each in extra),
    ]
    return [each for each in listed if not each.startswith("grouplearn[")]


def test_every_requirement_has_a_lowest_version_and_the_private_ones_a_highest() -> None:
    bounded = {re.split("[>=]", each)[0] for each in requirements() if "<" in each}
    assert [each for each in requirements() if ">=" not in each and "==" not in each] == []
    assert bounded == PRIVATE


def test_one_file_of_the_extension_reads_objects_of_the_database_as_they_lie_in_memory() -> None:
    sources = [*(ROOT / "udfs/native").rglob("*.[ch]pp")]
    found = {path.name for path in sources if "reinterpret_cast<duckdb" in path.read_text(encoding="utf-8")}
    assert found == {"private_layouts.hpp"}


def test_every_action_of_the_workflows_is_pinned_by_a_hash() -> None:
    used = [
        line.split("uses:")[1].split("#")[0].strip()
        for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []


@pytest.mark.parametrize(
    ("missing", "imported", "message", "hint"),
    [
        ("sqlalchemy", "grouplearn.frontends.sqlalchemy", "a grouplearn:// URL needs duckdb-engine", "sqlalchemy"),
        ("duckdb_engine", "grouplearn.frontends.sqlalchemy", "a grouplearn:// URL needs duckdb-engine", "sqlalchemy"),
        ("dbt", "grouplearn.frontends.dbt", "the plugin needs dbt-duckdb", "dbt"),
    ],
)
def test_a_client_without_its_package_names_the_extra(missing: str, imported: str, message: str, hint: str) -> None:
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"import importlib, grouplearn\n"
        f"try: importlib.import_module({imported!r})\n"
        f"except grouplearn.MissingDependency as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == f'{message}, which is not installed\n\nHint: pip install "grouplearn[{hint}]"\n'
    assert hint in PROJECT["optional-dependencies"]


def test_pl_without_polars_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with grouplearn.connect() as con, pytest.raises(grouplearn.MissingDependency) as error:
        con.execute("SELECT 1 AS x").pl()
    assert str(error.value) == 'pl() needs polars, which is not installed\n\nHint: pip install "grouplearn[polars]"'


def test_a_source_package_that_is_another_is_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its setup.py would run before pip could say what it is."""
    ran = tmp_path / "ran"
    source = tmp_path / "setup.py"
    source.write_text(f"open({str(ran)!r}, 'w')\n", encoding="utf-8")
    with tarfile.open(tmp_path / "duckdb-9.9.9.tar.gz", "w:gz") as package:
        package.add(source, "duckdb-9.9.9/setup.py")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(build.BuildError, match=r"DO NOT MATCH THE HASHES"):
        build.headers("9.9.9", "0" * 64)
    with pytest.raises(build.BuildError, match=r"no SHA-256 of its source package is known here.*1\.5\.6"):
        build.headers("9.9.9")
    assert not ran.exists()


def test_a_build_of_another_version_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sources may be the same: the version is in the build."""
    monkeypatch.setattr(build, "build_for", lambda version: tmp_path / version)
    monkeypatch.setattr(build, "headers", lambda version, sha256: tmp_path)
    monkeypatch.setattr(build, "_compile", lambda version, include, library: library.write_bytes(build.OURS.encode()))
    for ours in ("0.9", "1.0"):
        monkeypatch.setattr(build, "OURS", ours)
        assert build.build("9.9.9").read_bytes().startswith(ours.encode())
