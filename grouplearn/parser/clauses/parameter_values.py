"""Values for parameters: found in a statement's fragments, and inserted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from grouplearn.errors import BindError
from grouplearn.messages import Span
from grouplearn.parser.statements import Sql

Parameters = Sequence[Any] | Mapping[str, Any] | None
_Node = TypeVar("_Node")


def parameter_names(node: object) -> tuple[str, ...]:
    """Return the names of all parameters under ``node``, in order of appearance, without repeats."""
    names: dict[str, None] = {}
    for _, fragment in _fragments(node):
        names.update(dict.fromkeys(parameter.name for parameter in fragment.parameters))
    return tuple(names)


def bind_parameters(node: _Node, parameters: Parameters, text: str = "") -> _Node:
    """Return ``node``, parsed from ``text``, with every parameter replaced by its value.

    Too few or too many values raise BindError, and one in place of a table does.
    """
    names = parameter_names(node)
    values = _by_name(parameters)
    missing = [name for name in names if name not in values]
    excess = [name for name in values if name not in names]
    if missing:
        raise BindError(f"no value was given for {_parameters(missing)}", text=text, span=_place(node, missing[0]))
    if excess:
        raise BindError(f"the statement has no {_parameters(excess)}, and a value was given")
    if not names:
        return node
    _refuse_as_table(node, text)
    bound: _Node = _map_fragments(node, lambda fragment: fragment.bound(values))
    return bound


def _refuse_as_table(node: object, text: str) -> None:
    """Raise BindError for ``FROM $name``: a value is no table, and its text would name one, or a file."""
    for clause, fragment in _fragments(node):
        if clause == "source" and fragment.parameters and not fragment.text[: fragment.parameters[0].start].strip():
            message = "a parameter is a value, and rows come from a table"
            hint = "Put the name of the table into the statement."
            raise BindError(message, text=text, span=fragment.span, hint=hint)


def _place(node: object, name: str) -> Span | None:
    """Return where a parameter is first written."""
    for _, fragment in _fragments(node):
        for parameter in fragment.parameters:
            if parameter.name == name:
                start = fragment.span.start
                return Span(start + parameter.start, start + parameter.end)
    return None


def _parameters(names: Sequence[str]) -> str:
    return f"parameter{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _by_name(parameters: Parameters) -> dict[str, Any]:
    if parameters is None:
        return {}
    if isinstance(parameters, Mapping):
        return {str(name): value for name, value in parameters.items()}
    return {str(number): value for number, value in enumerate(parameters, start=1)}


def _fragments(node: object, clause: str = "") -> Iterator[tuple[str, Sql]]:
    """Yield the fragments under ``node``, each with the name of the field that it is in."""
    if isinstance(node, Sql):
        yield clause, node
    elif isinstance(node, tuple):
        for item in node:
            yield from _fragments(item, clause)
    elif is_dataclass(node):
        for entry in fields(node):
            yield from _fragments(getattr(node, entry.name), entry.name)


def _map_fragments(node: Any, function: Any) -> Any:
    if isinstance(node, Sql):
        return function(node)
    if isinstance(node, tuple):
        return tuple(_map_fragments(item, function) for item in node)
    if is_dataclass(node) and not isinstance(node, type):
        return replace(
            node, **{entry.name: _map_fragments(getattr(node, entry.name), function) for entry in fields(node)}
        )
    return node
