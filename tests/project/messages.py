"""Lists every sentence that a user may read, so that a reviewer sees them in one file: ``python tests/project/messages.py``."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_suffix(".txt")
#: Three words of prose, which names, formats and SQL do not have.
_PROSE = re.compile(r"\b[a-z']+,? [a-z']+,? [a-z']+\b")
_SQL = re.compile(r"\b(SELECT|INSERT INTO|CREATE|DELETE|UPDATE|CASE WHEN|CAST)\b.*[(){}]")
_COMMENT = re.compile(r"^COMMENT ON .*? IS '((?:[^']|'')*)';", re.MULTILINE)
_CPP = re.compile(r'"((?:[^"\\\n]|\\.)*)"(?:\s*"((?:[^"\\\n]|\\.)*)")*')


def _documentation(tree: ast.AST) -> set[int]:
    """Return the ids of the constants that are docstrings, or texts that stand alone."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _written(node: ast.expr) -> str | None:
    """Return a text as it is written, with the expressions in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    if isinstance(node, ast.JoinedStr):
        return "".join(_written(each) or "" for each in node.values)
    return None


def _texts(tree: ast.AST) -> Iterator[str]:
    skipped = _documentation(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in skipped and (text := _written(node)) is not None:
            yield text


def messages() -> str:
    """Return the sentences by file."""
    found: list[str] = []
    for folder, suffix in (("grouplearn", "py"), ("udfs", "py"), ("udfs", "cpp"), ("sql", "sql")):
        for path in sorted((ROOT / folder).rglob(f"*.{suffix}")):
            text = path.read_text(encoding="utf-8")
            if suffix == "py":
                texts = _texts(ast.parse(text))
            elif suffix == "sql":
                texts = (each.replace("''", "'") for each in _COMMENT.findall(text))
            else:
                quoted = (re.findall(r'"((?:[^"\\\n]|\\.)*)"', each.group()) for each in _CPP.finditer(text))
                texts = ("".join(parts).replace("\\n", "\n").replace('\\"', '"') for parts in quoted)
            prose = [each for each in dict.fromkeys(texts) if _PROSE.search(each) and not _SQL.search(each)]
            if prose:
                lines = [line for each in prose for line in ("- " + " / ".join(each.split("\n"))).splitlines()]
                found += [str(path.relative_to(ROOT)), *lines, ""]
    return "\n".join(found)


if __name__ == "__main__":
    LISTED.write_text(messages(), encoding="utf-8")
    sys.stdout.write(f"{LISTED}\n")
