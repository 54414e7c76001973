"""The outputs by their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grouplearn.models.label import CLUSTERING, NUMBER, PROJECTION, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.outputs.array import Array
from grouplearn.models.outputs.classes import SeveralClasses, TwoClasses
from grouplearn.models.outputs.clusters import Clusters
from grouplearn.models.outputs.number import Number
from grouplearn.models.outputs.output import Output
from grouplearn.models.outputs.projection import Projection

OUTPUTS: Mapping[Label, type[Output]] = {
    TWO_CLASSES: TwoClasses,
    SEVERAL_CLASSES: SeveralClasses,
    NUMBER: Number,
    CLUSTERING: Clusters,
    PROJECTION: Projection,
}


def output_of(label: Label, classes: Sequence[str], label_type: str, label_length: int) -> Output:
    """Return the output for a label with ``classes``, of a type, that is an array of ``label_length`` values unless that is 0."""
    each = OUTPUTS[label].of(classes, label_type)
    return Array(each, label_type, label_length) if label_length else each
