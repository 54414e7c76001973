"""Stored values: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grouplearn.data.plain import NotPlain, from_bytes, to_bytes


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
