"""``SELECT grouplearn_version()``: what runs, wherever it is asked."""

import importlib.metadata

import duckdb
import pytest

import grouplearn
from grouplearn.kernels.build import builds

OURS = f"grouplearn {importlib.metadata.version('grouplearn')} (kernels: {builds.name()})"
EXPECTED = f"{OURS}, DuckDB v{duckdb.__version__}"


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
