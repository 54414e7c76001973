"""A kernel is given addresses: of arrays that somebody holds until it returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import grouplearn.kernels

#: They return what they are given.
KEEP = frozenset({"_checked"})
FILES = sorted(Path(grouplearn.kernels.__file__).parent.rglob("*.py"))


def let_go_of(source: str) -> Iterator[int]:
    """Yield the lines in which ``address`` is asked for that of an array which is made there, and held by nobody afterwards."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        asked: list[ast.expr] = []
        if isinstance(node.func, ast.Name) and node.func.id == "address":
            asked = node.args
        elif isinstance(node.func, ast.Name) and node.func.id == "map" and ast.unparse(node.args[0]) == "address":
            asked = [each for given in node.args[1:] for each in getattr(given, "elts", [given])]
        for each in asked:
            if isinstance(each, ast.Call) and not (isinstance(each.func, ast.Name) and each.func.id in KEEP):
                yield each.lineno


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_arrays_are_held_while_kernels_read_them(path: Path) -> None:
    assert list(let_go_of(path.read_text())) == []


@pytest.mark.parametrize(
    "made", ["f(address(np.array(x)))", "f(*map(address, (_rows(x), y)))", "f(*map(address, given(x)))"]
)
def test_what_is_let_go_of_is_found(made: str) -> None:
    assert list(let_go_of(made)) == [1]


def test_what_is_held_is_let_be() -> None:
    assert (
        list(let_go_of("rows = _rows(x)\nf(address(rows), address(_checked(y)), *map(address, (rows, *others)))")) == []
    )
