"""Sums over rows from which standard errors follow, at the finished models of one config: moments with other weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.linear import moments as kernel
from grouplearn.learners.contract.standard_errors import ErrorOptions
from grouplearn.learners.linear.linear_model import inverse_link
from grouplearn.models.label import Label
from grouplearn.models.losses.loss import Loss
from grouplearn.models.state import Tensors


class Rows(NamedTuple):
    """Rows of G groups, concatenated: x (n, d), labels and weights (n,), where each group begins, (G + 1,), offsets and clusters
    (n,)."""

    x: npt.NDArray[Any]
    y: FloatArray
    weight: FloatArray
    start: npt.NDArray[np.int64]
    offset: FloatArray | None = None
    cluster: npt.NDArray[np.int32] | None = None

    @property
    def of(self) -> npt.NDArray[np.intp]:
        """The place of each row's group, (n,)."""
        return np.repeat(np.arange(self.start.size - 1), np.diff(self.start))

    def moments(self, weight: FloatArray) -> Tensors:
        """Return the moments of the features of each group with these weights of rows."""
        return kernel.of_rows(self.x, np.empty((len(self.y), 0)), weight, self.start)


@dataclass(frozen=True, slots=True)
class ClusterSums:
    """Sums Σ s(x − c, 1) over the rows of each of K clusters, (K, d + 1), with s = ωr and a centre c (G, d) for each group.

    Cluster k is ``code[k]`` of group ``of[k]``; both ascend.
    """

    of: npt.NDArray[np.intp]
    code: npt.NDArray[np.int64]
    sums: FloatArray
    centre: FloatArray

    @property
    def nbytes(self) -> int:
        """Bytes of the sums."""
        return self.of.nbytes + self.code.nbytes + self.sums.nbytes + self.centre.nbytes

    @property
    def counts(self) -> FloatArray:
        """How many clusters each group has, (G,)."""
        return np.bincount(self.of, minlength=len(self.centre)).astype(np.float64)

    def about(self, centre: FloatArray) -> FloatArray:
        """Return the sums with another centre."""
        shift = self.centre - centre
        return np.concatenate([self.sums[:, :-1] + shift[self.of] * self.sums[:, -1:], self.sums[:, -1:]], axis=1)

    def merged(self, other: Self) -> ClusterSums:
        """Return the sums over the rows of both."""
        of, code = (np.concatenate(each) for each in ((self.of, other.of), (self.code, other.code)))
        return _by_cluster(of, code, np.concatenate([self.sums, other.about(self.centre)]), self.centre)


def cluster_sums(rows: Rows, score: FloatArray) -> ClusterSums:
    """Return the sums by cluster, for the ``score`` s (n,) of each row."""
    if rows.cluster is None:
        raise ValueError("these rows have no clusters")
    centre, of = rows.moments(rows.weight)["mean"], rows.of
    parts = np.concatenate([(rows.x - centre[of]) * score[:, None], score[:, None]], axis=1)
    return _by_cluster(of, rows.cluster.astype(np.int64), parts, centre)


def _by_cluster(
    of: npt.NDArray[np.intp], code: npt.NDArray[np.int64], parts: FloatArray, centre: FloatArray
) -> ClusterSums:
    """Return the sums of ``parts`` (m, d + 1) over each cluster, in their order."""
    width = int(code.max(initial=-1)) + 2  # NULL, the cluster -1, is one like others
    found, place = np.unique(of * width + code + 1, return_inverse=True)
    sums = np.empty((found.size, parts.shape[1]))
    for column in range(parts.shape[1]):
        sums[:, column] = np.bincount(place, parts[:, column], found.size)
    return ClusterSums(found // width, found % width - 1, sums, centre)


@dataclass(frozen=True, slots=True)
class ModelSums:
    """The moments at models of G groups: ``bread`` with weights ωh, None where h is 1, and ``scores`` with weights ω²r², None
    unless they are wanted; ``clusters`` are the sums by cluster, if these are."""

    bread: Tensors | None = None
    scores: Tensors | None = None
    clusters: ClusterSums | None = None

    def merged(self, other: Self) -> ModelSums:
        """Return the sums over the rows of both."""
        clusters = None if self.clusters is None or other.clusters is None else self.clusters.merged(other.clusters)
        return ModelSums(_either(self.bread, other.bread), _either(self.scores, other.scores), clusters)


@dataclass(frozen=True, slots=True)
class LinearErrorSums:
    """The number of ``rows`` (G,), the moments ``plain`` of the features of G groups, and the sums at models, by config."""

    rows: FloatArray
    plain: Tensors
    models: Mapping[int, ModelSums] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the sums."""
        of_models = (part for each in self.models.values() for part in (each.bread, each.scores) if part is not None)
        clusters = sum(each.clusters.nbytes for each in self.models.values() if each.clusters is not None)
        return clusters + sum(array.nbytes for part in (self.plain, *of_models) for array in part.values())

    def merged(self, other: Self) -> LinearErrorSums:
        """Return the sums over the rows of both."""
        models = {place: each.merged(other.models[place]) for place, each in self.models.items()}
        return LinearErrorSums(self.rows + other.rows, kernel.merged(self.plain, other.plain), models)


def _either(left: Tensors | None, right: Tensors | None) -> Tensors | None:
    return None if left is None or right is None else kernel.merged(left, right)


def model_sums(
    rows: Rows, weights: FloatArray, intercept: FloatArray, loss: Loss, label: Label, options: ErrorOptions
) -> ModelSums:
    """Return the sums at models ``weights`` (G, d) and ``intercept`` (G,); least squares need none for classical errors."""
    robust = options.kind != "classical"
    if loss.is_quadratic and not robust:
        return ModelSums()
    mean = _means(rows, weights, intercept, loss, label)
    bread = None if loss.is_quadratic else rows.moments(rows.weight * _curvature(loss, mean))
    score = rows.weight * (rows.y - mean)
    if options.kind == "cluster":
        return ModelSums(bread, clusters=cluster_sums(rows, score))
    return ModelSums(bread, rows.moments(score**2) if robust else None)


def _curvature(loss: Loss, mean: FloatArray) -> FloatArray:
    """Return the second derivatives (n,) of the losses of rows by their scores."""
    if loss.coupling is None:
        raise TypeError(f"{loss.name} has no second derivative")
    return np.asarray(loss.coupling(mean[:, None])[:, 0, 0])


def _means(rows: Rows, weights: FloatArray, intercept: FloatArray, loss: Loss, label: Label) -> FloatArray:
    """Return the predicted means (n,), with the same bits whatever other groups there are."""
    of = rows.of
    scores = intercept[of] if rows.offset is None else intercept[of] + rows.offset
    for column in range(rows.x.shape[1]):
        scores = scores + rows.x[:, column] * weights[of, column]
    return inverse_link(label, scores, loss.log_link)
