"""Runs what the README shows: the statement it opens with, the mistake, the commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import grouplearn
from grouplearn.frontends.shell.flights import load_flights

README = Path(__file__).parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [body for kind, body in found if kind == language]


def test_the_first_statement_runs_on_some_of_the_flights() -> None:
    opening, _ = blocks("sql")
    with grouplearn.connect(progress=None) as con:
        load_flights(con)
        con.execute("CREATE OR REPLACE TABLE flights AS FROM flights WHERE carrier IN ('AS', 'HA', 'OO')")
        con.execute(opening)
        assert con.execute("SELECT count(*) FROM delays").fetchall() == [(3 * 12,)]
        assert con.execute("SELECT count(prediction) FROM delays_predict(flights)").fetchone() > (700,)


def test_the_mistake_is_pointed_at_as_shown() -> None:
    _, statement = blocks("sql")
    (shown,) = (block for block in blocks("") if block.startswith("unknown"))
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE sales AS SELECT 'north' AS region, 10 AS price, 5 AS units")
        with pytest.raises(grouplearn.BindError) as error:
            con.execute(statement)
    pattern = ".*".join(re.escape(part) for part in shown.strip().split("..."))
    assert re.fullmatch(pattern, str(error.value).strip())


def test_the_commands_exist() -> None:
    (commands,) = (block for block in blocks("") if block.startswith("make"))
    makefile = README.with_name("Makefile").read_text(encoding="utf-8")
    for name in re.findall(r"^make (\w+)", commands, re.MULTILINE):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE)
