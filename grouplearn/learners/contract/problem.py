"""What a pack learns on one group."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: The prediction for a score s, a sum of leaves or a linear predictor: s, exp(s), 1 / (1 + exp(-s)), or s·abs(s); for one
#: score per class: their softmax, or the logistic function of each divided by the sum of all.
Link = Literal["identity", "exp", "logistic", "signed_square", "softmax", "one_vs_all"]


class Task(enum.Enum):
    """What is learned and predicted. A shard's label is the value, or the class number 0..n_classes-1; 0 without a label."""

    BINARY = "binary"
    MULTICLASS = "multiclass"
    REGRESSION = "regression"
    CLUSTERING = "clustering"
    PROJECTION = "projection"

    @property
    def has_label(self) -> bool:
        """Whether rows have a label to learn from."""
        return self in (Task.BINARY, Task.MULTICLASS, Task.REGRESSION)

    @property
    def has_classes(self) -> bool:
        """Whether the label names classes."""
        return self in (Task.BINARY, Task.MULTICLASS)

    @property
    def has_values(self) -> bool:
        """Whether the label is a number."""
        return self is Task.REGRESSION

    @property
    def scores_classes(self) -> bool:
        """Whether scores are one number per class."""
        return self is Task.MULTICLASS

    @property
    def within_group(self) -> Task:
        """The task of a group that has as few classes as possible, two."""
        return Task.BINARY if self is Task.MULTICLASS else self

    def allows(self, n_classes: int) -> bool:
        """Return whether a model may have this many classes."""
        return {Task.BINARY: n_classes <= 2, Task.MULTICLASS: n_classes > 1}.get(self, n_classes == 0)

    def n_scores(self, n_classes: int) -> int:
        """Return the width of the score of a single value."""
        return n_classes if self.scores_classes else 1


#: The tasks with a label.
LABELLED = frozenset(task for task in Task if task.has_label)
#: The tasks of each value of WITH (task = ...).
TASKS: Mapping[str, frozenset[Task]] = {
    "classification": frozenset({Task.BINARY, Task.MULTICLASS}),
    "regression": frozenset({Task.REGRESSION}),
}


def task_of(tasks: frozenset[Task], n_classes: int | None) -> Task:
    """Return a learner's task for a label with this many classes, None for a number or without a label.

    A label with one class or none is a task of two, all of whose groups fail.
    """
    if n_classes is not None:
        return Task.BINARY if n_classes <= 2 else Task.MULTICLASS
    return next((task for task in tasks if not task.has_label), Task.REGRESSION)


def simplest(tasks: frozenset[Task]) -> Task:
    """Return the task with which a learner is tried with least work."""
    return next(task for task in Task if task in tasks)


class FeatureBlock(NamedTuple):
    """The feature columns of one item: its ``name``, their number, and whether it is ``pure``: each row has at most one
    nonzero in them. Numbers, ``onehot``, ``ordinal`` and ``hash`` of one value are, lists and arrays are not."""

    name: str
    width: int
    pure: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """What a pack learns on one group.

    - ``n_outputs``: the width of a score: 1 for regression and binary, ``n_classes`` for multiclass, times ``label_length``
    if the
      label is an array.
    - ``seed`` depends only on the statement's seed and the group.
    - ``categorical``: the indexes of columns with ordinal codes, for learners that treat them natively.
    - ``epochs``: the most epochs that will run.
    - ``among_more``: the group has two classes of a label that has more elsewhere. It is learned as any two classes; the
    finished
      model then goes through ``as_multiclass``.
    - ``n_unseen``: classes of held-out rows that no training row has, numbered after those that are learned.
    - ``items``: the FEATURES items in order, each a block of feature columns.
    - ``mirrored``: of two classes the positive one, 1, is the lesser, as the statement says so.
    """

    task: Task
    n_features: int
    n_classes: int = 0
    seed: int = 0
    epochs: int = 1
    categorical: tuple[int, ...] = ()
    label_length: int = 1
    among_more: bool = False
    n_unseen: int = 0
    items: tuple[FeatureBlock, ...] = ()
    mirrored: bool = False

    @property
    def n_outputs(self) -> int:
        """Width of a score."""
        return self.task.n_scores(self.n_classes) * self.label_length
