"""Runs the pages of docs/: every block of statements, each compared with what the page says it prints.

A page's blocks of SQL run in our shell, on a database file, and its blocks of Python in one scope, in their order. A block of
code may be followed by a block without a language: what it prints, with ``...`` for any text.
"""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from helpers.pages import COMPLETE, DOCS, ROOT, Block, blocks, check

import grouplearn
from grouplearn.catalog.predicting_connections import PREDICTION
from grouplearn.data.encoding.registry import CALLS
from grouplearn.frontends.shell import dotcommands
from grouplearn.frontends.shell.console import Console, Failed
from grouplearn.frontends.shell.flights import load_flights
from grouplearn.learners import registry
from grouplearn.schedule.operators import OPERATORS

PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
OWN_LEARNER = "how-to/models/own-learner.md"
#: Pages that run elsewhere, in tests/frontends/test_pages.py, or below.
ELSEWHERE = ("tutorials/jupyter.md", "how-to/operations/clients.md", OWN_LEARNER)
RUN_HERE = [page for page in PAGES if page not in ELSEWHERE and blocks(page, "sql", "python")]
#: Pages whose trials fail to show it.
FAIL = (
    "tutorials/shell.md",
    "reference/errors.md",
    "how-to/jobs/look-after-models.md",
    "how-to/jobs/twenty-mistakes.md",
)
#: Pages that begin with this read the flights of 2013.
FLIGHTS = "`grouplearn flights.duckdb`"
GENERATOR = runpy.run_path(str(DOCS / "generate.py"))


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the flights."""
    path = tmp_path_factory.mktemp("flights") / "flights.duckdb"
    with duckdb.connect(path) as connection:
        load_flights(connection)
    return path


@pytest.mark.parametrize("page", RUN_HERE)
def test_what_a_page_shows_is_what_it_prints(
    page: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flights: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # a page may write files
    if FLIGHTS in (DOCS / page).read_text(encoding="utf-8"):
        shutil.copy(flights, "page.duckdb")
    console = Console(
        lambda path, read_only: grouplearn.connect(path, read_only=read_only, progress=None), "page.duckdb"
    )
    scope: dict[str, Any] = {"__name__": "page"}
    failed: list[str] = []

    def run(block: Block) -> str:
        if block.kind == "python":
            exec(compile(block.code, page, "exec"), scope)
            return capsys.readouterr().out
        try:
            dotcommands.run(console, block.code)
        except Failed:
            failed.append(block.code)
        printed = capsys.readouterr()
        return printed.out + printed.err

    try:
        check(page, blocks(page, "sql", "python"), run)
        assert page in FAIL or not failed
        for connection in (console.connection, scope.get("con")):
            with suppress(grouplearn.Error, AttributeError):
                statuses = connection.execute("SELECT DISTINCT status FROM grouplearn.trials").fetchall()
                assert page in FAIL or ("failed",) not in statuses, "a statement of a page trains"
    finally:
        console.close()
        with suppress(KeyError):
            scope["con"].close()
        with suppress(grouplearn.ProgrammingError):
            grouplearn.unregister("pixels")


def test_the_page_of_learners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, *others = blocks(OWN_LEARNER, "python")
    assert len(file.code.splitlines()) < 80
    (tmp_path / "median_sgd.py").write_text(file.code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    scope: dict[str, Any] = {"__name__": "page"}

    def run(block: Block) -> str:
        exec(compile(block.code, OWN_LEARNER, "exec"), scope)
        return capsys.readouterr().out

    try:
        assert sum(block.printed is not None for block in others) >= 2
        check(OWN_LEARNER, others, run)
    finally:
        scope["con"].close()
        sys.modules.pop("median_sgd")
        grouplearn.unregister("median_sgd")


def test_enough_pages_show_what_they_print() -> None:
    printed = {page: sum(block.printed is not None for block in blocks(page, "sql", "python")) for page in RUN_HERE}
    assert len(RUN_HERE) >= 30
    assert printed["tutorials/shell.md"] >= 8
    assert [page for page in RUN_HERE if page.startswith("how-to/models") and not printed[page]] == []


@pytest.mark.usefixtures("commented")
def test_the_reference_is_what_grammar_and_learners_say() -> None:
    pages = list(GENERATOR["pages"]())
    assert len(pages) >= 15
    for path in pages:
        made = GENERATOR["filled"](path)
        if COMPLETE:
            path.write_text(made, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == made, "run python docs/generate.py"


def reference(page: str) -> str:
    return (DOCS / "reference" / page).read_text(encoding="utf-8")


def test_every_learner_and_hyperparameter_has_a_page() -> None:
    solvers = reference("learners/solvers.md")
    assert sorted(registry.LEARNERS) == sorted(
        path.stem for path in (DOCS / "reference" / "learners").glob("*.md") if path.stem not in ("README", "solvers")
    )
    for name, learner in registry.LEARNERS.items():
        text = reference(f"learners/{name}.md")
        also = reference("learners/gbdt.md") if name == "random_forest" else solvers
        for way in registry.ways(learner):
            names = [each.name for each in way.declaration.hyperparameters]
            assert [each for each in names if f"| `{each}` |" not in text + also] == [], way.way
        assert "```sql\nCREATE TABLE" in text
        assert "**When.**" in text
        assert "**Cost.**" in text


def test_every_statement_of_the_grammar_is_in_the_reference() -> None:
    grammar = (ROOT / "sql" / "grammar.ebnf").read_text(encoding="utf-8")
    text = reference("statements.md") + reference("features.md")
    rules = re.findall(r"^(\w+) +=", grammar, re.MULTILINE)
    assert len(rules) >= 20
    assert [rule for rule in rules if not re.search(rf"^{rule} +=", text, re.MULTILINE)] == []


def test_every_operator_and_encoder_is_described() -> None:
    operators = (DOCS / "concepts" / "operators.md").read_text(encoding="utf-8")
    assert [name for name in OPERATORS if f"| `{name}` |" not in operators] == []
    assert [name for name in CALLS if f"| `{name}(" not in reference("features.md")] == []


def test_every_field_of_a_prediction_is_in_the_reference() -> None:
    text = reference("tables.md")
    with grouplearn.connect(progress=None) as con:
        fields = con.execute(
            f"SELECT column_name, column_type FROM (DESCRIBE SELECT unnest(NULL::{PREDICTION}))"
        ).fetchall()
    assert len(fields) == 7
    assert [name for name, kind in fields if f"| `{name}` | {kind} |" not in text] == []


@pytest.mark.parametrize("page", [*PAGES, "../README.md"])
def test_links_lead_somewhere(page: str) -> None:
    """Also to a heading, by the anchor that it has on the site and on GitHub."""
    path = DOCS / page
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", path.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        linked = path.parent / target if target else path
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings]
            assert anchor in slugs, f"{target}#{anchor}"


def test_every_page_is_on_the_site_and_in_the_index() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / ".ci" / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(listed) == PAGES
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [
        page for page in PAGES if "/learners/" not in page and page != "README.md" and f"({page})" not in index
    ] == []
