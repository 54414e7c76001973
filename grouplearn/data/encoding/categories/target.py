"""``target``: the mean label of a category's rows, drawn towards that of all rows of the group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.categories.category import Category, GroupPlaces, marked
from grouplearn.data.encoding.columns import Columns, IntArray, Numbers, Reading, SqlColumn
from grouplearn.data.encoding.encoder import (
    FittedGroups,
    FittedItem,
    GroupRows,
    Labels,
    OnnxGraph,
    Replay,
    Role,
)
from grouplearn.data.encoding.encoder_calls import EncoderCall, EncoderOption

#: Parts of a group's training rows: each is encoded by the labels of the others.
FOLDS = 5
_SMOOTH = EncoderOption(
    "smooth",
    "number",
    "how many rows of average label each category counts in addition; 'auto': fewer the less labels differ within a category",
    default="auto",
    low=0,
    choices=("auto",),
    example="10",
)


@dataclass(frozen=True, slots=True)
class _Means:
    """The encodings of groups' categories, group after group, and then those of other texts, one per group: ``by_all`` (m,) from
    all rows, ``by_others`` (m, FOLDS) from those outside each part; None if that is not known."""

    by_all: FloatArray
    by_others: FloatArray | None

    def piece(self, at: npt.NDArray[Any], place: IntArray | None) -> Numbers:
        """Return the column of rows with encodings ``at`` (n,), of which those with a ``place`` (n,) train."""
        if place is None or self.by_others is None:
            return Numbers(self.by_all[at][:, None])
        return Numbers(self.by_others[at, place % FOLDS][:, None])


class Target(Category):
    """The mean label of a category's training rows, of a class its share, as scikit-learn's ``TargetEncoder``.

    A category c of n rows with mean m and variance v has λ·m + (1 - λ)·M, M being the mean of the group: λ = n / (n + smooth),
    or by default λ = V·n / (V·n + v), V being the variance of labels in the group. Weights count as rows. NULL is a category;
    a text that no training row has is M.

    The rows that train are cut into ``FOLDS`` parts, and those of a part are encoded by the labels of the others alone: no row
    sees its own label. All other rows are encoded by the labels of all rows that train.
    """

    kind: ClassVar[str] = "target"
    name: ClassVar[str] = "target"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "target",
        {
            "target(x, ...)": "the mean label of the rows with the same value: of a number, or of 0 and 1 for two classes"
        },
        (_SMOOTH,),
    )
    role: ClassVar[Role] = "number"
    fills: ClassVar[bool] = True
    learns_labels: ClassVar[bool] = True
    suggested: ClassVar[bool] = False

    def reading(self, column: SqlColumn, item: Item) -> Reading:  # noqa: ARG002
        """Return the text; NULL is one, too."""
        return marked(column, nulls=True)

    def keeps_single(self, item: Item) -> bool:  # noqa: ARG002
        """Return False: means are double."""
        return False

    def fit_labelled(
        self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str], labels: Labels, rows: GroupRows
    ) -> FittedGroups:
        """Find the mean label of each category of each group."""
        places = GroupPlaces(values, len(dictionary), rows)
        n, starts = places.codes.size, places.starts
        means = _means(places, values, labels, rows, item.option("smooth"))
        texts, fitted = [dictionary[code] for code in places.codes.tolist()], []
        for group, (start, stop) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
            own = np.r_[start:stop, n + group]
            by_others = b"" if means.by_others is None else means.by_others[own].tobytes()
            by_all, other = means.by_all[start:stop].tobytes(), float(means.by_all[n + group])
            fitted.append(
                FittedItem(item, other, categories=tuple(texts[start:stop]), values=by_all, by_others=by_others)
            )

        def replay(columns: Columns, of: npt.NDArray[np.intp]) -> Numbers:
            place = places.of(columns.codes[:, item.column], of)
            return means.piece(np.where(place < 0, n + of, starts[of] + place), columns.place)

        return FittedGroups(fitted, replay)

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return the item's name."""
        return (fitted.item.name,)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:
        """Return a function that looks up means."""
        by_others = np.frombuffer(fitted.by_others).reshape(-1, FOLDS) if fitted.by_others else None
        means, positions = _Means(encodings(fitted), by_others), self._positions(fitted, columns)
        return lambda rows: means.piece(positions(rows), rows.place)

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Add a STRING input, ``(null)`` for NULL."""
        place = self._onnx_places(graph, fitted)  # -1, for unknown texts, is the last
        return [graph.add("Gather", graph.constant(encodings(fitted)), place)]


def encodings(fitted: FittedItem) -> FloatArray:
    """Return the encodings of an item's categories, and last that of all other texts, (C + 1,)."""
    return np.append(np.frombuffer(fitted.values), np.nan if fitted.fill is None else fitted.fill)


def _means(
    places: GroupPlaces, values: npt.NDArray[Any], labels: Labels, rows: GroupRows, smooth: float | str
) -> _Means:
    """Return the encodings of all categories of groups."""
    n, parts = places.codes.size, 1 if labels.place is None else FOLDS
    of_category = np.repeat(np.arange(rows.n_groups), np.diff(places.starts))
    with np.errstate(divide="ignore", invalid="ignore"):  # groups without rows fail for that
        total = np.bincount(rows.of, labels.weight, rows.n_groups)
        center = np.bincount(rows.of, labels.weight * labels.y, rows.n_groups) / total
        y = labels.y - rows.each(center)
        at = (places.starts[rows.of] + places.of(values, rows.of)) * parts
        at += 0 if labels.place is None else labels.place % FOLDS

        def summed(each: FloatArray) -> tuple[FloatArray, FloatArray]:
            """Return the sums of all rows and of those outside each part: of categories, and of groups."""
            by_part = np.bincount(at, each, n * parts).reshape(n, parts)
            found = by_part.sum(axis=1, keepdims=True)
            if parts > 1:
                found = np.hstack([found, found - by_part])
            of_groups = [np.bincount(of_category, column, rows.n_groups) for column in found.T]
            return found, np.stack(of_groups, axis=1)

        weight, first, second = (summed(labels.weight * y**power) for power in range(3))
        mean, variance = _moments(*(each[1] for each in (weight, first, second)))
        own, within = _moments(*(each[0] for each in (weight, first, second)))
        count = weight[0]
        if smooth == "auto":
            share = variance[of_category] * count / (variance[of_category] * count + within)
        else:
            share = count / (count + float(smooth))
        drawn = np.where(count > 0, share * own + (1 - share) * mean[of_category], np.nan)
        drawn = np.where(np.isnan(drawn), mean[of_category], drawn)
        mean = np.where(np.isnan(mean), 0.0, mean)  # no other row
        drawn = np.where(np.isnan(drawn), 0.0, drawn)
    found = np.vstack([drawn + center[of_category, None], mean + center[:, None]])
    return _Means(found[:, 0], found[:, 1:] if parts > 1 else None)


def _moments(weight: FloatArray, first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return means and variances from the sums of weights, of weighted values and of their squares."""
    mean = first / weight
    return mean, np.maximum(second / weight - mean**2, 0.0)
