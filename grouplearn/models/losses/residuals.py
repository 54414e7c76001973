"""Losses of a number's error y − s that grow more slowly than its square: they fit medians and other quantiles.

Training starts at the mean label, as for squares, which is not where a constant is best.
"""

from __future__ import annotations

from grouplearn.models.label import NUMBER
from grouplearn.models.losses import squares
from grouplearn.models.losses.loss import Loss, as_column


def _per_deviation(mean: float, deviation: float, parameter: float) -> float:
    """Return 1/deviation: a slope of 1, divided by it, is a deviation of the labels."""
    del mean, parameter
    return 1.0 / deviation


def _of_huber(mean: float, deviation: float, delta: float) -> float:
    """Return 1, or what makes the steepest slope, divided by it, a deviation of the labels, if that is less."""
    del mean
    return min(1.0, delta / deviation)


#: |y − s|.
ABSOLUTE = Loss(
    name="absolute",
    labels=frozenset({NUMBER}),
    targets=as_column,
    mean=squares.SQUARES.mean,
    scores=squares.SQUARES.scores,
    curvature=None,
    typical_curvature=_per_deviation,
    is_smooth=False,
    judged_by="mae",
)
#: α·(y − s) of labels above s, (1 − α)·(s − y) of those below.
QUANTILE = Loss(
    name="quantile",
    labels=frozenset({NUMBER}),
    targets=as_column,
    mean=squares.SQUARES.mean,
    scores=squares.SQUARES.scores,
    curvature=None,
    typical_curvature=_per_deviation,
    is_smooth=False,
    judged_by="pinball",
    parameter="alpha",
)
#: ½(y − s)² where |y − s| ≤ δ, else δ·(|y − s| − ½δ).
HUBER = Loss(
    name="huber",
    labels=frozenset({NUMBER}),
    targets=as_column,
    mean=squares.SQUARES.mean,
    scores=squares.SQUARES.scores,
    curvature=1.0,
    typical_curvature=_of_huber,
    judged_by="mae",
    parameter="delta",
)
