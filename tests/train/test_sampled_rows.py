"""Samples of training rows: nested, class by class, by lots that are the group's own."""

import itertools

import numpy as np

from grouplearn.train.rows.sampled import FEWEST_ROWS, sample, share_of


def test_every_class_has_its_part_and_larger_samples_contain_smaller_ones() -> None:
    rows = np.arange(10, 3010)
    classes = np.where(rows % 100 == 7, 1.0, 0.0)
    shares = (1 / 27, 1 / 9, 1 / 3, 1.0)
    samples = [sample(rows, classes, share, 5) for share in shares]
    for share, drawn in zip(shares, samples, strict=True):
        assert (np.diff(drawn) > 0).all()
        assert [int((classes[drawn - 10] == each).sum()) for each in (0, 1)] == [
            int(np.ceil(share * 2970)),
            int(np.ceil(share * 30)),
        ]
    for smaller, larger in itertools.pairwise(samples):
        assert set(smaller) < set(larger)
    assert (samples[-1] == rows).all()


def test_lots_are_fair_and_depend_on_the_seed_alone() -> None:
    rows = np.arange(1000)
    counts = sum(np.isin(rows, sample(rows, None, 0.1, seed)) for seed in range(200))
    assert counts.sum() == 200 * 100
    assert counts.max() < 50
    assert (sample(rows, None, 0.1, 3) == sample(rows, None, 0.1, 3)).all()


def test_small_groups_are_not_sampled() -> None:
    assert share_of(1 / 27, FEWEST_ROWS) == 1
    assert share_of(1 / 27, 2 * FEWEST_ROWS) == 0.5
    assert share_of(1 / 27, 10**6) == 1 / 27
