"""Ranges, means and deviations of runs of numbers against exact sums, in every build, with the same bits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from builds import in_every_build
from hypothesis import given
from hypothesis import strategies as st

from grouplearn.kernels import spreads
from grouplearn.kernels.library import calling_back


def exactly(run: np.ndarray) -> tuple[float, float]:
    """Return mean and deviation by rational numbers."""
    numbers = [Fraction(float(each)) for each in run]
    mean = sum(numbers, Fraction()) / len(numbers)
    variance = sum(((each - mean) ** 2 for each in numbers), Fraction()) / len(numbers)
    # A double's root of a number that may be too small for one.
    scale = Fraction(2) ** (max(variance.denominator.bit_length() - variance.numerator.bit_length(), 0) // 2)
    return float(mean), math.sqrt(float(variance * scale * scale)) / float(scale)


@given(
    sizes=st.lists(st.sampled_from([0, 1, 2, 7, 8, 9, 511, 512, 513, 1500]), min_size=1, max_size=5),
    about=st.sampled_from([0.0, 1.0, 1e9]),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 1e6]),
    seed=st.integers(0, 99),
)
def test_spreads_of_runs(sizes: list[int], about: float, spread: float, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=sum(sizes)) * spread + about
    start = np.concatenate([[0], np.cumsum(sizes)])
    found = in_every_build(lambda: spreads.of_runs(values, start)._asdict())
    for number, size in enumerate(sizes):
        run = values[start[number] : start[number + 1]]
        low, high, mean, deviation = (float(each[number]) for each in found.values())
        if not size:
            assert (low, high, mean, deviation) == (0, 0, 0, 0)
            continue
        assert (low, high) == (run.min(), run.max())
        expected = exactly(run)
        assert mean == pytest.approx(expected[0], rel=1e-15, abs=1e-15 * np.abs(run).max())
        # The range is exact, and what it is divided into is off by its rounding.
        assert deviation == pytest.approx(expected[1], rel=1e-14)


def test_no_zero_is_negative_and_large_numbers_do_not_overflow() -> None:
    found = spreads.of_runs([-0.0, -0.0, 1.5e308, 0.5e308, 1e308], [0, 2, 5])
    assert [math.copysign(1, each[0]) for each in found[:3]] == [1, 1, 1]
    assert found.mean[1] == pytest.approx(1e308, rel=1e-15)
    assert found.deviation[1] == pytest.approx(math.sqrt(1 / 6) * 1e308, rel=1e-15)


def test_a_run_is_the_same_alone_and_among_others() -> None:
    values = np.random.default_rng(2).normal(size=3000)
    among = spreads.of_runs(values, [0, 7, 1007, 3000])
    for number, (first, last) in enumerate([(0, 7), (7, 1007), (1007, 3000)]):
        alone = spreads.of_runs(values[first:last], [0, last - first])
        assert [each[number] for each in among] == [each[0] for each in alone]


def test_many_runs_are_stopped() -> None:
    def look() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), calling_back(look, every=0):
        spreads.of_runs(np.ones(1 << 20), np.arange(1 << 20))
