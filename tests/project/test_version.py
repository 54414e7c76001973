"""One version everywhere, and ``SELECT grouplearn_version()``: what runs, wherever it is asked."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import duckdb
import pytest

import grouplearn
from grouplearn.kernels.build import builds

ROOT = Path(__file__).parents[2]
OURS = f"grouplearn {importlib.metadata.version('grouplearn')} (kernels: {builds.name()})"
EXPECTED = f"{OURS}, DuckDB v{duckdb.__version__}"


def test_the_changelog_and_the_macros_for_dbt_have_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    macros = (ROOT / "grouplearn/frontends/dbt_package/dbt_project.yml").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", changes, re.MULTILINE)[0] == version
    assert re.findall(r"^version: (.*)$", macros, re.MULTILINE) == [version]


def test_a_connection_and_its_cursors_say_what_runs() -> None:
    with grouplearn.connect(progress=False) as con:
        for each in (con, con.cursor()):
            assert each.execute("SELECT grouplearn_version()").fetchall() == [(EXPECTED,)]
        many = con.sql("SELECT DISTINCT grouplearn_version() AS v FROM range(3000)")
        assert many is not None
        assert many.fetchall() == [(EXPECTED,)]


def test_a_macro_of_a_file_does_not_answer(tmp_path) -> None:
    path = str(tmp_path / "other.duckdb")
    with duckdb.connect(path) as theirs:
        theirs.execute("CREATE MACRO grouplearn_version() AS 'mine'; CREATE MACRO version() AS 'theirs'")
        theirs.execute("CREATE MACRO concat(a, b, c) AS 'nothing'")
    with grouplearn.connect(path, progress=False) as con:
        assert con.execute("SELECT grouplearn_version()").fetchall() == [(EXPECTED,)]


def test_it_takes_no_arguments() -> None:
    with grouplearn.connect(progress=False) as con, pytest.raises(duckdb.BinderException, match="grouplearn_version"):
        con.execute("SELECT grouplearn_version(1)")
