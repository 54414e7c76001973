"""Runs the pages of docs/ that speak of clients: docs/jupyter.md in a real kernel, the Python of docs/clients.md in a process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """The cells of the page and what they showed."""
    sources = [block.rstrip("\n") for block in blocks("jupyter.md", "python")]
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


def test_the_page_of_clients_runs(tmp_path: Path) -> None:
    script = "import matplotlib\nmatplotlib.use('agg')\n" + "\n".join(blocks("clients.md", "python"))
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "demand.html").stat().st_size > 5_000


def test_what_the_page_says_of_dbt_is_what_is_tested() -> None:
    from test_dbt import FILES

    tested = re.sub(r"\s+", "", FILES["models/demand.sql"])
    model, forecast = blocks("clients.md", "sql")
    assert tested.startswith(re.sub(r"\s+", "", model))
    assert re.sub(r".*FROM", "FROM", forecast).strip() == FILES["models/forecast.sql"]
    (profile,) = blocks("clients.md", "yaml")
    assert "module: grouplearn.frontends.dbt" in profile
