"""The metrics of ``metrics`` for many small groups at once: padded rows, one number per group and config."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.learners.base import Problem, Solved, Task
from grouplearn.learners.deviances import RowLoss, row_losses
from grouplearn.learners.metrics import METRICS, r_squared
from grouplearn.learners.ranking import equal_weight_auc, precision_of

_EPSILON = float(np.finfo(np.float64).eps)


def measure_stack(
    problem: Problem, scores: FloatArray, y: FloatArray, weight: FloatArray, wanted: Collection[str]
) -> dict[str, FloatArray]:
    """Return the ``wanted`` metrics of the task, each (G, C), for ``scores`` (G, n, C, k), ``y`` and ``weight`` (G, n).

    Rows of weight 0 are padding. A metric is NaN where it is not defined, as in ``metrics.finish``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if problem.task is Task.REGRESSION:
            finished = _values(scores[..., 0], y, weight)
        else:
            classes = range(problem.n_classes + problem.n_unseen)
            finished = _Classes.of(scores, y.astype(np.intp), weight, problem.n_classes, classes).finished()
        return {name: compute() for name, compute in finished.items() if name in wanted}


def first_alike(models: Solved) -> npt.NDArray[np.intp]:
    """Return for each group and config (G, C) the first config of the group whose model has the same bits.

    The last bits of scores and of sums over rows depend on where a model stands.
    """
    groups, configs = models.loss.shape
    parts = [each.reshape(groups, configs, -1) for each in (models.weights, models.intercept)]
    bits = np.ascontiguousarray(np.concatenate(parts, axis=2)).view(np.uint64)
    # Odd factors, and sums that wrap around: what is equal stands together, and is then compared.
    factors = np.random.default_rng(0).integers(0, 1 << 62, bits.shape[2], dtype=np.uint64) * np.uint64(2) + np.uint64(
        1
    )
    mixed = (bits * factors).sum(axis=2)
    order = np.argsort(mixed, axis=1, kind="stable")
    ranked = np.take_along_axis(mixed, order, axis=1)
    starts = np.ones(ranked.shape, dtype=bool)
    starts[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    begun = np.maximum.accumulate(np.where(starts, np.arange(configs), 0), axis=1)
    first = np.empty_like(order)
    np.put_along_axis(first, order, np.take_along_axis(order, begun, axis=1), axis=1)
    same = (bits == np.take_along_axis(bits, first[:, :, None], axis=1)).all(axis=2)
    return np.where(same, first, np.arange(configs))


def _over_rows(weight: FloatArray, values: npt.NDArray[np.float64]) -> FloatArray:
    """Return Σᵢ wᵢ·valuesᵢ per group and config, (G, C), for values (G, n, C)."""
    total: FloatArray = (weight[:, None, :] @ values)[:, 0, :]
    return total


def _values(predictions: FloatArray, y: FloatArray, weight: FloatArray) -> dict[str, Callable[[], FloatArray]]:
    total = weight.sum(axis=1)
    mean = (weight * y).sum(axis=1) / total
    spread = (weight * (y - mean[:, None]) ** 2).sum(axis=1)[:, None]
    error = predictions - y[:, :, None]
    error[weight == 0] = 0.0
    square = _over_rows(weight, error * error)
    absolute = _over_rows(weight, np.abs(error)) / total[:, None]
    low, high = np.where(weight > 0, y, np.inf).min(axis=1), np.where(weight > 0, y, -np.inf).max(axis=1)
    r2 = r_squared(square, spread, absolute, low[:, None], high[:, None])
    r2[(weight > 0).sum(axis=1) < 2] = np.nan
    size = np.maximum(np.abs(y), _EPSILON)[:, :, None]
    of_rows = row_losses([name for name, each in METRICS.items() if each.row_loss and each.parameter is None], {})
    return {
        "rmse": lambda: np.sqrt(square / total[:, None]),
        "mae": lambda: absolute,
        "r2": lambda: r2,
        "mape": lambda: _over_rows(weight, np.abs(error) / size) / total[:, None],
        **{loss.name: partial(_mean_loss, loss, predictions, y, weight) for loss in of_rows},
    }


def _mean_loss(loss: RowLoss, predictions: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
    losses = np.where((weight > 0)[:, :, None], loss.of(predictions, y[:, :, None]), 0.0)
    mean: FloatArray = _over_rows(weight, losses) / weight.sum(axis=1)[:, None]
    return mean


@dataclass(frozen=True, slots=True)
class _Classes:
    """What the metrics of classes are made of: ``total`` (G, 1), and per class ``actual`` (G, 1), ``said`` and ``hit`` (G, C).

    ``own`` (G, n, C) is the probability of each row's class, ``known`` how many classes have scores.
    """

    scores: FloatArray
    label: npt.NDArray[np.intp]
    weight: FloatArray
    known: int
    own: FloatArray
    total: FloatArray
    actual: list[FloatArray]
    said: list[FloatArray]
    hit: list[FloatArray]

    @classmethod
    def of(
        cls, scores: FloatArray, label: npt.NDArray[np.intp], weight: FloatArray, known: int, classes: range
    ) -> _Classes:
        binary = scores.shape[3] == 1
        predicted = scores[..., 0] > 0.5 if binary else scores.argmax(axis=3)
        if binary:
            own = np.where((label == 1)[:, :, None], scores[..., 0], 1.0 - scores[..., 0])
        else:
            place = np.minimum(label, known - 1)
            own = np.take_along_axis(scores, place[:, :, None, None], axis=3)[..., 0]
        own[label >= known] = 0.0
        own[weight == 0] = 0.5
        total = weight.sum(axis=1)[:, None]
        actual = [(weight * (label == each)).sum(axis=1)[:, None] for each in classes]
        # Of two classes each row that is not taken for one is taken for the other.
        counted = range(1, 2) if binary and len(classes) == 2 else classes
        taken = [(predicted == each).astype(np.float64) for each in counted]
        said = [_over_rows(weight, each) for each in taken]
        hit = [_over_rows(weight * (label == number), each) for number, each in zip(counted, taken, strict=True)]
        if len(counted) == 1:
            said, hit = [total - said[0], said[0]], [actual[0] - (said[0] - hit[0]), hit[0]]
        return cls(scores, label, weight, known, own, total, actual, said, hit)

    def finished(self) -> dict[str, Callable[[], FloatArray]]:
        """Return the metrics, to be computed."""
        either = [actual + said for actual, said in zip(self.actual, self.said, strict=True)]
        everywhere = [np.broadcast_to(each, self.hit[0].shape) for each in self.actual]
        halves = [0.5 * each for each in either]
        return {
            "log_loss": lambda: (
                _over_rows(self.weight, -np.log(np.clip(self.own, _EPSILON, 1.0 - _EPSILON))) / self.total
            ),
            "auc": lambda: self._of_each(binary_auc, lambda inside: 0.5 if inside < 1 else np.nan),
            "accuracy": self._accuracy,
            "f1": lambda: self._share(halves, either, self._binary),
            "precision": lambda: self._share(self.said, either, self._binary),
            "recall": lambda: self._share(everywhere, either, self._binary),
            "balanced_accuracy": lambda: self._share(everywhere, everywhere, False),
            "pr_auc": lambda: self._of_each(average_precision, lambda inside: inside),
            "brier": lambda: _over_rows(self.weight, self._squared_errors()) / self.total,
        }

    @property
    def _binary(self) -> bool:
        return bool(self.scores.shape[3] == 1)

    def _accuracy(self) -> FloatArray:
        right: FloatArray = np.sum(self.hit, axis=0) / self.total
        return right

    def _share(self, counted: Sequence[FloatArray], occurs: Sequence[FloatArray], binary: bool) -> FloatArray:
        """Return hit / counted, 0 where nothing is counted, of class 1, or its mean over the classes that occur."""
        shares = [np.where(of > 0, hit / of, 0.0) for hit, of in zip(self.hit, counted, strict=True)]
        if not binary:
            shares = [np.sum(shares, axis=0) / np.sum([each > 0 for each in occurs], axis=0)]
        return np.where(self.total > 0, shares[-1] if not binary else shares[1], np.nan)

    def _of_each(self, area: Callable[..., FloatArray], unscored: Callable[[float], float]) -> FloatArray:
        """Return the area of class 1, or its mean over the classes that have one."""
        if self._binary:
            return area(self.scores[..., 0], self.label == 1, self.weight)
        shape = self.hit[0].shape
        areas, defined = np.zeros(shape), np.zeros(shape)
        for each in range(self.known):
            found = area(self.scores[..., each], self.label == each, self.weight)
            areas += np.nan_to_num(found)
            defined += ~np.isnan(found)
        broken = np.isnan(self.scores).any(axis=(1, 3))
        for actual in self.actual[self.known :]:
            share = actual / self.total
            found = np.where(share > 0, np.vectorize(unscored, otypes=[float])(share), np.nan)
            areas += np.nan_to_num(found)
            defined += ~np.isnan(found)
        return np.where((defined > 0) & ~broken, areas / defined, np.nan)

    def _squared_errors(self) -> FloatArray:
        """Return Σ over classes of (p - y)² per row, of two classes that of the positive one alone."""
        if self._binary:
            error: FloatArray = (self.scores[..., 0] - (self.label == 1)[:, :, None]) ** 2
        else:
            error = (1.0 - self.own) ** 2 + (self.scores**2).sum(axis=3) - self.own**2
        error[self.weight == 0] = 0.0
        return error


def average_precision(scores: FloatArray, positive: npt.NDArray[np.bool_], weight: FloatArray) -> FloatArray:
    """Return ``ranking.average_precision`` of one class per group and config, for ``scores`` (G, n, C)."""
    found = np.full((scores.shape[0], scores.shape[2]), np.nan)
    for group in np.flatnonzero((weight * positive).sum(axis=1) > 0):
        rows = weight[group] > 0
        own = weight[group, rows]
        hits = own * positive[group, rows]
        found[group] = [precision_of(column, hits, own) for column in scores[group, rows].T]
    return found


def binary_auc(scores: FloatArray, positive: npt.NDArray[np.bool_], weight: FloatArray) -> FloatArray:
    """Return Σ over pairs w⁺w⁻·([s⁺ > s⁻] + ½[s⁺ = s⁻]) / (Σw⁺·Σw⁻) per group and config, for ``scores`` (G, n, C).

    NaN where one class has no weight or a score is NaN.
    """
    padded = weight == 0
    columns = np.ascontiguousarray(scores.transpose(0, 2, 1))
    if ((weight == weight.max(axis=1, keepdims=True)) | padded).all():
        columns[np.broadcast_to(padded[:, None, :], columns.shape)] = 2.0
        size = (~padded).sum(axis=1)[:, None]
        auc = equal_weight_auc(columns, (positive & ~padded)[:, None, :], size)
        return np.where(np.isfinite(auc), auc, np.nan)
    columns[np.broadcast_to(padded[:, None, :], columns.shape)] = np.inf  # last, and of no weight
    order = np.argsort(columns, axis=2)
    ranked = np.take_along_axis(columns, order, axis=2)
    above, below = weight * positive, weight * ~positive
    up = np.take_along_axis(np.broadcast_to(above[:, None, :], columns.shape), order, axis=2)
    down = np.take_along_axis(np.broadcast_to(below[:, None, :], columns.shape), order, axis=2)
    lower = np.cumsum(down, axis=2) - down
    area = (up * (lower + 0.5 * down)).sum(axis=2)
    tied = ((ranked[:, :, 1:] == ranked[:, :, :-1]) & (ranked[:, :, 1:] != np.inf)).any(axis=2)
    for group, config in np.argwhere(tied):
        area[group, config] = _tied_area(ranked[group, config], up[group, config], down[group, config])
    auc = area / (above.sum(axis=1) * below.sum(axis=1))[:, None]
    auc[np.isnan(ranked).any(axis=2)] = np.nan
    return np.where(np.isfinite(auc), auc, np.nan)


def _tied_area(ranked: FloatArray, up: FloatArray, down: FloatArray) -> float:
    """Runs of equal scores: half of the negatives in a run count for each of its positives."""
    start = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    positives, negatives = np.add.reduceat(up, start), np.add.reduceat(down, start)
    return float(positives @ (np.cumsum(negatives) - 0.5 * negatives))
