"""What a pack is to learn on one group."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: What becomes of a score s, a sum of leaves or a linear predictor: s, exp(s), 1 / (1 + exp(-s)), or s·abs(s); and of one per
#: class: their softmax, or the logistic function of each divided by the sum of all.
Link = Literal["identity", "exp", "logistic", "signed_square", "softmax", "one_vs_all"]


class Task(enum.Enum):
    """What is learned, and what is said of a row. The label of a shard is the value itself, or the class number
    0..n_classes-1; where there is no label it is 0.
    """

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
        """Whether a score is one number for each class."""
        return self is Task.MULTICLASS

    @property
    def within_group(self) -> Task:
        """What a group learns that has the fewest classes it can have, two."""
        return Task.BINARY if self is Task.MULTICLASS else self

    def allows(self, n_classes: int) -> bool:
        """Return whether a model may have so many classes."""
        return {Task.BINARY: n_classes <= 2, Task.MULTICLASS: n_classes > 1}.get(self, n_classes == 0)

    def n_scores(self, n_classes: int) -> int:
        """Return the width of the score of a single value."""
        return n_classes if self.scores_classes else 1


#: The tasks with a label.
LABELLED = frozenset(task for task in Task if task.has_label)
#: What WITH (task = ...) says.
TASKS: Mapping[str, frozenset[Task]] = {
    "classification": frozenset({Task.BINARY, Task.MULTICLASS}),
    "regression": frozenset({Task.REGRESSION}),
}


def task_of(tasks: frozenset[Task], n_classes: int | None) -> Task:
    """Return which of its tasks a learner has with a label of so many classes, None for a number or where there is none.

    Of one class or none nothing can be told apart: that is a task of two, all of whose groups fail.
    """
    if n_classes is not None:
        return Task.BINARY if n_classes <= 2 else Task.MULTICLASS
    return next((task for task in tasks if not task.has_label), Task.REGRESSION)


def simplest(tasks: frozenset[Task]) -> Task:
    """Return the task of a learner that is the least work to try it by."""
    return next(task for task in Task if task in tasks)


class FeatureBlock(NamedTuple):
    """The feature columns of one item: its ``name``, how many they are, and whether it is ``pure``, each row having at most one
    nonzero in them: a number, ``onehot``, ``ordinal``, ``hash`` of one value. Lists and arrays are not."""

    name: str
    width: int
    pure: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """What a pack is to learn on one group.

    ``n_outputs`` is the width of a score: 1 for regression and binary, ``n_classes`` for multiclass, times
    ``label_length`` where a label is an array of so many values.
    ``seed`` depends on the statement's seed and the group alone. ``categorical`` holds the column indexes of ordinal
    codes (for learners that treat those natively). ``epochs`` is the most epochs that will be run. ``among_more``: the
    group has two classes of a label that has more in other groups. It is learned as any two classes are; the finished model
    then goes through ``as_multiclass``. ``n_unseen``: classes of held-out rows that no training row has, numbered after those
    that are learned. ``items`` are the FEATURES items, each a block of feature columns, in their order. ``mirrored``: of two
    classes the positive one, 1, is the lesser, for the statement says so.
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
