"""docs/tutorials/shell.md in the shell it tells people to use; tests/project/test_docs.py runs it in our own."""

import os
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from helpers.pages import Block, blocks, without_trailing_space
from native_builds import GROUPLEARN, INSTALLED, built, cli

from grouplearn.frontends.native import launch

PAGE = blocks("tutorials/shell.md", "sql")
END = "end of a block"


def printed() -> list[str]:
    """Return what each block prints, in the width of the page."""
    shell = cli(INSTALLED)
    built(launch.version_of(shell))
    script = ".maxwidth 120\n" + "".join(f"{block.code}\n.print {END}\n" for block in PAGE)
    environment = {
        **os.environ,
        "GROUPLEARN_DUCKDB": shell,
        "GROUPLEARN_PYTHON": sys.executable,
        "HOME": "/nonexistent",
    }
    command = [GROUPLEARN, "duckdb"]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, input=script, text=True, timeout=120, check=False, env=environment, **both)
    return done.stdout.split(END + "\n")


@pytest.fixture(scope="module")
def seen() -> list[str]:
    return printed()


def as_on_the_page(text: str) -> str:
    """Without DuckDB's word for the kind of an error, and without its advice for wide results."""
    advice = "use .last to show entire result"
    return without_trailing_space(re.sub(r"^\w+ Error: ", "", text.replace(advice, " " * len(advice))))


Row = dict[str, str]


def box(text: str) -> list[Row]:
    """Return the rows of a box by their columns' names, without the names of types; no row where there is no box."""
    lines = [[cell.strip() for cell in line[1:-1].split("│")] for line in text.splitlines() if line.startswith("│")]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]] if lines else []


def is_same(cell: str, on_the_page: str) -> bool:
    """Return whether the shell shows what our own does, which rounds measures to four digits; either may cut texts short."""
    with suppress(ValueError):
        return float(cell) == pytest.approx(float(on_the_page), rel=1e-3)
    shorter, longer = sorted((cell.rstrip("…"), on_the_page.rstrip("…")), key=len)
    return longer.startswith(shorter) if "…" in cell + on_the_page else cell == on_the_page


@pytest.mark.parametrize("number", [number for number, block in enumerate(PAGE) if block.printed is not None])
def test_the_page_is_what_the_stock_shell_prints(seen: list[str], number: int) -> None:
    """Where the stock shell shows all digits it may have no place for all columns; what it shows is on the page."""
    block: Block = PAGE[number]
    assert block.printed is not None
    pattern = ".*".join(re.escape(part) for part in block.printed.split("..."))
    if re.fullmatch(pattern, as_on_the_page(seen[number]), re.DOTALL):
        return
    found, expected = box(seen[number]), box(block.printed)
    assert len(found) == len(expected) > 0, seen[number]
    for row, wanted in zip(found, expected, strict=True):
        shown = row.keys() & wanted.keys() - {"…"}
        assert len(shown) >= 6
        # Only a terminal leaves out columns that are NULL throughout, and here there is none.
        assert all(row[name] == "NULL" for name in row.keys() - shown - {"…"})
        assert all(is_same(row[name], wanted[name]) for name in shown), (row, wanted)
