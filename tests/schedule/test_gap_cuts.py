"""Where gap cuts groups whose models are sums: only where that saves time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grouplearn.learners.contract.access import AccessName
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.sharded.gap import place
from grouplearn.schedule.sharded.partition import GroupSize, largest_first, rows_in
from grouplearn.schedule.workload import Workload

BLOCK = 10


def units_of(rows: tuple[int, ...]) -> list[Unit]:
    """One unit per group, which takes a second per row."""
    return [Unit(group, group, (0,), cost=float(number)) for group, number in enumerate(rows)]


def shards(rows: tuple[int, ...], workers: int, split_seconds: float, access: AccessName = "algebraic") -> set[int]:
    workload = Workload(access, rows, workers, 1, BLOCK, group_isolation=False, split_seconds=split_seconds)
    return set(place(units_of(rows), workload).shards())


def test_a_group_is_cut_as_long_as_that_gains_more_than_it_costs() -> None:
    # Whole: 300 s. Cut after 200 rows: 200 s, and twice what steps cost on the second worker, where both groups go by them.
    rows = (300, 100)
    assert shards(rows, 2, 0.0) == {0}
    assert shards(rows, 2, 49.0) == {0}
    assert shards(rows, 2, 51.0) == set()


def test_a_group_is_not_cut_for_what_one_worker_does_alone() -> None:
    # Whole: 300 s, of which 280 are no share of its rows.
    for split_seconds, solving, cut in ((5.0, 0.0, {0}), (5.0, 280.0, {0}), (11.0, 280.0, set()), (5.0, 295.0, set())):
        workload = Workload("algebraic", (300,), 2, 1, BLOCK, split_seconds=split_seconds, solving_seconds=solving)
        assert set(place(units_of((300,)), workload).shards()) == cut


def test_groups_that_balance_without_a_cut_stay_whole() -> None:
    rows = (260, 140, 240, 160)  # wrap-around cuts at 400 and balances no better than 260 + 140, 240 + 160
    assert shards(rows, 2, 0.01) == set()
    assert shards((250, 200, 150, 200), 2, 0.01) == set()
    assert shards((250, 200, 150, 200), 2, 0.01, "sequential") == {1}


@given(st.lists(st.integers(0, 400), min_size=1, max_size=8), st.integers(1, 5), st.sampled_from([0.0, 5.0, 1e6]))
def test_no_group_is_cut_for_longer_than_whole_ones_take(rows: list[int], workers: int, split_seconds: float) -> None:
    workload = Workload("algebraic", tuple(rows), workers, 1, BLOCK, split_seconds=split_seconds)
    placement = place(units_of(tuple(rows)), workload)
    whole = largest_first([GroupSize(*each) for each in enumerate(rows)], dict(enumerate(map(float, rows))), workers)
    busiest = max(sum(rows[item] for item, _ in placed) for placed in whole.workers)
    seconds = []
    for placed in placement.workers:
        beside = any(blocks is not None for _, blocks in placed)  # large whole groups go by steps there, too
        by_steps = [item for item, blocks in placed if blocks is not None or (beside and rows[item] > BLOCK)]
        seconds.append(
            split_seconds * len(by_steps) + sum(rows_in(blocks, rows[item], BLOCK) for item, blocks in placed)
        )
    assert max(seconds) <= busiest + 1e-9
    if split_seconds == 1e6:
        assert not placement.shards()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_largest_first_is_within_its_bound(workers: int) -> None:
    rows = [7, 6, 5, 4, 4, 3, 2, 1]
    placement = largest_first(
        [GroupSize(*each) for each in enumerate(rows)], dict(enumerate(map(float, rows))), workers
    )
    busy = [sum(rows[item] for item, _ in placed) for placed in placement.workers]
    assert sorted(item for placed in placement.workers for item, _ in placed) == list(range(len(rows)))
    assert max(busy) <= max(sum(rows) / workers, max(rows)) * (4 / 3 - 1 / (3 * workers))
