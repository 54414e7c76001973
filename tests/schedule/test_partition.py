"""Wrap-around partitioning: every block on one worker, and no worker far from its share."""

import math
from collections import Counter
from fractions import Fraction

import pytest
from helpers.thorough import enough
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grouplearn.schedule.messages import BlockRange
from grouplearn.schedule.sharded.partition import (
    GroupSize,
    Partition,
    PlacedGroup,
    blocks_of,
    constrained_wrap_around,
    cut_evenly,
    rows_in,
    shard_count,
    wrap_around,
)

BLOCK = 10
ROWS = st.one_of(st.integers(0, 15), st.integers(0, 400), st.sampled_from([0, 1, 10, 20, 5000]))


def items_of(rows: list[int], splittable: bool = True) -> list[GroupSize]:
    return [GroupSize(100 + number, each, splittable) for number, each in enumerate(rows)]


def loads(placement: Partition, items: list[GroupSize]) -> list[int]:
    rows = {item.id: item.rows for item in items}
    return [sum(rows_in(blocks, rows[item], BLOCK) for item, blocks in placed) for placed in placement.workers]


def every_block_once(placement: Partition, items: list[GroupSize]) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    whole: Counter[int] = Counter()
    rows = {item.id: item for item in items}
    for item, blocks in (each for placed in placement.workers for each in placed):
        if blocks is None:
            whole[item] += 1
        else:
            assert 0 <= blocks.first < blocks.last <= blocks_of(rows[item].rows, BLOCK)
            assert rows[item].splittable
            seen.update((item, block) for block in range(blocks.first, blocks.last))
    assert set(whole.values()) <= {1}
    for item in items:
        number = blocks_of(item.rows, BLOCK)
        held = [seen[item.id, block] for block in range(number)]
        assert held == [0 if whole[item.id] else 1] * number
        assert number or whole[item.id], "an empty item must be somewhere too"


@settings(max_examples=enough(250, 50), deadline=None)
@given(rows=st.lists(ROWS, max_size=40), workers=st.integers(1, 30), relaxed=st.booleans())
@example(rows=[], workers=3, relaxed=False)
@example(rows=[0], workers=3, relaxed=False)
@example(rows=[7], workers=5, relaxed=True)
@example(rows=[900, *[1] * 100], workers=8, relaxed=False)
@example(rows=[900, *[1] * 100], workers=8, relaxed=True)
def test_wrap_around_meets_the_makespan_of_equation_2(rows: list[int], workers: int, relaxed: bool) -> None:
    items = items_of(rows)
    placement = wrap_around(items, workers, BLOCK, relaxed)
    every_block_once(placement, items)
    capacity = Fraction(sum(rows), workers)
    if not relaxed:
        capacity = max(capacity, Fraction(max(rows, default=0)))
    assert placement.capacity == pytest.approx(float(capacity))
    makespan = max(loads(placement, items))
    assert abs(makespan - capacity) <= BLOCK
    # The k-th cut stands within half a block of k C*: rounding does not add up.
    filled = 0
    for number, load in enumerate(loads(placement, items)[:-1], 1):
        filled += load
        assert abs(filled - min(number * capacity, sum(rows))) <= Fraction(BLOCK, 2)


@settings(max_examples=enough(75, 15), deadline=None)
@given(rows=st.lists(ROWS, max_size=40), workers=st.integers(1, 30))
def test_wrap_around_puts_an_item_on_neighbours_and_keeps_the_order(rows: list[int], workers: int) -> None:
    placement = wrap_around(items_of(rows), workers, BLOCK)
    order = [each for placed in placement.workers for each in placed]
    assert [item for item, _ in order] == sorted(item for item, _ in order)
    for shards in placement.shards().values():
        assert [*shards] == [*range(min(shards), min(shards) + len(shards))]
        assert [blocks.first for blocks in shards.values()][1:] == [blocks.last for blocks in shards.values()][:-1]
    # Cuts are C* apart and no item is longer than C*: at most two workers, and one more by rounding.
    assert all(len(shards) <= 3 for shards in placement.shards().values())


