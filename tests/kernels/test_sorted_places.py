"""Places of rows and draws of splits: those of Python's stable sort, the same in every build."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grouplearn.kernels.row_order import Draw, GroupPositions

WHOLE = 2**64
#: How hashes may be: any, with few values, equal in their upper or lower halves, all one.
HASHES = {
    "any": lambda random, n: random.integers(0, WHOLE, n, dtype=np.uint64),
    "few": lambda random, n: random.integers(0, 5, n, dtype=np.uint64) << np.uint64(61),
    "low": lambda random, n: random.integers(0, 300, n, dtype=np.uint64),
    "high": lambda random, n: random.integers(0, WHOLE, n, dtype=np.uint64) & np.uint64(0xFFFF << 48),
    "one": lambda random, n: np.full(n, WHOLE - 1, np.uint64),
}


@given(
    st.lists(st.sampled_from([0, 1, 2, 24, 25, 40, 300, 3000]), min_size=1, max_size=12),
    st.sampled_from(sorted(HASHES)),
    st.integers(0, 2**32),
)
def test_places_of_rows(sizes: list[int], kind: str, seed: int) -> None:
    """Rows come in any order and in batches; numbers of groups without rows are in no order."""
    random = np.random.default_rng(seed)
    group = random.permutation(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))
    hashes = HASHES[kind](random, group.size)
    order = random.permutation(np.flatnonzero(sizes))
    found = GroupPositions(np.array(sizes), order)
    cut = group.size // 3
    for part in (slice(0, cut), slice(cut, None)):
        found.add(group[part], hashes[part])
    for first, last in itertools.pairwise(sorted({0, len(order) // 2, len(order)})):
        found.sort(first, last)
    rank = {number: place for place, number in enumerate(order.tolist())}
    keys = [(rank[number], own) for number, own in zip(group.tolist(), hashes.tolist(), strict=True)]
    rows = sorted(range(group.size), key=keys.__getitem__)
    assert np.argsort(found.place).tolist() == rows
    assert found.start.tolist() == [0, *np.cumsum([sizes[number] for number in order])]
    assert found.tied.tolist() == [place > 0 and keys[rows[place - 1]] == keys[row] for place, row in enumerate(rows)]


def drawn(seed: int, steps: int) -> int:
    """SplitMix64."""
    value = (seed + steps * 0x9E3779B97F4A7C15) % WHOLE
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % WHOLE
    value = (value ^ value >> 27) * 0x94D049BB133111EB % WHOLE
    return value ^ value >> 31


def ranks(rounded: list[int], exact: list[int], labelled: list[bool]) -> list[int]:
    """The place of each row of a group in its draw."""
    met: dict[int, int] = {}
    keys = [WHOLE - 1] * len(rounded)
    for row in sorted(range(len(rounded)), key=exact.__getitem__):
        met[rounded[row]] = met.get(rounded[row], 0) + 1
        if labelled[row]:
            keys[row] = drawn(rounded[row], met[rounded[row]])
    order = sorted(range(len(rounded)), key=keys.__getitem__)
    return [place for _, place in sorted(zip(order, range(len(order)), strict=True))]


@given(
    st.lists(st.sampled_from([0, 1, 5, 24, 100, 700]), min_size=1, max_size=6),
    st.sampled_from(sorted(HASHES)),
    st.sampled_from(sorted(HASHES)),
    st.sampled_from([0, 2, 5]),
    st.integers(0, 2**32),
)
def test_draws_of_splits(sizes: list[int], rounded_kind: str, exact_kind: str, folds: int, seed: int) -> None:
    """Long groups in parts are drawn as in one, rows without a label are the last ones."""
    random = np.random.default_rng(seed)
    start = np.cumsum([0, *sizes])
    rounded, exact = HASHES[rounded_kind](random, start[-1]), HASHES[exact_kind](random, start[-1])
    labelled = random.random(start[-1]) < 0.8
    value = random.integers(0, 9, len(sizes))
    expected: list[int] = []
    for first, last, own in zip(start, start[1:], value.tolist(), strict=False):
        places = ranks(*(each[first:last].tolist() for each in (rounded, exact, labelled)))
        expected += [(place + own) % folds if folds else int(place < own) for place in places]
    for together in (1 << 20, 50):
        split = np.full(start[-1], -1, np.int16)
        Draw(rounded, exact.copy(), labelled).mark(split, start, value, folds, together=together)
        assert split.tolist() == expected


@pytest.mark.parametrize("kind", sorted(HASHES))
def test_large_groups_in_every_build(build: str, kind: str) -> None:
    random = np.random.default_rng(5)
    hashes = HASHES[kind](random, 100_000)
    found = GroupPositions(np.array([100_000]), np.array([0]))
    found.add(np.zeros(100_000, np.int32), hashes)
    found.sort(0, 1)
    assert (np.argsort(found.place) == np.argsort(hashes, kind="stable")).all()
