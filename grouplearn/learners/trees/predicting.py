"""Predictions from LightGBM's model texts: by the arithmetic of predict(), in training, too.

LightGBM adds leaves in the order of trees, and divides the sum of a forest. In forests rows often come to equal leaves in
different trees: rounding then splits ties, and how it does so must not depend on who adds. Only which leaf a row comes to,
and linear leaves, are LightGBM's to say.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np

from grouplearn.data.shard import Matrix
from grouplearn.kernels.scoring import Link, linked
from grouplearn.kernels.trees import Forests, on_grid
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.trees import offset
from grouplearn.learners.trees.lightgbm.booster import Booster
from grouplearn.learners.trees.lightgbm.objectives import in_text
from grouplearn.learners.trees.nodes import FeatureColumns, IntArray, leaf_factor
from grouplearn.learners.trees.scoring import compile_forest
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.state import FloatArray

#: Numbers of sparse rows that are written out at a time.
_NUMBERS_AT_ONCE = 1 << 20
_FEATURES = re.compile(rb"^max_feature_idx=(\d+)$", re.MULTILINE)
_ASKED = re.compile(rb"^split_feature=([^\n]+)$", re.MULTILINE)
Made = TypeVar("Made")


class TextCache(Generic[Made]):
    """What was made of recently used model texts, up to a number of bytes of text."""

    def __init__(self, make: Callable[[bytes], Made], most_bytes: int) -> None:
        self._make, self._most_bytes = make, most_bytes
        self._made: OrderedDict[bytes, Made] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __call__(self, text: bytes) -> Made:
        """Return what is made of a model text."""
        with self._lock:
            if text in self._made:
                self._made.move_to_end(text)
                return self._made[text]
        made = self._make(text)
        with self._lock:
            self._bytes += len(text) if text not in self._made else 0
            self._made[text] = made
            while self._bytes > self._most_bytes and len(self._made) > 1:
                self._bytes -= len(self._made.popitem(last=False)[0])
        return made


class TextScores:
    """The scores of one trusted model text for rows of its feature columns."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._columns, self._begins = _asked(text), offset.begins_text(text)
        self._model = _of_some_columns(text, self._columns) or Booster.of_text(text)

    def __call__(self, x: Matrix) -> FloatArray:
        """Return the scores (n, outputs) of rows (n, d)."""
        return self._sums(x) + offset.of_rows(x)[:, None] if self._begins else self._sums(x)

    def _sums(self, x: Matrix) -> FloatArray:
        model = self._model
        if isinstance(model, Booster):
            return model.predict(x, raw=True) * leaf_factor(self.text, model.iterations)
        scores = np.empty((x.shape[0], model.base.shape[1]))
        for rows in self._runs(x):
            asked = x[rows][:, self._columns]
            dense = asked if isinstance(asked, np.ndarray) else asked.toarray()
            numbers = np.ascontiguousarray(dense, dtype=np.float64)
            scores[rows] = model.scores(numbers, np.zeros(len(numbers), np.int32))
        return scores

    def _runs(self, x: Matrix) -> Iterator[slice]:
        step = max(1, _NUMBERS_AT_ONCE // max(1, len(self._columns)))
        yield from (slice(first, min(first + step, x.shape[0])) for first in range(0, x.shape[0], step))


def _asked(text: bytes) -> IntArray:
    """Return the sorted feature columns that a model's trees test."""
    return np.unique(np.array(b" ".join(_ASKED.findall(text)).split(), dtype=np.int64))


def _of_some_columns(text: bytes, columns: IntArray) -> Forests | None:
    """Return the trees of a model over these of its feature columns, None if the kernel cannot represent them."""
    (last,) = _FEATURES.findall(text)
    slot = np.full(int(last) + 1, -1)
    slot[columns] = np.arange(len(columns))
    return compile_forest(text, FeatureColumns(slot, np.full(len(slot), -1)))


def predicted(label: Label, text: bytes, scores: FloatArray) -> FloatArray:
    """Return values or probabilities, shape (n, n_outputs), for the scores (n, outputs) of a model text."""
    link = in_text(text).link
    scores = on_grid(scores) if label.has_classes else scores
    if label == SEVERAL_CLASSES and link != "one_vs_all":
        # A model of two classes scores the second of them.
        both = scores if scores.shape[1] > 1 else np.concatenate([np.zeros_like(scores), scores], axis=1)
        return linked(np.array(both, order="C"), Link.SOFTMAX)
    if link in ("logistic", "one_vs_all"):
        second = linked(scores.reshape(-1, 1), Link.SIGMOID)[:, 1].reshape(scores.shape)
        return shares_of_one(second) if link == "one_vs_all" else second
    if link == "exp":
        return linked(np.array(scores, order="C"), Link.EXPONENTIAL)
    return scores * np.abs(scores) if link == "signed_square" else scores


def predicted_in_training(group: Problem, text: bytes, scores: FloatArray) -> FloatArray:
    """Return what ``predicted`` is for a group that trains; for two classes the probability of the second."""
    if group.label == TWO_CLASSES and group.among_more:
        return predicted(SEVERAL_CLASSES, text, scores)[:, 1:]
    return predicted(group.label, text, scores)


def with_ties(label: Label, running: FloatArray) -> FloatArray:
    """Return the running predictions of a forest (n, n_outputs) by which rows tie that tie in ``predicted``.

    LightGBM's running averages differ in their last bits where leaves add up to the same in another order.
    """
    if not label.has_classes:
        return running
    if label == SEVERAL_CLASSES:
        return on_grid(running)
    with np.errstate(divide="ignore"):
        scores = np.log(running) - np.log1p(-running)
    return linked(on_grid(scores).reshape(-1, 1), Link.SIGMOID)[:, 1].reshape(running.shape)


def shares_of_one(shares: FloatArray) -> FloatArray:
    """Return one-against-rest predictions (n, K) divided by their sum, as probabilities."""
    total = shares.sum(axis=1, keepdims=True)
    return shares / np.where(total > 0, total, 1.0)
