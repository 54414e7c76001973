"""Blocks of code in pages, what is printed below them, and a comparison with what they print when they run.

``GROUPLEARN_COMPLETE=1 pytest tests/project`` writes what was seen into the pages (but for blocks with ``...``); read the diff
before you believe it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COMPLETE = os.environ.get("GROUPLEARN_COMPLETE") == "1"
_BLOCK = re.compile(
    r"^```(?P<kind>\w+)\n(?P<code>.*?)^```\n(?:\n```\n(?P<printed>.*?)^```\n)?", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    kind: str
    code: str
    printed: str | None


def blocks(page: str | Path, *kinds: str) -> list[Block]:
    """The blocks of a page, whose path is relative to docs/, in these languages."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = [Block(match["kind"], match["code"], match["printed"]) for match in _BLOCK.finditer(text)]
    return [block for block in found if block.kind in kinds]


def check(page: str | Path, found: list[Block], run: Callable[[Block], str]) -> None:
    """Run blocks of a page in order and compare what each prints with what the page says, if it says anything."""
    seen = [without_trailing_space(run(block)) for block in found]
    if COMPLETE:
        complete(DOCS / page, found, seen)
        return
    for block, text in zip(found, seen, strict=True):
        if block.printed is not None:
            pattern = ".*".join(re.escape(part) for part in block.printed.split("..."))
            assert re.fullmatch(pattern, text, re.DOTALL), (
                f"{page}:\n{block.code}\nprints\n{text}\nnot\n{block.printed}"
            )


def complete(path: Path, found: list[Block], seen: list[str]) -> None:
    text = path.read_text(encoding="utf-8")
    for block, printed in zip(found, seen, strict=True):
        if block.printed is not None and "..." not in block.printed:
            opening = f"```{block.kind}\n{block.code}```\n\n```\n"
            assert opening in text
            text = text.replace(opening + block.printed, opening + printed)
    path.write_text(text, encoding="utf-8")


def without_trailing_space(text: str) -> str:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(lines) + "\n" if lines else ""
