"""What groups of rows are like, against NumPy and the same bits in every build."""

import numpy as np
import pytest
from builds import in_every_build

from grouplearn.kernels import profiles
from grouplearn.kernels.profiles import GroupRuns

#: Three groups: the first has two runs, the second no rows, and the third shares rows with the first.
GROUPS = GroupRuns(np.array([[0, 700], [900, 1_500], [300, 950]]), np.array([0, 2, 2, 3]))


def rows_of(x: np.ndarray, group: int) -> np.ndarray:
    runs = GROUPS.runs[GROUPS.first[group] : GROUPS.first[group + 1]]
    return np.concatenate([x[:0], *(x[begin:end] for begin, end in runs.tolist())])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_numbers_are_those_of_numpy(kind: type) -> None:
    random = np.random.default_rng(0)
    x = (random.normal(size=(1_500, 11)) * 3 + 1e3).astype(kind)
    x[random.random(x.shape) < 0.1] = np.nan
    x[5, :] = np.inf
    x[:, 4] = random.integers(0, 3, 1_500)
    columns = [0, 4, 10, 2]
    found = profiles.NumberProfiles(**in_every_build(lambda: profiles.of_numbers(x, GROUPS, columns)._asdict()))
    for group in (0, 2):
        for place, column in enumerate(columns):
            own = rows_of(x[:, column].astype(np.float64), group)
            own, at = own[np.isfinite(own)], (group, place)
            assert found.present[at] == own.size
            assert (found.low[at], found.high[at]) == (own.min(), own.max())
            np.testing.assert_allclose(found.mean[at], own.mean(), rtol=1e-13)
            np.testing.assert_allclose(found.deviation[at], own.std(ddof=1), rtol=1e-10)
            ends = found.quantiles[at][: found.edges[at]]
            assert (np.diff(ends) > 0).all()
            upto = [np.count_nonzero(own <= end) for end in ends]
            assert found.upto[at][: found.edges[at]].tolist() == upto
            if column != 4:  # of 256 rows each twentieth has about 13 of them
                assert np.diff([0, *upto, own.size]).max() < 0.15 * own.size
    assert found.edges[0, 1] == 3
    assert found.present[1].tolist() == found.edges[1].tolist() == [0] * 4


def test_quantiles_of_few_rows_are_exact_ones_at_least_ten_rows_apart() -> None:
    x = np.random.default_rng(1).normal(size=(95, 1))
    found = profiles.of_numbers(x, GroupRuns(np.array([[0, 95], [0, 19], [0, 1]]), np.arange(4)), [0])
    expected = np.quantile(x[:, 0], np.arange(1, 9) / 9, method="inverted_cdf")
    np.testing.assert_array_equal(found.quantiles[0, 0, :8], expected)
    assert found.edges[:, 0].tolist() == [8, 0, 0]
    assert np.isnan(found.deviation[2, 0])


def test_the_most_frequent_codes_come_first() -> None:
    random = np.random.default_rng(2)
    codes = np.minimum(random.geometric(0.02, size=(1_500, 2)) - 2, 399).astype(np.int32)
    found = profiles.CodeProfiles(**in_every_build(lambda: profiles.of_codes(codes, GROUPS, 1, 400, 30)._asdict()))
    at = 0
    for group in range(3):
        own = rows_of(codes[:, 1], group)
        counts = np.bincount(own[own >= 0], minlength=400)
        order = np.lexsort((np.arange(400), -counts))[: min(30, np.count_nonzero(counts))]
        assert found.present[group] == np.count_nonzero(own >= 0)
        listed = slice(at, at := at + int(found.listed[group]))
        assert found.codes[listed].tolist() == order.tolist()
        assert found.counts[listed].tolist() == counts[order].tolist()
