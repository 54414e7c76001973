"""Stored values: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

import enum
import json
import math
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from grouplearn.data.files.plain_values import NotPlain, from_bytes, to_bytes


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Leaf:
    name: str
    colour: Colour | None = None


@dataclass(frozen=True)
class Node:
    leaves: tuple[Any, ...]
    by_place: dict[tuple[int, int], Any] = field(default_factory=dict)


KINDS = (Colour, Leaf, Node)

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
leaves = scalars | st.binary(max_size=5) | st.builds(Leaf, st.text(max_size=3), st.sampled_from([None, Colour.RED]))
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.tuples(st.integers(), st.integers()), inner, max_size=3)
        | st.builds(Node, st.lists(inner, max_size=3).map(tuple))
    ),
    max_leaves=12,
)


@given(values)
def test_what_goes_in_comes_out(value: Any) -> None:
    assert from_bytes(to_bytes(value), KINDS) == value


def test_numbers_that_are_no_numbers() -> None:
    back = from_bytes(to_bytes((math.nan, math.inf, -math.inf, -0.0)), ())
    assert math.isnan(back[0])
    assert back[1:3] == (math.inf, -math.inf)
    assert math.copysign(1, back[3]) == -1


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::-1],
        np.array(3.5),
        np.zeros((0, 4), dtype=np.float32),
        np.array([True, False]),
        np.array([1, 2], dtype=np.uint64),
        np.asfortranarray(np.random.default_rng(0).normal(size=(3, 2, 4))),
    ],
)
def test_arrays_keep_their_bits(array: Any) -> None:
    back = from_bytes(to_bytes(Node((array,))), KINDS).leaves[0]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)


def test_scalars_of_numpy_are_numbers() -> None:
    assert from_bytes(to_bytes((np.float32(0.5), np.int16(3), np.bool_(True))), ()) == (0.5, 3, True)


def test_what_is_shared_is_written_once_and_stays_shared() -> None:
    shared = Leaf("x" * 1000)
    data = to_bytes(tuple(Node((shared, Leaf("y"))) for _ in range(100)))
    assert len(data) < 20_000
    back = from_bytes(data, KINDS)
    assert all(node.leaves[0] is back[0].leaves[0] for node in back)
    assert back == tuple(Node((shared, Leaf("y"))) for _ in range(100))


def test_objects_are_not_taken() -> None:
    with pytest.raises(NotPlain, match="a object cannot be stored"):
        to_bytes((object(),))


def test_kinds_that_were_not_asked_for_are_not_made() -> None:
    with pytest.raises(NotPlain, match="Leaf"):
        from_bytes(to_bytes(Leaf("a")), (Node,))


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-1], lambda data: b"", lambda data: b"{" * 40, lambda data: data[9:]]
)
def test_spoilt_bytes_are_refused(spoil: Any) -> None:
    with pytest.raises(NotPlain):
        from_bytes(spoil(to_bytes(Node((np.arange(3), "text")))), KINDS)


@dataclass(frozen=True)
class Typed:
    """One field of every kind that results have."""

    number: int = 0
    share: float = 0.5
    text: str | None = None
    sure: bool = False
    data: bytes = b""
    pairs: tuple[tuple[int, str], ...] = ()
    by_name: Mapping[str, float] = field(default_factory=dict)
    array: npt.NDArray[np.float64] | None = None
    word: Literal["one", "two"] = "one"
    leaves: tuple[Leaf, ...] = ()


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"share": 1, "text": "a", "data": b"1", "pairs": ((1, "a"), (2, "b")), "by_name": {"a": 1.5}, "word": "two"},
        {"array": np.zeros((2, 2)), "leaves": (Leaf("a"), Leaf("b"))},
    ],
)
def test_fields_of_their_types_come_back(values: dict[str, Any]) -> None:
    back = from_bytes(to_bytes(Typed(**values)), (Typed, Leaf))
    assert to_bytes(back) == to_bytes(Typed(**values))


@pytest.mark.parametrize(
    "values",
    [
        {"number": "7"}, {"number": 1.5}, {"number": True}, {"number": None}, {"number": np.zeros(1)}, {"share": "1"},
        {"text": 1}, {"sure": 1}, {"data": "text"}, {"pairs": ((1, "a", 2),)}, {"pairs": (("a", 1),)}, {"pairs": 3},
        {"pairs": {"a": 1}}, {"by_name": ((1, 2),)}, {"by_name": {1: 1.0}}, {"by_name": {"a": "b"}},
        {"array": np.array([1])}, {"array": (1.0,)}, {"word": "three"}, {"leaves": ("a",)},
        {"leaves": Leaf("a")},
    ],
    ids=str,
)  # fmt: skip
def test_fields_of_other_types_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(NotPlain, match="Typed has no such"):
        from_bytes(to_bytes(Typed(**values)), (Typed, Leaf))


@pytest.mark.parametrize(
    "value",
    [
        '{"tuple": [' * 5000 + "1" + "]}" * 5000,
        '{"tuple": {"tuple": [1]}}',
        '{"tuple": "ab"}',
        '{"map": ["ab"]}',
        '{"map": "ab"}',
        '{"again": 0}',
        '{"again": "x"}',
        '{"array": [1]}',
        '{"array": "7"}',
        '{"map": {"a": 1}}',
        '{"map": [[1]]}',
        '{"Leaf": [1]}',
        '{"Leaf": {"other": 1}}',
        '{"Leaf": 1, "Node": 2}',
        "{}",
        "nonsense",
        '"\\udc80"',
        '{"map": [["\\udc80", 1]]}',
    ],
    ids=lambda value: value[:20],
)
def test_values_that_are_none_are_refused(value: str) -> None:
    data = bytes(safetensors.numpy.save({"0": np.zeros(1)}, metadata={"value": value}))
    with pytest.raises(NotPlain):
        from_bytes(data, KINDS)


def doubled(times: int) -> list[dict[str, Any]]:
    """Return values each of which is the one before, twice: few bytes, and more values than can be gone through."""
    return [{"tuple": [1]}, *({"tuple": [{"again": n}, {"again": n}]} for n in range(times))]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (doubled(60), "they repeat values until there are more than 134,217,728"),
        ([*doubled(12), {"map": [[{"again": 12}, 1]]}], "a key is neither a text nor a number, nor a few of them"),
        ([{"map": [[{"tuple": [1] * 9}, 1]]}], "a key is neither"),
        ([{"map": [[{"Leaf": {"name": "a"}}, 1]]}], "a key is neither"),
    ],
    ids=["repeated", "repeated as a key", "a long key", "a dataclass as a key"],
)
def test_few_bytes_do_not_make_much_work(values: list[Any], why: str) -> None:
    header = json.dumps({"tuple": values})
    data = bytes(safetensors.numpy.save({"0": np.zeros(1)}, metadata={"value": header}))
    with pytest.raises(NotPlain, match=why):
        from_bytes(data, KINDS)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="aliases of their own came with Python 3.12")
def test_fields_of_an_alias_are_held_against_what_it_stands_for() -> None:
    """As numpy's NDArray is one from version 2.5."""
    number = TypeVar("number", bound=np.generic)
    alias = getattr(typing, "TypeAliasType")  # noqa: B009 - of later versions
    array = alias("array", np.ndarray[tuple[int, ...], np.dtype[number]], type_params=(number,))
    name = alias("name", str | None)
    fields = [("numbers", array[np.int64] | None), ("parts", tuple[array[np.float64], ...]), ("name", name)]
    kind = make_dataclass("Aliased", fields, frozen=True)
    value = kind(np.arange(3), (np.ones(2),), "a")
    assert repr(from_bytes(to_bytes(value), (kind,))) == repr(value)
    assert from_bytes(to_bytes(kind(None, (), None)), (kind,)) == kind(None, (), None)
    for wrong in (kind(np.ones(3), (), "a"), kind(None, (np.arange(2),), "a"), kind(None, (), 1)):
        with pytest.raises(NotPlain, match="Aliased has no such"):
            from_bytes(to_bytes(wrong), (kind,))
