"""What the losses of a pack's configs say: the numbers that they take, their curvatures, and where they start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grouplearn.data.shard import FloatArray, Totals
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.label import SEVERAL_CLASSES
from grouplearn.models.losses.loss import Loss


def parameters(losses: Sequence[Loss], configs: Sequence[Config]) -> FloatArray:
    """Return the number that each config's loss takes (c,), 0 if it takes none."""
    pairs = zip(losses, configs, strict=True)
    return np.array([config[loss.parameter] if loss.parameter else 0.0 for loss, config in pairs], np.float64)


def curvatures(losses: Sequence[Loss], configs: Sequence[Config], whole: Totals) -> FloatArray:
    """Return the curvature (c,) by which each config's steps are measured, estimated from the labels if the loss says so."""
    mean, deviation = whole.label_mean, whole.label_scale
    taken = zip(losses, parameters(losses, configs).tolist(), strict=True)
    found = [
        loss.curvature if loss.typical_curvature is None else loss.typical_curvature(mean, deviation, parameter)
        for loss, parameter in taken
    ]
    return np.array(found, np.float64)


def first_intercepts(losses: Sequence[Loss], problem: Problem, whole: Totals) -> FloatArray:
    """Return the score (c,) that predicts the mean label; 0 for more than two classes and for losses that are not calibrated."""
    mean = np.array([whole.label_mean])
    told = [problem.label != SEVERAL_CLASSES and loss.is_calibrated for loss in losses]
    return np.array(
        [float(loss.scores(loss.mean(mean, True))[0]) if each else 0.0 for loss, each in zip(losses, told, strict=True)]
    )
