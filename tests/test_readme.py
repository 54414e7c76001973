"""Runs every code block of the README: the statement it opens with, the five-minute tour, the mistake it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import grouplearn
from grouplearn.frontends.flights import load_flights

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [body for kind, body in found if kind == language]


@pytest.fixture(scope="module")
def tour() -> Iterator[dict[str, object]]:
    scope: dict[str, object] = {}
    exec(compile("\n".join(blocks("python")), str(README), "exec"), scope)
    yield scope
    grouplearn.unregister("pixels")


def test_tour_runs(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> None:
    assert len(blocks("python")) >= 6
    request.getfixturevalue("tour")
    printed = capsys.readouterr().out
    assert "model_level" in printed
    assert "group_task_parallel" in printed


def test_the_first_statement_runs_on_some_of_the_flights() -> None:
    opening, _ = blocks("sql")
    with grouplearn.connect(progress=None) as con:
        load_flights(con)
        con.execute("CREATE OR REPLACE TABLE flights AS FROM flights WHERE carrier IN ('AS', 'HA', 'OO')")
        con.execute(opening)
        assert con.execute("SELECT count(*) FROM delays").fetchall() == [(3 * 12,)]
        assert con.execute("SELECT count(prediction) FROM delays_predict(flights)").fetchone() > (700,)


def test_the_mistake_is_pointed_at_as_shown(tour: dict[str, object]) -> None:
    _, statement = blocks("sql")
    (shown,) = (block for block in blocks("") if block.startswith("unknown"))
    with pytest.raises(grouplearn.BindError) as error:
        tour["con"].execute(statement)  # type: ignore[attr-defined]
    pattern = ".*".join(re.escape(part) for part in shown.strip().split("..."))
    assert re.fullmatch(pattern, str(error.value).strip())


def test_the_commands_exist() -> None:
    (commands,) = (block for block in blocks("") if block.startswith("make"))
    makefile = README.with_name("Makefile").read_text(encoding="utf-8")
    for name in re.findall(r"^make (\w+)", commands, re.MULTILINE):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE)
