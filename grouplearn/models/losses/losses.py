"""The list of losses of linear models."""

from __future__ import annotations

from grouplearn.models.losses.hinge import HINGE
from grouplearn.models.losses.logistic import LOGISTIC
from grouplearn.models.losses.loss import Loss
from grouplearn.models.losses.poisson import POISSON
from grouplearn.models.losses.softmax import SOFTMAX
from grouplearn.models.losses.squared_hinge import SQUARED_HINGE
from grouplearn.models.losses.squares import SQUARES

LOSSES: tuple[Loss, ...] = (SQUARES, LOGISTIC, SOFTMAX, POISSON, HINGE, SQUARED_HINGE)
