"""Sums over blocks: any way of cutting and merging gives the bits of one worker alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.train.block_sums import BlockSums


def add(left: float, right: float) -> float:
    return left + right


def alone(values: list[float | None]) -> BlockSums[float]:
    sums: BlockSums[float] = BlockSums()
    for block, value in enumerate(values):
        sums = sums.merged(BlockSums.of(block, value), add)
    return sums


numbers = st.lists(st.none() | st.floats(-1e10, 1e10), min_size=1, max_size=40)


@settings(deadline=None)
@given(numbers, st.randoms(use_true_random=False))
def test_any_partition_merged_in_any_order_gives_the_same_bits(values, random):
    parts: list[BlockSums[float]] = [BlockSums() for _ in range(random.randint(1, 8))]
    blocks = list(enumerate(values))
    random.shuffle(blocks)
    for block, value in blocks:
        place = random.randrange(len(parts))
        parts[place] = parts[place].merged(BlockSums.of(block, value), add)
    while len(parts) > 1:
        one = parts.pop(random.randrange(len(parts)))
        other = parts.pop(random.randrange(len(parts)))
        parts.append(one.merged(other, add))
    assert parts[0] == alone(values)
    assert parts[0].total(len(values), add) == alone(values).total(len(values), add)


@settings(deadline=None)
@given(numbers)
def test_the_total_is_the_sum_and_keeps_the_order(values):
    total = alone(values).total(len(values), add)
    known = [value for value in values if value is not None]
    assert total is None if not known else total == pytest.approx(math.fsum(known), rel=1e-12, abs=1e-3)
    texts: BlockSums[str] = BlockSums()
    for block in reversed(range(len(values))):
        texts = texts.merged(BlockSums.of(block, f"{block},"), lambda left, right: left + right)
    assert texts.total(len(values), lambda left, right: left + right) == "".join(f"{b}," for b in range(len(values)))


def test_a_run_is_kept_as_few_subtrees():
    values = np.arange(1000.0).tolist()
    assert [each.level for each in alone(values).subtrees] == [9, 8, 7, 6, 5, 3]
    assert alone(values[:4]).subtrees[0].sums == (0 + 1) + (2 + 3)


def test_blocks_summed_twice_or_never_are_refused():
    three = alone([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="block 2 was summed twice"):
        three.merged(BlockSums.of(2, 3.0), add)
    with pytest.raises(ValueError, match="3 blocks were summed where the group has 4"):
        three.total(4, add)
    with pytest.raises(ValueError, match="2 blocks were summed where the group has 2"):
        BlockSums.of(0, 1.0).merged(BlockSums.of(2, 1.0), add).total(2, add)
