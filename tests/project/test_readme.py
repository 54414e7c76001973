"""Runs what the README shows: the example on all flights, the mistake, the commands."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from helpers.pages import ROOT, Block, blocks, check

import grouplearn
from grouplearn.frontends.shell.console import Console, Failed
from grouplearn.frontends.shell.flights import load_flights
from grouplearn.learners import registry

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


def test_the_statements_print_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    statements = blocks(README, "sql")
    assert len(statements) == 3
    console = Console(lambda path, read_only: grouplearn.connect(path, read_only=read_only, progress=None))
    load_flights(console.connection)
    console.run("CREATE TABLE sales AS SELECT 'north' AS region, 10 AS price, 5 AS units;")
    capsys.readouterr()

    def run(block: Block) -> str:
        with suppress(Failed):
            console.run(block.code)
        printed = capsys.readouterr()
        return printed.out + printed.err

    try:
        check(README, statements, run)
    finally:
        console.close()


def test_every_learner_is_in_the_table() -> None:
    assert [name for name in registry.LEARNERS if f"`{name}`" not in TEXT.split("## Learners")[1].split("##")[0]] == []


def test_the_commands_exist() -> None:
    makefile = README.with_name("Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^make (\w+)", TEXT, re.MULTILINE)
    assert len(commands) == 2
    assert [name for name in [*commands, "bench"] if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []
    for script, only in re.findall(r"(benchmarks/\w+\.py) --only ([\w ]+)`", TEXT):
        text = (ROOT / script).read_text(encoding="utf-8")
        assert [name for name in only.split() if f'"{name}"' not in text] == []
