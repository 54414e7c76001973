"""Arrays of different lengths in one: cut, taken, joined; bounds that do not fit are refused."""

import numpy as np
import pytest

from grouplearn.layout.ragged import Ragged

ARRAYS = [np.arange(6.0).reshape(3, 2), np.empty((0, 2)), np.full((1, 2), 9.0), np.arange(4.0).reshape(2, 2)]


def as_lists(ragged: Ragged) -> list[list[list[float]]]:
    return [ragged[place].tolist() for place in range(len(ragged))]


def test_arrays_come_out_as_they_went_in() -> None:
    ragged = Ragged.of(ARRAYS)
    assert as_lists(ragged) == [each.tolist() for each in ARRAYS]
    assert ragged.sizes.tolist() == [3, 0, 1, 2]
    assert as_lists(ragged.part(1, 3)) == [each.tolist() for each in ARRAYS[1:3]]
    assert as_lists(ragged.take(np.array([3, 0, 0, 1]))) == [ARRAYS[place].tolist() for place in (3, 0, 0, 1)]
    assert as_lists(Ragged.joined([ragged.part(0, 2), ragged.part(2, 4)])) == as_lists(ragged)
    assert as_lists(ragged.none(2)) == [[], []]
    assert [ragged.flat()[place].tolist() for place in range(4)] == [each.ravel().tolist() for each in ARRAYS]
    assert as_lists(Ragged.of_equal(np.arange(6.0).reshape(6, 1), 3)) == [[[0], [1]], [[2], [3]], [[4], [5]]]
    assert len(Ragged.of_equal(np.empty(0), 0)) == 0


@pytest.mark.parametrize("start", [[0, 2], [1, 3], [0, 2, 1, 3], [], [[0, 3]]])
def test_bounds_that_do_not_cut_the_values_are_refused(start: list[int]) -> None:
    with pytest.raises(ValueError, match="do not cut"):
        Ragged(np.zeros(3), np.array(start, np.int64))
