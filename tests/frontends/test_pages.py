"""Runs the pages of docs/ on clients: tutorials/jupyter.md in a kernel, Python of how-to/operations/clients.md in a process."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from grouplearn.frontends.native.build import BuildError, build

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """The cells of the page and what they showed."""
    sources = [block.rstrip("\n") for block in blocks("tutorials/jupyter.md", "python")]
    node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    resources = {"metadata": {"path": str(tmp_path_factory.mktemp("page"))}}
    NotebookClient(node, timeout=60, kernel_name="python3", resources=resources).execute()
    return [(cell["source"], str(shown(cell["outputs"]))) for cell in node["cells"]]


def shown(outputs: Any) -> list[Any]:
    return [output.get("data", output) for output in outputs]


def test_the_page_of_jupyter_runs(cells: list[tuple[str, str]]) -> None:
    of = dict(cells)
    trained = next(output for source, output in cells if source.startswith("%%gl\nTRAIN"))
    assert trained.count('<tr class="best"') == 0  # the result of TRAIN has only the best
    assert trained.count("grouplearn-spark") == 4
    assert of["%gl FROM shortage"].count('<tr class="best"') == 4
    assert all("image/png" in output for source, output in cells if ".plot." in source)
    assert "()" in of["answer.df()"]  # a region without a model of its own
    assert "grouplearn-table" in next(output for source, output in cells if source.startswith("import grouplearn"))


def run_blocks(sources: list[str], folder: Path) -> None:
    script = "import matplotlib\nmatplotlib.use('agg')\n" + "\n".join(sources)
    # Only the home is another one, in which extensions are looked for: what is cached in the old one stays of use.
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    environment = {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": cache}
    command = [sys.executable, "-W", "ignore", "-c", script]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr


def test_the_page_of_clients_runs(tmp_path: Path) -> None:
    *before, adbc = blocks("how-to/operations/clients.md", "python")
    assert "LOAD grouplearn" in adbc
    run_blocks(before, tmp_path)
    assert (tmp_path / "demand.html").stat().st_size > 5_000
    try:
        build(importlib.metadata.version("duckdb"))
    except BuildError as error:
        pytest.skip(f"the extension that ADBC needs cannot be built here: {error}")
    install = [str(Path(sys.executable).parent / "grouplearn"), "duckdb", "--install"]
    subprocess.run(install, env={**os.environ, "HOME": str(tmp_path)}, check=True, capture_output=True)
    run_blocks([adbc, "assert best.column('status').to_pylist() == ['done'] * 3"], tmp_path)


def test_what_the_page_says_of_dbt_is_what_is_tested() -> None:
    from test_dbt import FILES

    tested = re.sub(r"\s+", "", FILES["models/demand.sql"])
    model, nightly, forecast = blocks("how-to/operations/clients.md", "sql")
    assert "refresh='SINCE day ON WORSE KEEP'" in nightly
    assert tested.startswith(re.sub(r"\s+", "", model))
    assert re.sub(r".*FROM", "FROM", forecast).strip() == FILES["models/forecast.sql"]
    (profile,) = blocks("how-to/operations/clients.md", "yaml")
    assert "module: grouplearn.frontends.dbt" in profile
