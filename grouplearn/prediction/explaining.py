"""What each item adds to the score of a prediction, of rows of one group: by the model's form, else by Shapley values.

The value of a set of items is the score of a row that has them, and the means of the group's training rows of all others. A
Shapley value is what an item adds on average, over all orders in which items may be set. All sets of up to ``_EXACT`` items are
scored; of more, those of ``_ORDERS`` random orders and their reverse, the same for every row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FloatArray
from grouplearn.data.encoding.categories.target import encodings
from grouplearn.data.encoding.encoder import FittedItem
from grouplearn.data.encoding.registry import encoder_of, widths_of
from grouplearn.data.shard import Matrix
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.drift import is_profiled
from grouplearn.models.forms.form import Contributions, GroupModel
from grouplearn.models.forms.forms import form_of
from grouplearn.models.outputs.link import Link

#: Most items of which all sets are scored, and random orders of more.
_EXACT, _ORDERS = 8, 16
#: Numbers of the rows that are scored at a time.
_AT_ONCE = 1 << 20
_SEED = 7
#: Whether each item (M,) is in each of some sets, and what the score of each adds to each item, both (sets, M).
Sets = tuple[npt.NDArray[np.bool_], FloatArray]


class Means:
    """What the items of each group were like in training, from rows of ``profiles``."""

    def __init__(self, rows: Any | None) -> None:
        columns = ("group_id", "item", "n_rows", "n_missing", "mean", "categories", "counts")
        each = [] if rows is None else zip(*(rows[name].to_pylist() for name in columns), strict=True)
        self._known = {(group, item): found for group, item, *found in each}

    def of(self, group: GroupModel) -> tuple[FloatArray, bool]:
        """Return the means of a group's feature columns, 0 where they are not stored, and whether any are."""
        found = [self._known.get((group.id, place)) for place in range(1, len(group.fitted) + 1)]
        parts = [
            _mean(fitted, width, known)
            for fitted, width, known in zip(group.fitted, widths_of(group.fitted), found, strict=True)
        ]
        return np.concatenate([np.empty(0), *parts]), any(known is not None for known in found)


def _mean(fitted: FittedItem, width: int, known: Sequence[Any] | None) -> FloatArray:
    """Return the means of an item's columns."""
    mean = np.zeros(width)
    if known is None or not is_profiled(fitted.item) or fitted.item.kind == "binned":
        return mean
    n_rows, n_missing, number, categories, counts = known
    if categories is None:
        filled = (
            number if fitted.fill is None else ((number or 0) * (n_rows - n_missing) + fitted.fill * n_missing) / n_rows
        )
        return np.full(width, ((filled or 0) - fitted.center) / fitted.scale)
    place = {text: at for at, text in enumerate(fitted.categories)}
    at = np.array([place.get(text, -1) for text in categories], np.int64)
    rows = np.array(counts, np.float64)
    if encoder_of(fitted.item).role != "indicator":
        value = encodings(fitted)[at] if encoder_of(fitted.item).learns_labels else at
        return np.full(width, (value @ rows) / max(1.0, rows.sum()))
    mean[at[at >= 0]] = rows[at >= 0] / n_rows
    if (rest := place.get(encoder_of(fitted.item).rest(fitted.item) or "")) is not None:
        mean[rest] = 1 - n_missing / n_rows - mean.sum() + mean[rest]
    return mean


