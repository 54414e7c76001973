"""SHA-256 of rows of numbers is that of hashlib, whatever their lengths, and however many stand beside each other."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from grouplearn.kernels.digests import Ragged, of_rows


def _ragged(rng: np.random.Generator, lengths: np.ndarray) -> Ragged:
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Ragged(rng.standard_normal(int(start[-1])), start)


# 0 to 20 doubles: on either side of where the length no longer fits into the last block of 64 bytes.
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 500])
@pytest.mark.parametrize("longest", [0, 1, 9, 40])
def test_digests_are_those_of_the_standard_library(count: int, longest: int, build: str) -> None:
    rng = np.random.default_rng(count + longest)
    weights = _ragged(rng, rng.integers(0, longest + 1, count))
    intercept = _ragged(rng, rng.integers(0, 3, count))
    expected = [
        hashlib.sha256(
            weights.values[slice(*weights.start[row : row + 2])].tobytes()
            + intercept.values[slice(*intercept.start[row : row + 2])].tobytes()
        ).hexdigest()
        for row in range(count)
    ]
    assert [text.tobytes().decode() for text in of_rows(weights, intercept)] == expected


@pytest.mark.parametrize("length", range(24))
def test_rows_of_every_length_around_a_block(length: int, build: str) -> None:
    rng = np.random.default_rng(length)
    weights, none = _ragged(rng, np.array([length])), Ragged(np.empty(0), np.zeros(2, np.int64))
    text = of_rows(weights, none)[0].tobytes().decode()
    assert text == hashlib.sha256(weights.values.tobytes()).hexdigest()


def test_as_many_rows_of_both() -> None:
    with pytest.raises(ValueError, match="as many rows"):
        of_rows(Ragged(np.empty(0), np.zeros(3, np.int64)), Ragged(np.empty(0), np.zeros(2, np.int64)))
