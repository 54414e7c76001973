"""Checks values against annotations: values read from bytes are compared with the declared field types."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Fields:
    """The fields of dataclasses and the values they accept; annotations that exist only for type checkers are looked up in
    ``kinds``."""

    def __init__(self, kinds: Mapping[str, type]) -> None:
        self._kinds = kinds
        #: Values occur repeatedly and nested: what was accepted once is not checked again.
        self._fitted: set[tuple[int, int]] = set()
        self._hints: dict[type, dict[str, Any]] = {}

    def misfit(self, kind: type, values: Mapping[str, Any]) -> str | None:
        """Return the name of a field of ``kind`` whose value does not fit, None if all fit."""
        hints = self._hints.get(kind) or self._hints.setdefault(kind, _hints(kind, self._kinds))
        return next((name for name, value in values.items() if not self.fits(value, hints.get(name, Any))), None)

    def fits(self, value: Any, hint: Any) -> bool:
        """Return whether a value is of a type."""
        hint = meant(hint)
        if hint is Any or hint is None or value is None:
            return hint is Any or _takes_none(hint) if value is None else hint is Any
        if not isinstance(value, tuple | dict):
            return _plain_fits(value, hint)
        key = (id(value), id(hint))
        if key not in self._fitted:
            if not self._many_fit(value, hint):
                return False
            self._fitted.add(key)
        return True

    def _many_fit(self, value: tuple[Any, ...] | dict[Any, Any], hint: Any) -> bool:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (types.UnionType, typing.Union):
            return any(self.fits(value, each) for each in arguments)
        if isinstance(value, dict):
            is_map = isinstance(origin, type) and issubclass(origin, Mapping)
            return is_map and all(self.fits(k, arguments[0]) and self.fits(v, arguments[1]) for k, v in value.items())
        if origin not in (tuple, Sequence):
            return False
        if origin is Sequence or (len(arguments) == 2 and arguments[1] is Ellipsis):
            return all(self.fits(each, arguments[0]) for each in value)
        return len(value) == len(arguments) and all(map(self.fits, value, arguments))


@functools.cache  # one object per alias, as accepted values are remembered by its identity
def meant(hint: Any) -> Any:
    """Return what a ``type`` alias stands for (NDArray is one since numpy 2.5); other annotations unchanged."""
    origin = typing.get_origin(hint)
    if (value := getattr(origin, "__value__", None)) is not None:
        return value[typing.get_args(hint)]
    return getattr(hint, "__value__", hint)


def _hints(kind: type, kinds: Mapping[str, type]) -> dict[str, Any]:
    return {**typing.get_type_hints(kind, localns=dict(kinds))} if dataclasses.is_dataclass(kind) else {}


@functools.lru_cache(maxsize=1024)
def _takes_none(hint: Any) -> bool:
    hint = meant(hint)
    return hint is type(None) or any(map(_takes_none, _alternatives(hint)))


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else ()


def _plain_fits(value: Any, hint: Any) -> bool:
    """Return whether a value without parts, or an object whose fields were checked, fits."""
    hint = meant(hint)
    if alternatives := _alternatives(hint):
        return any(_plain_fits(value, each) for each in alternatives)
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype.kind in _number_kinds(hint)
    if hint is float:
        return type(value) in (int, float)
    if hint in (int, bool, str, bytes):
        return type(value) is hint
    return isinstance(hint, type) and isinstance(value, hint)


@functools.lru_cache(maxsize=64)
def _number_kinds(hint: Any) -> str:
    """Return the number types that an array annotation accepts: all integers for an integer, all for Any."""
    scalars = typing.get_args(typing.get_args(hint)[1])
    if not scalars or not isinstance(scalars[0], type) or not issubclass(scalars[0], np.generic):
        return "biuf"
    kind = np.dtype(scalars[0]).kind
    return "iu" if kind in "iu" else kind
