"""Rows in the order in which they come, for learners that keep none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FeatureArray, FloatArray

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
Keys = tuple[str | None, ...]


class Arrivals(NamedTuple):
    """Rows that came together: the number of each one's group (n,), its features (n, d), label, weight, whether it is held out.

    ``keys`` are the key texts of the groups that came for the first time: they have the next numbers. Labels are as in
    ``Dataset``.
    """

    keys: Sequence[Keys]
    group: IntArray
    x: FeatureArray
    y: FloatArray
    weight: FloatArray
    held: BoolArray
