"""Values as bytes that cannot run code: dataclasses, tuples and mappings as JSON, arrays and bytes as tensors beside it.

A value is a safetensors file: its tensors are the arrays, its header has one entry ``value``, the JSON. What JSON does not
have is an object with one key, its kind: ``{"tuple": [...]}``, ``{"map": [[key, value], ...]}``, ``{"array": "7"}``,
``{"bytes": "7"}``, ``{"Group": {"id": 0, ...}}`` for a dataclass, ``{"Color": "red"}`` for an enumeration. What occurs
more than once is written once: ``{"again": 3}`` is the third value that was completed.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from grouplearn.data.tensors import named_tensors
from grouplearn.data.typed_values import Fields

#: Keys of mappings are texts, numbers, or tuples of at most this many, so that hashing a key is cheap.
_LONGEST_KEY = 8
#: Most values of a stored value with every ``again`` expanded: few bytes could ask for any number.
_MOST_VALUES = 1 << 27
#: Metadata of dataclass fields: ``inline``, or to be left out if equal to the default.
INLINE, _IF_OTHER = "inline", "if other"
#: The metadata of a field that is written only if it differs from its default.
IF_OTHER = {_IF_OTHER: True}


class NotPlain(TypeError):
    """A value of a kind that cannot be written, or bytes that are not such a value."""


def inline(part: type) -> dict[str, type]:
    """Return the metadata of a dataclass field whose fields are written among those around it."""
    return {INLINE: part}


def to_bytes(value: Any) -> bytes:
    """Return ``value``; raises NotPlain for anything but numbers, texts, None, tuples, mappings, arrays, dataclasses, enums."""
    writer = _Writer()
    header = json.dumps(writer.plain(value), ensure_ascii=False, separators=(",", ":"))
    return bytes(safetensors.numpy.save(writer.tensors, metadata={"value": header}))


def from_bytes(data: bytes, kinds: Iterable[type]) -> Any:
    """Return the value that ``to_bytes`` wrote; dataclasses and enumerations must be among ``kinds``. Raises NotPlain.

    Field values are checked against their declared types.
    """
    try:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])["__metadata__"]["value"]
        reader = _Reader(named_tensors(data), {kind.__name__: kind for kind in kinds})
        return reader.value(json.loads(header))
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise NotPlain(f"these bytes are no stored value: {error}") from error


class _Writer:
    """Turns values into JSON; keeps written values alive, so that no ``id`` is reused."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []

    def plain(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | str | float) or type(value) is int:
            return value
        if isinstance(value, np.generic):
            return self.plain(value.item())
        if id(value) in self._seen:
            return {"again": self._seen[id(value)]}
        written = self._written(value)
        self._seen[id(value)] = len(self._kept)
        self._kept.append(value)
        return written

    def _written(self, value: Any) -> dict[str, Any]:
        if isinstance(value, np.ndarray):
            return {"array": self._tensor(np.ascontiguousarray(value).reshape(value.shape))}
        if isinstance(value, bytes):
            return {"bytes": self._tensor(np.frombuffer(value, dtype=np.uint8))}
        if isinstance(value, Sequence) and not isinstance(value, bytearray | memoryview):
            return {"tuple": [self.plain(each) for each in value]}
        if isinstance(value, Mapping):
            return {"map": [[self.plain(key), self.plain(each)] for key, each in value.items()]}
        if isinstance(value, enum.Enum):
            return {type(value).__name__: value.value}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {type(value).__name__: dict(self._fields(value))}
        raise NotPlain(f"a {type(value).__name__} cannot be stored")

    def _fields(self, value: Any) -> Iterator[tuple[str, Any]]:
        for field in dataclasses.fields(value):
            part = getattr(value, field.name)
            if INLINE in field.metadata:
                yield from self._fields(part)
            elif _IF_OTHER not in field.metadata or part != field.default:
                yield field.name, self.plain(part)

    def _tensor(self, array: Any) -> str:
        name = str(len(self.tensors))
        self.tensors[name] = array
        return name


class _Reader:
    """Turns JSON back into values, in the order in which it was written."""

    def __init__(self, tensors: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
        self._tensors, self._kinds = tensors, kinds
        self._fields = Fields(kinds)
        #: Completed values, each with its number of values, and the total.
        self._read: list[tuple[Any, int]] = []
        self._count = 0

    def value(self, plain: Any) -> Any:
        self._counted(1)
        if isinstance(plain, str) and not plain.isascii():
            plain.encode()  # raises for lone surrogates, which JSON can contain
        if not isinstance(plain, dict):
            return plain
        ((what, content),) = plain.items()
        if what == "again":
            value, count = self._read[content]
            self._counted(count)
            return value
        before = self._count
        value = self._built(what, content)
        self._read.append((value, self._count - before))
        return value

    def _counted(self, more: int) -> None:
        self._count += more
        if self._count > _MOST_VALUES:
            raise ValueError(f"they repeat values until there are more than {_MOST_VALUES:,}")

    def _built(self, what: str, content: Any) -> Any:
        match what:
            case "array":
                return self._tensors[content]
            case "bytes":
                return self._tensors[content].tobytes()
            case "tuple":
                return tuple(self.value(each) for each in _list(content))
            case "map":
                return {_key(self.value(key)): self.value(each) for key, each in map(_list, _list(content))}
        kind = self._kinds[what]
        if issubclass(kind, enum.Enum):
            return kind(content)
        return self._made(kind, {name: self.value(each) for name, each in content.items()})

    def _made(self, kind: type, values: dict[str, Any]) -> Any:
        """Return a dataclass with these field values and its inline parts."""
        for field in dataclasses.fields(kind):
            part = field.metadata.get(INLINE)
            if part is not None:
                names = [each.name for each in dataclasses.fields(part) if each.name in values]
                values[field.name] = self._made(part, {name: values.pop(name) for name in names})
        misfit = self._fields.misfit(kind, values)
        if misfit is not None:
            raise TypeError(f"{kind.__name__} has no such {misfit}")
        return kind(**values)


def _list(content: Any) -> list[Any]:
    """Return a list as it is; raises for text or objects, which would iterate over letters or names."""
    if not isinstance(content, list):
        raise ValueError(f"a {type(content).__name__} is in the place of a list")
    return content


def _key(value: Any) -> Any:
    parts = value if isinstance(value, tuple) else (value,)
    if len(parts) > _LONGEST_KEY or not all(isinstance(part, str | int | float | None) for part in parts):
        raise TypeError("a key is neither a text nor a number, nor a few of them")
    return value
