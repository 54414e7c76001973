"""Runs the pages of docs/: every block of statements, each compared with what the page says it prints.

A block of code may be followed by a block without a language: what it prints, with ``...`` for any text.
"""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.pages import COMPLETE, DOCS, Block, blocks, check

import grouplearn
from grouplearn.catalog.asking import PREDICTION
from grouplearn.data.encoding.registry import CALLS
from grouplearn.frontends.shell.console import Console, Failed
from grouplearn.schedule.operators import OPERATORS


@contextmanager
def shell() -> Iterator[Console]:
    console = Console(lambda path, read_only: grouplearn.connect(path, read_only=read_only, progress=None))
    yield console
    console.close()


def test_the_shells_page(capsys: pytest.CaptureFixture[str]) -> None:
    with shell() as console:

        def run(block: Block) -> str:
            with suppress(Failed):
                console.run(block.code)
            printed = capsys.readouterr()
            return printed.out + printed.err

        done = blocks("shell.md", "sql")
        check("shell.md", done, run)
    assert sum(block.printed is not None for block in done) >= 8


@pytest.mark.parametrize("page", ["python.md", "guide.md"])
def test_pages_in_python(
    page: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a page may write files
    scope: dict[str, Any] = {}

    def run(block: Block) -> str:
        exec(compile(block.code, page, "exec"), scope)
        return capsys.readouterr().out

    try:
        found = blocks(page, "python")
        assert len(found) >= 3
        check(page, found, run)
        failed = scope["con"].execute("FROM grouplearn.trials WHERE status = 'failed'").fetchall()
        assert not failed, "a statement of a page trains"
    finally:
        scope["con"].close()
        with suppress(grouplearn.ProgrammingError):
            grouplearn.unregister("pixels")


def test_the_page_of_learners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = blocks("learners.md", "python")[0].code
    assert len(file.splitlines()) < 80
    (tmp_path / "median_sgd.py").write_text(file, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    scope: dict[str, Any] = {"__name__": "page"}

    def run(block: Block) -> str:
        if block.code != file:
            exec(compile(block.code, "learners.md", "exec"), scope)
        return capsys.readouterr().out

    try:
        found = blocks("learners.md", "python")
        assert sum(block.printed is not None for block in found) >= 2
        check("learners.md", found, run)
    finally:
        scope["con"].close()
        sys.modules.pop("median_sgd")
        grouplearn.unregister("median_sgd")


@pytest.mark.usefixtures("commented")
def test_the_reference_is_what_grammar_and_learners_say() -> None:
    made = runpy.run_path(str(DOCS / "generate.py"))["reference"]()
    path = DOCS / "reference.md"
    if COMPLETE:
        path.write_text(made, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == made, "run python docs/generate.py"


def test_every_statement_of_the_grammar_is_in_the_reference() -> None:
    grammar = (DOCS.parent / "sql" / "grammar.ebnf").read_text(encoding="utf-8")
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    rules = re.findall(r"^(\w+) +=", grammar, re.MULTILINE)
    assert len(rules) >= 20
    assert [rule for rule in rules if not re.search(rf"^{rule} +=", text, re.MULTILINE)] == []


def test_every_operator_and_encoder_is_in_the_reference() -> None:
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert [name for name in OPERATORS if f"| `{name}` |" not in text] == []
    assert [name for name in CALLS if f"| `{name}(" not in text] == []


def test_every_field_of_a_prediction_is_in_the_reference() -> None:
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    with grouplearn.connect(progress=None) as con:
        fields = con.execute(
            f"SELECT column_name, column_type FROM (DESCRIBE SELECT unnest(NULL::{PREDICTION}))"
        ).fetchall()
    assert len(fields) == 7
    assert [name for name, kind in fields if f"| `{name}` | {kind} |" not in text] == []


def test_the_statements_of_the_reference_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with grouplearn.connect(progress=None) as con:
        statements = blocks("reference.md", "sql")
        for block in statements:
            con.execute(block.code)
    assert len(statements) >= 10


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), target
