"""Blocks of code in the pages of docs/, and what is printed below them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(
    r"^```(?P<kind>\w+)\n(?P<code>.*?)^```\n(?:\n```\n(?P<printed>.*?)^```\n)?", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    kind: str
    code: str
    printed: str | None


def blocks(page: str, kind: str) -> list[Block]:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = [Block(match["kind"], match["code"], match["printed"]) for match in _BLOCK.finditer(text)]
    return [block for block in found if block.kind == kind]


def without_trailing_space(text: str) -> str:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(lines) + "\n" if lines else ""
