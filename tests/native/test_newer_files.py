"""A file that this Python's DuckDB makes, in a shell that is too old to read it."""

import os
import re
import subprocess
from pathlib import Path

import duckdb
import pytest
from native_builds import GROUPLEARN, TABLE, TRAIN

import grouplearn
from grouplearn.frontends.native import launch


def launched_on(shell: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [GROUPLEARN, "duckdb", *arguments]
    environment = {**os.environ, "GROUPLEARN_DUCKDB": shell}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


@pytest.mark.parametrize("name", ["shop.duckdb", "it's a shop.duckdb"])
def test_the_hint_makes_a_file_that_the_shell_reads(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if launch.version_of(shell).split(".")[0] >= duckdb.__version__.split(".")[0]:
        pytest.skip("this shell reads what this Python's DuckDB makes")
    monkeypatch.chdir(tmp_path)
    with grouplearn.connect(name, progress=False) as con:
        con.execute(TABLE)
        con.execute(TRAIN)
    done = launched_on(shell, "-csv", "-noheader", name, "-c", "SELECT count(*) FROM t")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Trying to read a database file with version number" in done.stderr
    hint = re.search(
        r"\n\nHint: (grouplearn\.connect\(.*\)) makes .* made in Python: (.*)\. grouplearn's own shell", done.stderr
    )
    assert hint is not None, done.stderr
    with grouplearn.connect(progress=False) as con:
        con.execute(hint[2])
    done = launched_on(shell, "-csv", "-noheader", "copy.duckdb", "-c", "SELECT count(prediction) FROM m_predict(t)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "300\n", "")
    Path(name).unlink()
    eval(hint[1]).execute(TABLE).close()
    done = launched_on(shell, "-csv", "-noheader", name, "-c", "SELECT count(*) FROM t")
    assert (done.returncode, done.stdout, done.stderr) == (0, "300\n", "")
