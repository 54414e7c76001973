"""What a loss of linear models has, for the solvers that need it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.models.label import Label
from grouplearn.models.losses.loss_metric import LossMetric

#: The share or mean to start from if the labels' is 0, which has no score; and its distance from 1 if it is 1.
_ALMOST_NONE = 1e-6


def _accept_labels(y: FloatArray, weight: FloatArray, learner: str) -> None:
    """Accept all labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss of the score xᵢ'w + b of a row; arrays may have leading axes.

    - ``name`` of its arithmetic in ``kernels/source/losses``. ``labels``: the labels that it is for.
    - ``targets`` (..., n, t) of labels (..., n) and K outputs: the values that the first pass averages. The first K are, at
      equal scores, the predictions minus the derivatives of the loss by the scores; they are the labels of the K outputs if
      the score is the natural parameter.
    - ``mean`` (..., K) of these averages: the prediction at zero weights, with an intercept or without; ``scores`` of it.
    - ``curvature``: the largest second derivative by the score; None if it has no bound, or the loss has a kink in place of one.
      ``typical_curvature`` of labels with this mean and deviation, by which steps are measured instead, if it is given.
    - ``coupling`` (..., K, K): the second derivatives by the scores of a ``mean``; ``mean_loss``: the average loss of averages
      of targets if the prediction of every row is ``mean``.
    - ``is_smooth``: it has no kinks. ``is_quadratic``: its second derivative is constant. ``is_calibrated``: its predictions
      are means and probabilities; else they only order rows, and no metric is this loss. ``by_class``: if there are more than
      two classes, each has a model against the rest.
    - ``log_link``: predictions are exp(score). ``check_labels`` raises ValueError, with a reason that a user understands, for
      labels (...,) of a learner that have no loss.
    - ``doc``: in the list of losses that a hyperparameter chooses from, where it is called ``choice`` if that is not its name.
      ``parameter``: the hyperparameter of the number that it takes.
    - ``metric``: the metric that this loss is. ``judged_by``: the metric that goes with it, if not the label's default.
    - ``learner`` that minimises it and no other loss, and its ``summary``; empty if one lists it among its losses.
    """

    name: str
    labels: frozenset[Label]
    targets: Callable[[FloatArray, int], FloatArray]
    mean: Callable[[FloatArray, bool], FloatArray]
    scores: Callable[[FloatArray], FloatArray]
    curvature: float | None
    coupling: Callable[[FloatArray], FloatArray] | None = None
    mean_loss: Callable[[FloatArray, FloatArray], FloatArray] | None = None
    is_smooth: bool = True
    is_quadratic: bool = False
    is_calibrated: bool = True
    by_class: bool = False
    log_link: bool = False
    check_labels: Callable[[FloatArray, FloatArray, str], None] = _accept_labels
    typical_curvature: Callable[[float, float, float], float] | None = None
    doc: str = ""
    choice: str = ""
    parameter: str | None = None
    judged_by: str | None = None
    metric: LossMetric | None = None
    learner: str = ""
    summary: str = ""

    @property
    def chosen_as(self) -> str:
        """Its name among the values of a hyperparameter."""
        return self.choice or self.name


def as_column(y: FloatArray, outputs: int) -> FloatArray:
    """Return labels (..., n) as the targets (..., n, 1) of one output."""
    del outputs
    return y[..., None]


def within_shares(share: FloatArray) -> FloatArray:
    """Return shares to start from: those of labels, however near to 0 or 1, but not 0 or 1."""
    inside: FloatArray = np.where(share <= 0, _ALMOST_NONE, np.where(share >= 1, 1 - _ALMOST_NONE, share))
    return inside


def above_zero(mean: FloatArray) -> FloatArray:
    """Return means to start from: those of labels, however small, but not 0."""
    above: FloatArray = np.where(mean > 0, mean, _ALMOST_NONE)
    return above
