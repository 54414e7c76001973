"""What a pack is to learn on one group, and how its learner reads rows."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

#: What becomes of a score s, a sum of leaves or a linear predictor: s, exp(s), 1 / (1 + exp(-s)), or s·abs(s); and of one per
#: class: their softmax, or the logistic function of each divided by the sum of all.
Link = Literal["identity", "exp", "logistic", "signed_square", "softmax", "one_vs_all"]


class Access(enum.Enum):
    """How a learner reads data (kingpin 2.2)."""

    ALGEBRAIC = "algebraic"
    SEQUENTIAL = "sequential"
    SAMPLING = "sampling"

    @property
    def words(self) -> str:
        """What such a learner trains on, for a person."""
        return {"algebraic": "sums over rows", "sequential": "batches of rows", "sampling": "all rows at once"}[
            self.value
        ]


class Task(enum.Enum):
    """What is predicted. The label of a shard is the value itself, or the class number 0..n_classes-1."""

    REGRESSION = "regression"
    BINARY = "binary"
    MULTICLASS = "multiclass"


@dataclass(frozen=True, slots=True)
class Problem:
    """What a pack is to learn on one group.

    ``n_outputs`` is the width of a score: 1 for regression and binary, ``n_classes`` for multiclass, times
    ``label_length`` where a label is an array of so many values.
    ``seed`` depends on the statement's seed and the group alone. ``categorical`` holds the column indexes of ordinal
    codes (for learners that treat those natively). ``epochs`` is the most epochs that will be run. ``among_more``: the
    group has two classes of a label that has more in other groups. It is learned as any two classes are; the finished model
    then goes through ``as_multiclass``. ``n_unseen``: classes of held-out rows that no training row has, numbered after those
    that are learned. ``items`` are the names of the FEATURES items and how many feature columns each has, in their order.
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
    items: tuple[tuple[str, int], ...] = ()

    @property
    def n_outputs(self) -> int:
        """Width of a score."""
        return (self.n_classes if self.task is Task.MULTICLASS else 1) * self.label_length
