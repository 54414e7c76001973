"""What is learned from rows: a number, one of two classes, one of several, or nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

#: The type of predicted arrays.
_ARRAY = re.compile(r"[^\[\]]+\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Label:
    """What is learned. A shard's label is the value, or the class number 0..n_classes-1; 0 without a label.

    ``name`` is what statements show as the task. ``is_given``: rows have a label to learn from. ``scores_classes``: a score is
    one number per class.
    """

    name: str
    is_given: bool = True
    has_classes: bool = False
    scores_classes: bool = False

    @classmethod
    def named(cls, name: str) -> Label:
        """Return the label of that name; any other name means a learner without a label."""
        return next((each for each in LABELLED if each.name == name), cls(name, is_given=False))

    @property
    def is_number(self) -> bool:
        """Whether it is a number, not one of some classes."""
        return self.is_given and not self.has_classes

    @property
    def within_group(self) -> Label:
        """The label of a group that has as few classes as possible, two."""
        return TWO_CLASSES if self.scores_classes else self

    def allows(self, n_classes: int) -> bool:
        """Return whether a model may have this many classes."""
        if not self.has_classes:
            return n_classes == 0
        return n_classes > 1 if self.scores_classes else n_classes <= 2

    def n_scores(self, n_classes: int) -> int:
        """Return the width of the score of a single value."""
        return n_classes if self.scores_classes else 1


NUMBER = Label("regression")
TWO_CLASSES = Label("binary", has_classes=True)
SEVERAL_CLASSES = Label("multiclass", has_classes=True, scores_classes=True)
CLUSTERING = Label("clustering", is_given=False)
PROJECTION = Label("projection", is_given=False)
#: All but those of learners without a label.
LABELLED = frozenset({TWO_CLASSES, SEVERAL_CLASSES, NUMBER})
#: The labels of each value of WITH (task = ...).
LABELS_OF_TASK: Mapping[str, frozenset[Label]] = {
    "classification": frozenset({TWO_CLASSES, SEVERAL_CLASSES}),
    "regression": frozenset({NUMBER}),
}


def label_of(labels: frozenset[Label], n_classes: int | None) -> Label:
    """Return a learner's label with this many classes, None for a number or without a label.

    A label with one class or none is one of two, all of whose groups fail.
    """
    if n_classes is not None:
        return TWO_CLASSES if n_classes <= 2 else SEVERAL_CLASSES
    return next((label for label in labels if not label.is_given), NUMBER)


def label_length(type_name: str) -> int:
    """Return the length of predicted arrays from their type, ``DOUBLE[3]``; 0 for a single value."""
    found = _ARRAY.fullmatch(type_name)
    return int(found[1]) if found else 0


def simplest(labels: frozenset[Label]) -> Label:
    """Return the label with which a learner is tried with least work."""
    return next((label for label in (TWO_CLASSES, SEVERAL_CLASSES, NUMBER) if label in labels), next(iter(labels)))