@settings(max_examples=enough(75, 15), deadline=None)
@given(sizes=st.lists(st.tuples(ROWS, st.booleans()), max_size=30), workers=st.integers(1, 12), relaxed=st.booleans())
def test_items_that_must_stay_together_do(sizes: list[tuple[int, bool]], workers: int, relaxed: bool) -> None:
    items = [GroupSize(number, rows, splittable) for number, (rows, splittable) in enumerate(sizes)]
    placement = wrap_around(items, workers, BLOCK, relaxed)
    every_block_once(placement, items)
    longest = max((item.rows for item in items if not item.splittable), default=0)
    assert max(loads(placement, items)) <= placement.capacity + max(longest, BLOCK)
    every_block_once(constrained_wrap_around(items, workers, BLOCK), items)


@settings(max_examples=enough(250, 50), deadline=None)
@given(rows=st.lists(ROWS, max_size=40), workers=st.integers(1, 30))
@example(rows=[900, *[1] * 100], workers=8)
@example(rows=[5000], workers=30)
def test_constrained_wrap_around_cuts_as_often_as_algorithm_2_says(rows: list[int], workers: int) -> None:
    items = items_of(rows)
    placement = constrained_wrap_around(items, workers, BLOCK)
    every_block_once(placement, items)
    total = sum(rows)
    for item in items:
        wanted = max(1, math.floor(item.rows * workers / Fraction(total) + Fraction(1, 2))) if total else 1
        shards = placement.shards().get(item.id, {0: BlockRange(0, 1)})
        assert len(shards) == min(wanted, max(1, blocks_of(item.rows, BLOCK)))
        sizes = {len(blocks) for blocks in shards.values()}
        assert max(sizes) - min(sizes) <= 1


def test_figure_5_of_the_paper() -> None:
    # Groups of 5, 2, 1 and 1 (in blocks of one row) on 3 workers: C* = 3, and round(5 / 3) = 2.
    placement = constrained_wrap_around([GroupSize(0, 5), GroupSize(1, 2), GroupSize(2, 1), GroupSize(3, 1)], 3, 1)
    assert placement.workers == (
        (PlacedGroup(0, BlockRange(0, 2)), PlacedGroup(2, None)),
        (PlacedGroup(0, BlockRange(2, 5)),),
        (PlacedGroup(1, None), PlacedGroup(3, None)),
    )


def test_halves_are_rounded_up() -> None:
    assert [shard_count(rows, 100, 10) for rows in (0, 4, 5, 14, 15, 25, 100)] == [1, 1, 1, 1, 2, 3, 10]


def test_cuts_at_block_boundaries_by_hand() -> None:
    # C* = 50 / 2; the cut at 25 is nearer to 20 than to 30 only by the tie, which goes down.
    placement = wrap_around([GroupSize(0, 35), GroupSize(1, 15)], 2, 10, relaxed=True)
    assert placement.workers == (
        (PlacedGroup(0, BlockRange(0, 2)),),
        (PlacedGroup(0, BlockRange(2, 4)), PlacedGroup(1, None)),
    )
    assert wrap_around([GroupSize(0, 35), GroupSize(1, 15)], 2, 10).workers == (
        (PlacedGroup(0, None),),
        (PlacedGroup(1, None),),
    )


def test_even_cuts() -> None:
    assert cut_evenly(7, 3) == (BlockRange(0, 2), BlockRange(2, 4), BlockRange(4, 7))
    assert cut_evenly(2, 5) == (BlockRange(0, 1), BlockRange(1, 2))
    assert cut_evenly(0, 5) == (BlockRange(0, 0),)


@pytest.mark.parametrize("dominant", [False, True])
def test_a_hundred_thousand_groups(dominant: bool) -> None:
    rows = [1 + number * 7919 % 100_000 for number in range(100_000)]
    if dominant:
        rows[5] = 9 * sum(rows)
    items = items_of(rows)
    for placement in (
        (constrained_wrap_around(items, 1024, 16_384),) if dominant else (wrap_around(items, 1024, 16_384, True),)
    ):
        assert sum(len(placed) for placed in placement.workers) >= len(items)


def test_no_workers_are_refused() -> None:
    for partition in (wrap_around, constrained_wrap_around):
        with pytest.raises(ValueError, match="at least one worker, not 0"):
            partition([], 0, BLOCK)
