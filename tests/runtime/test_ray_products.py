"""Products of steps as files: what is taken is what was put, and large arrays are not copied."""

from pathlib import Path

import numpy as np
import pytest
from helpers import measuring as metrics

from grouplearn.layout.pages import mapped_file
from grouplearn.layout.spilled import ByRow
from grouplearn.models.label import TWO_CLASSES
from grouplearn.runtime.ray.products import MAPPED_BYTES, ProductGone, ProductStore


def sums(rows: int) -> metrics.MetricSums:
    rng = np.random.default_rng(rows)
    scores, labels = rng.random((rows, 3, 1)), (rng.random(rows) < 0.5).astype(float)
    return metrics.measure(TWO_CLASSES, 2, scores, labels, np.ones(rows))


@pytest.mark.parametrize("rows", [0, 10, 40_000, 200_001])
def test_what_is_taken_is_what_was_put(tmp_path: Path, rows: int) -> None:
    shelf, put = ProductStore(str(tmp_path)), sums(rows)
    shelf.put(3, put)
    taken = shelf.get(3)
    shelf.discard(3)
    assert isinstance(taken, metrics.MetricSums)
    assert {name: value.tobytes() for name, value in taken.tensors.items()} == {
        name: value.tobytes() for name, value in put.tensors.items()
    }
    for name, values in put.by_row.items():
        (array,) = taken.by_row[name].parts
        assert array.tobytes() == values.whole().tobytes()
        assert (mapped_file(array) is not None) == (array.nbytes >= MAPPED_BYTES)
        assert array.ctypes.data % 8 == 0
        array[...] = 7.0  # what is written to a taken product stays with who took it
    with pytest.raises(ProductGone):
        shelf.get(3)


def test_runs_that_are_mapped_are_joined_without_a_copy(tmp_path: Path) -> None:
    shelf = ProductStore(str(tmp_path))
    for step in range(2):
        shelf.put(step, sums(1_500_000 + step))
    first, second = (shelf.get(step).by_row["scores"] for step in range(2))
    joined = first.followed_by(second)
    assert isinstance(joined, ByRow)
    assert [part.ctypes.data for part in joined.parts] == [part.ctypes.data for part in (*first.parts, *second.parts)]


def test_two_take_their_own_copies(tmp_path: Path) -> None:
    shelf = ProductStore(str(tmp_path))
    shelf.put(0, sums(200_000))
    one, two = (shelf.get(0).by_row["scores"].parts[0] for _ in range(2))
    one[...] = 0.0
    assert two.any()
    assert shelf.get(0).by_row["scores"].parts[0].any()
