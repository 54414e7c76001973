"""The learner ``croston``: demand that is 0 most of the time, by its size and how often it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.series import intermittent as kernel
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.series.batch import FittedSeries, IntArray, Parts, SeriesBatch, known, scores_at
from grouplearn.learners.series.methods import FEW_DEMANDS, FITTED, NO_DEMAND
from grouplearn.learners.series.series_learner import HORIZON, SEASON_LENGTH, SeriesCost, SeriesLearner
from grouplearn.models.label import NUMBER
from grouplearn.models.metrics.forecasts import DEVIATIONS
from grouplearn.models.outputs.forecast import DemandForecast
from grouplearn.models.state import Tensors

#: The kernel's methods by the variant that a statement names.
_METHODS = dict(zip(("croston", "sba", "tsb"), kernel.VARIANTS, strict=True))
VARIANT = Hyperparameter(
    "variant",
    "str",
    "sba",
    "croston: size / interval; sba: the same without its bias, times 1 - beta / 2; tsb: size · probability, which falls while "
    "there is no demand",
    "Croston 1972; Syntetos & Boylan 2005; Teunter, Syntetos & Babai 2011",
    choices=tuple(_METHODS),
)


def _weight(name: str, of: str) -> Hyperparameter:
    doc = f"the weight of the last {of}; by default the one with the least one-step errors"
    return Hyperparameter(name, "float", None, doc, "Croston 1972", low=0.0, high=1.0, open_low=True, nullable=True)


ALPHA, BETA = _weight("alpha", "size"), _weight("beta", "interval, or of whether there is demand")


class Croston(SeriesLearner):
    """Smooths the sizes of demands, and the intervals between them or their probability, each with its own weight.

    The deviation is the root mean square of one-step errors, the same for all steps; no quantile is below 0.
    Source: Croston 1972; Syntetos & Boylan 2005; Teunter, Syntetos & Babai 2011.
    """

    declaration = Declaration(
        name="croston",
        summary="demand that is mostly 0: its size by how often it comes (Croston, SBA, TSB)",
        labels=frozenset({NUMBER}),
        output=DemandForecast,
        hyperparameters=(VARIANT, ALPHA, BETA, SEASON_LENGTH, HORIZON),
        form="vectors",
        handles_missing=True,
        takes_series=True,
        one_pass=True,
        refused={"tsb": "write WITH (variant = 'tsb')"},
        cost=SeriesCost(Coefficients(0.0, 2e-6, 0.0, 0.0, 1e-8, 5e-5, 1e-5)),
    )

    def fit(self, config: Config, batch: SeriesBatch, cancelled: Callable[[], bool]) -> FittedSeries:
        """Return the models of all series."""
        del cancelled
        alpha, beta = (cast("float | None", config[each.name]) for each in (ALPHA, BETA))
        found = kernel.fit(
            batch.y, batch.start, cast(int, config[HORIZON.name]), _METHODS[str(config[VARIANT.name])], alpha, beta
        )
        loss = np.nan_to_num(found.sigma2)
        deviation = np.where((found.n_values < 2)[:, None], np.nan, found.deviation)
        note = np.array([FITTED, NO_DEMAND, FEW_DEMANDS], np.int8)[found.note]
        parts = Parts({}, np.column_stack([found.parameters, found.sigma2]), found.final)
        return FittedSeries(found.fitted, found.mean, deviation, loss, found.converged, note=note, parts=parts)

    def continued(self, tensors: Tensors, horizon: int) -> tuple[FloatArray, FloatArray] | None:
        """Return the forecasts, which are the same for all steps."""
        return np.full(horizon, tensors["mean"][-1]), np.full(horizon, known(tensors["deviation"])[-1])

    def distribution(self, x: FloatArray, of: IntArray, models: Mapping[str, Ragged] | Tensors) -> FloatArray:
        """Return the scores with the quantiles that metrics judge, (n, 15)."""
        found = scores_at(x, of, models)
        mean, deviation = found[:, :1], found[:, 1:2]
        return np.concatenate([found, np.maximum(mean + DEVIATIONS * deviation, np.minimum(mean, 0.0))], axis=1)
