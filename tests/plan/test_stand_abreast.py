"""Which groups of a learner that takes steps share a unit."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from grouplearn.plan.physical import MAX_ABREAST_VALUES, MAX_GATHERED, SMALL_ROWS, stand_abreast


@given(st.lists(st.integers(0, 200_000), max_size=200), st.integers(1, 64), st.booleans())
def test_every_group_is_in_one_unit_and_no_shared_unit_is_too_large(rows: list[int], width: int, whole: bool) -> None:
    units = stand_abreast(rows, width, whole)
    assert sorted(number for unit in units for number in unit) == list(range(len(rows)))
    assert list(units) == sorted(units)
    for unit in units:
        assert list(unit) == sorted(unit)
        assert len(unit) <= MAX_GATHERED
        if len(unit) > 1:
            assert sum(rows[number] for number in unit) <= max(SMALL_ROWS, MAX_ABREAST_VALUES // width)


@pytest.mark.parametrize(
    ("rows", "whole", "expected"),
    [
        ([1000] * 16, True, [16]),  # one block in all: not worth more units
        ([16_000] * 16, True, [2] * 8),  # eight units for workers to share
        ([50] * 1000, True, [MAX_GATHERED] * 7 + [104]),
        ([400_000, *[20_000] * 20], True, [1, *[2] * 10]),  # longer than a block, but a small part of all rows
        ([400_000, *[20_000] * 20], False, [1] * 21),  # an operator that splits groups was asked for
        ([30_000, 30_000], True, [1, 1]),  # each is a worker's share
        ([], True, []),
    ],
)
def test_units_of(rows: Sequence[int], whole: bool, expected: list[int]) -> None:
    assert [len(unit) for unit in stand_abreast(rows, 16, whole)] == expected
