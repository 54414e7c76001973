"""The answer of a model."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.learners.answers.answer import Answer
from grouplearn.learners.answers.array import Array
from grouplearn.learners.answers.classes import SeveralClasses, TwoClasses
from grouplearn.learners.answers.clusters import Clusters
from grouplearn.learners.answers.number import Number
from grouplearn.learners.answers.projection import Projection
from grouplearn.learners.contract.problem import Task


def answer_of(task: Task, classes: Sequence[str], label_type: str, label_length: int) -> Answer:
    """Return the answer for a task and a label with ``classes``, of a type, that is an array of ``label_length`` values
    unless that is 0."""
    if task is Task.CLUSTERING:
        return Clusters()
    if task is Task.PROJECTION:
        return Projection()
    each: Answer = Number()
    if task.has_classes:
        each = (SeveralClasses if task.scores_classes else TwoClasses)(classes, label_type)
    return Array(each, label_type, label_length) if label_length else each
