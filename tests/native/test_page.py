"""docs/shell.md in the shell it tells people to use; tests/test_docs.py runs it in our own."""

import os
import re
import subprocess
import sys

import pytest
from native_builds import GROUPLEARN, INSTALLED, built, cli
from test_docs import Block, blocks, without_trailing_space

from grouplearn.frontends.native import launch

PAGE = blocks("shell.md", "sql")
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


@pytest.mark.parametrize("number", [number for number, block in enumerate(PAGE) if block.printed is not None])
def test_the_page_is_what_the_stock_shell_prints(seen: list[str], number: int) -> None:
    block: Block = PAGE[number]
    assert block.printed is not None
    pattern = ".*".join(re.escape(part) for part in block.printed.split("..."))
    assert re.fullmatch(pattern, as_on_the_page(seen[number]), re.DOTALL), seen[number]