@dataclass(frozen=True, slots=True)
class GroupExplainer:
    """Explains the rows of one group; ``score`` returns the learner's predictions (n, K) of rows of feature columns."""

    definition: ModelDefinition
    group: GroupModel
    score: Callable[[Matrix], FloatArray]
    means: Callable[[GroupModel], tuple[FloatArray, bool]]

    def explain(self, x: Matrix, predicted: FloatArray) -> Contributions:
        """Return what each item adds to the score of rows (n, d) whose predictions (n, K) are known."""
        widths = widths_of(self.group.fitted)
        item = np.repeat(np.arange(len(widths), dtype=np.int32), widths)
        chosen = (
            np.argmax(predicted, axis=1) if self.definition.label.scores_classes else np.zeros(len(predicted), np.int64)
        )
        found = form_of(self.definition).contributions(self.definition, self.group, x, chosen.astype(np.int32), item)
        return self._by_sets(x, chosen, item) if found is None else found

    def _by_sets(self, x: Matrix, chosen: npt.NDArray[np.int64], item: npt.NDArray[np.int32]) -> Contributions:
        """Return Shapley values from the scores of sets of items."""
        count = len(self.group.fitted)
        sets, shares = _sets_of(count)
        means, stored = self.means(self.group)
        added, baseline = np.empty((x.shape[0], count)), np.empty(x.shape[0])
        for rows in _runs(x.shape[0], len(sets) * max(1, len(item))):
            dense = np.asarray(x[rows] if isinstance(x, np.ndarray) else x[rows].toarray(), np.float64)
            mixed = np.where(sets[:, item], dense[:, None, :], means).reshape(-1, len(item))
            scores = self._scores(mixed, np.repeat(chosen[rows], len(sets))).reshape(len(dense), len(sets))
            added[rows], baseline[rows] = scores @ shares, scores[:, 0]
        method = f"{'' if count <= _EXACT else 'sampled '}shapley{'' if stored else ', from 0'}"
        return Contributions(added, baseline, method)

    def _scores(self, x: FloatArray, chosen: npt.NDArray[np.int64]) -> FloatArray:
        """Return the chosen scores (n,) of rows."""
        form = form_of(self.definition)
        raw = form.raw_scores(self.group, x)
        found = self.score(x) if raw is None else raw
        if self.definition.label.scores_classes and found.shape[1] == 1:  # of two classes the second
            found = np.concatenate([np.zeros_like(found) if raw is not None else 1 - found, found], axis=1)
        own = found[np.arange(len(found)), chosen]
        return own if raw is not None else _unlinked(own, form.link(self.definition, self.group))


def _unlinked(values: FloatArray, link: Link) -> FloatArray:
    """Return the scores of predictions; of shares of several classes their logarithms. Infinite ones are far from it."""
    if link == "identity":
        return values
    if link == "signed_square":
        return np.sign(values) * np.sqrt(np.abs(values))
    least = np.finfo(np.float64).tiny
    logs = np.log(np.maximum(values, least))
    return logs - np.log(np.maximum(1 - values, np.finfo(np.float64).epsneg)) if link == "logistic" else logs


def _runs(n_rows: int, each: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // each)
    return (slice(first, min(first + step, n_rows)) for first in range(0, n_rows, step))


@functools.lru_cache(maxsize=16)
def _sets_of(count: int) -> Sets:
    """Return the sets of so many items that are scored, the empty one first, and their shares in the contributions."""
    if count <= _EXACT:
        sets = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1 > 0
        size = sets.sum(axis=1, keepdims=True)
        # An item is added after s of the n - 1 others in one of n·C(n - 1, s) ways.
        weight = np.array([1 / (count * comb(count - 1, s)) for s in range(count)] + [0.0])
        return sets, np.where(sets, weight[size - 1], -weight[np.minimum(size, count)])
    random = np.random.default_rng(_SEED)
    orders = [order for _ in range(_ORDERS) for order in _both_ways(random.permutation(count))]
    sets, at = np.unique(
        np.concatenate([np.tri(count + 1, count, -1, dtype=bool)[:, np.argsort(each)] for each in orders]),
        axis=0,
        return_inverse=True,
    )
    shares = np.zeros(sets.shape)
    for number, order in enumerate(orders):
        places = at.reshape(len(orders), count + 1)[number]
        np.add.at(shares, (places[1:], order), 1 / len(orders))
        np.add.at(shares, (places[:-1], order), -1 / len(orders))
    return sets, shares


def _both_ways(order: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return order, order[::-1]
