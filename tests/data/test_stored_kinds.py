"""What goes into files or to other processes names every kind of value that its fields can hold."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import pkgutil
import sys
import typing
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pytest

import grouplearn
from grouplearn.data.files.plain_values import INLINE
from grouplearn.runtime.ray.supervised import pipe
from grouplearn.statements.workflow.manifest import KINDS
from grouplearn.train.results import checkpoints, ledger

PURE = ("data", "learners", "schedule", "search", "train", "runtime", "bind", "catalog", "statements")


def every_name() -> dict[str, Any]:
    """Return what is defined anywhere in the package, for annotations of modules that import it for types alone."""
    found: dict[str, Any] = {}
    for module in pkgutil.walk_packages(grouplearn.__path__, "grouplearn."):
        if module.name.split(".")[1] in PURE:
            loaded = importlib.import_module(module.name)
            found.update(
                (name, each) for name, each in vars(loaded).items() if getattr(each, "__module__", "") == module.name
            )
    return found


NAMES = every_name()


def held(kind: Any) -> Iterator[type]:
    """Yield the dataclasses and enumerations that an annotation names."""
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, enum.Enum)):
        yield kind
    for part in typing.get_args(kind):
        yield from held(part)


#: What goes another way: groups as a table, and products of steps from worker to worker.
APART = {("Job", "groups"), ("StepAnswer", "product")}


def held_inline(kind: type) -> list[dataclasses.Field[Any]]:
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return [field for field in fields if INLINE in field.metadata]


def lacking(kinds: Iterable[type], apart: Collection[tuple[str, str]] = ()) -> set[tuple[str, str]]:
    """Return fields of ``kinds``, by class and name, that can hold a kind which is not among them."""
    known = set(kinds)
    known |= {field.metadata[INLINE] for kind in known for field in held_inline(kind)}
    found = set()
    for kind in known:
        if dataclasses.is_dataclass(kind):
            hints = typing.get_type_hints(kind, localns={**NAMES, **vars(sys.modules[kind.__module__])})
            for field in dataclasses.fields(kind):
                if not known.issuperset(held(hints[field.name])):
                    found.add((kind.__name__, field.name))
    return found.difference(apart)


def test_what_passes_between_the_processes_of_ray_can_be_read() -> None:
    assert lacking(pipe.KINDS, APART) == set()


@pytest.mark.parametrize(
    "kinds", [pipe.WRITTEN_KINDS, KINDS, checkpoints.KINDS, (*ledger.RESULT_KINDS, ledger.Segment)]
)
def test_what_is_written_can_be_read(kinds: tuple[type, ...]) -> None:
    assert lacking(kinds) == set()


def test_one_that_is_forgotten_is_noticed() -> None:
    assert lacking((kind for kind in pipe.KINDS if kind.__name__ != "Lists"), APART) == {("Dataset", "lists")}
