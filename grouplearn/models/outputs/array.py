"""An array: ``prediction`` is a list of numbers, or of numeric classes, as long as the label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from grouplearn.models.outputs.classes import SeveralClasses, TwoClasses
from grouplearn.models.outputs.output import BoolArray, Output, list_array
from grouplearn.models.state import FloatArray


class Array(Output):
    """An array whose values are of the output ``each``; it has no SQL form, only ``predict``."""

    def __init__(self, each: Output, label_type: str, length: int) -> None:
        self._each, self._type, self._length = each, label_type, length

    @property
    def width(self) -> int:
        """The length of the array."""
        return self._length

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the field ``predicted`` as an array of the label's type."""
        del threshold, judged
        return (f"CAST({predicted}.predicted AS {self._type}) AS prediction",)

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        """Return the value, or the class as a number, for each of the label's L values: (n, L)."""
        each = self._each
        if not isinstance(each, TwoClasses | SeveralClasses):
            return score
        by_class = score.reshape(len(score), -1, self._length)
        several = isinstance(each, SeveralClasses)
        chosen = by_class.argmax(axis=1) if several else by_class[:, 0] > 0.5
        numbers = np.array([float(each.classes[number]) for number in (classes if several else (0, 1))])
        return np.where(np.isnan(by_class).any(axis=1), np.nan, numbers[chosen.astype(np.intp)])

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the values as ``predicted``."""
        return {"predicted": list_array(outputs, np.full(len(outputs), self._length), missing)}
