"""Every sentence that a user may read is listed in one file, and none has a construction that readers stumble over."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from messages import LISTED, ROOT, messages

#: What the style guide refuses and a pattern can find.
REFUSED = re.compile(
    r"\b(?:has|have|had) not (?!been\b)(?:a|an|any|as|enough|one|the|two)\b"
    r"|\b(?:is|are|was|were)\s+told\b(?!\s+apart)|\bis\s+that\s+of\b"
    r"|\bunless said\b|\bwithout more ado\b"
    r"|(?:^|[.!?:] |\n\n)Of [a-z]"
)


def documentation() -> Iterator[tuple[Path, str]]:
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield path, path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "grouplearn").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield path, ast.get_docstring(node) or ""
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield path, token.string.lstrip("#: ")


def test_every_message_is_listed() -> None:
    assert LISTED.read_text(encoding="utf-8") == messages(), f"run python {LISTED.with_suffix('.py')}"


def test_no_message_has_a_refused_construction() -> None:
    assert [line for line in LISTED.read_text(encoding="utf-8").splitlines() if REFUSED.search(line[2:])] == []


def test_no_page_docstring_or_comment_has_a_refused_construction() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text[max(each.start() - 30, 0) : each.end() + 30]}"
        for path, text in documentation()
        for each in REFUSED.finditer(text)
    ]
    assert found == []
