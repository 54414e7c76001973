"""Encoders are objects of one room, ``data.encoding``: no other asks by name which of them it has before it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import grouplearn
from grouplearn.data.encoding import registry

PACKAGE = Path(grouplearn.__file__).parent
ROOM = Path("data/encoding")
#: Words that mean something else, too: the kind of an item (hash), nothing, an array, a design matrix that is not dense, products
#: of columns (cross), histograms (bins), parts of the rows, the label (target), an option and a keyword (offset).
ELSEWHERE = {"none", "hash", "array", "sparse", "cross", "bins", "parts", "target", "offset"}
#: Why a file may say one all the same.
ALLOWED = {"runtime/calibrate.py": "measures what encoding costs by one of them"}


def named(source: str) -> Iterator[str]:
    """Yield the texts of a module that are the name of an encoder, and nothing else."""
    names = {encoder.name for encoder in registry.ENCODERS} - ELSEWHERE
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in names:
            yield f"line {node.lineno}: {node.value!r}"


def test_no_other_room_asks_which_encoder_it_is() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        own = path.relative_to(PACKAGE)
        if ROOM not in own.parents and str(own) not in ALLOWED:
            found[str(own)] = [*named(path.read_text(encoding="utf-8"))]
    assert {path: said for path, said in found.items() if said} == {}


def test_the_check_sees_a_name() -> None:
    assert [*named('width = 1 if item.encoder == "ordinal" else 2')] == ["line 1: 'ordinal'"]


@pytest.mark.parametrize("name", sorted(registry.CALLS))
def test_each_call_means_an_encoder_and_each_encoder_has_its_call(name: str) -> None:
    assert registry.called(name)
    assert {encoder.call and encoder.call.name for encoder in registry.ENCODERS} == {None, *registry.CALLS}
