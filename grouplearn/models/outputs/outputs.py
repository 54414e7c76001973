"""The outputs of labels; a learner without a label declares its output."""

from __future__ import annotations

from collections.abc import Mapping

from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label, label_length
from grouplearn.models.outputs.array import Array
from grouplearn.models.outputs.classes import SeveralClasses, TwoClasses
from grouplearn.models.outputs.number import Number
from grouplearn.models.outputs.output import Output

OUTPUTS: Mapping[Label, type[Output]] = {
    TWO_CLASSES: TwoClasses,
    SEVERAL_CLASSES: SeveralClasses,
    NUMBER: Number,
}


def output_of(each: Output, label_type: str) -> Output:
    """Return the output of single values, or that of arrays of them if the label's type is an array."""
    length = label_length(label_type)
    return Array(each, label_type, length) if length else each
