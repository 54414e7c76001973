"""The learner ``arima``: differences that depend on earlier ones and on earlier errors, by statsforecast."""

from __future__ import annotations

import importlib
import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.learners.series import methods
from grouplearn.learners.series.batch import FittedSeries, SeriesBatch
from grouplearn.learners.series.exponential_smoothing import CRITERION
from grouplearn.learners.series.series_learner import HORIZON, SEASON_LENGTH, SeriesCost, SeriesLearner
from grouplearn.models.label import NUMBER
from grouplearn.models.outputs.forecast import Forecast

_SOURCE = "Box & Jenkins 1970; Hyndman & Khandakar 2008"


def _order(name: str, what: str, high: int) -> Hyperparameter:
    doc = f"{what}; chosen by default"
    return Hyperparameter(name, "int", None, doc, _SOURCE, low=0, high=high, nullable=True)


_OF_STEPS = (
    _order("p", "how many earlier values count", 10),
    _order("d", "how often differences are taken", 2),
    _order("q", "how many earlier errors count", 10),
)
_OF_SEASONS = (
    _order("seasonal_p", "how many values of earlier seasons count", 5),
    _order("seasonal_d", "how often differences from a season before are taken", 1),
    _order("seasonal_q", "how many errors of earlier seasons count", 5),
)
#: The longest season in steps; longer ones are left out, as a model takes minutes.
LONGEST_SEASON = 100
#: The percentage of a normal distribution within one deviation of its mean.
_ONE_DEVIATION = 100 * math.erf(math.sqrt(0.5))
#: Fewer values than this have their mean as a model.
_FEWEST = 4
#: How statsforecast says that the optimiser ended at its limit of iterations.
_AT_LIMIT = 1
#: What statsforecast warns of is said by ``converged``, and filters of warnings are the whole process's.
_WARNINGS = threading.Lock()


def _library() -> Any:
    return importlib.import_module("statsforecast.arima")


class Arima(SeriesLearner):
    """Differences of the series as sums of earlier ones and of earlier errors: φ(B) Φ(Bᵐ) (1-B)ᵈ (1-Bᵐ)ᴰ y = θ(B) Θ(Bᵐ) ε + c.

    The orders are given, or chosen as ``auto.arima`` of R does: differences by tests, the rest step by step by the criterion,
    approximately for seasons of more than 12 steps and series of more than 150. A missing value is put on the line between its
    neighbours. A series that is constant, that has fewer than four values or that no model fits is its mean. The first d + m·D
    steps have no forecast.
    Source: Box & Jenkins 1970; Hyndman & Khandakar 2008; statsforecast.
    """

    declaration = Declaration(
        name="arima",
        summary="ARIMA with seasons, chosen per series by AICc (statsforecast)",
        labels=frozenset({NUMBER}),
        output=Forecast,
        hyperparameters=(*_OF_STEPS, *_OF_SEASONS, CRITERION, SEASON_LENGTH, HORIZON),
        form="vectors",
        handles_missing=True,
        takes_series=True,
        one_pass=True,
        chooses_method=True,
        requires=Requirement("statsforecast", "grouplearn[forecast]", _library),
        cost=SeriesCost(Coefficients(0.0, 5e-3, 0.0, 0.0, 1e-8, 2e-1, 1e-5)),
    )

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return False: a series takes so long that each is a unit of its own."""
        del problem, configs
        return False

    def conflict(self, config: Config) -> Conflict | None:
        """Return which orders are missing beside those that are given."""
        steps, seasons = _given(config, _OF_STEPS), _given(config, _OF_SEASONS)
        if steps and len(steps) < len(_OF_STEPS):
            return Conflict("p, d and q are given together, or all chosen", tuple(steps))
        if seasons and len(seasons) < len(_OF_SEASONS):
            return Conflict("seasonal_p, seasonal_d and seasonal_q are given together, or all chosen", tuple(seasons))
        if seasons and not steps:
            return Conflict("seasonal orders are given beside p, d and q", tuple(seasons))
        season = config.get(SEASON_LENGTH.name)
        if any(seasons.values()) and isinstance(season, int) and not 1 < season <= LONGEST_SEASON:
            message = f"seasonal orders take seasons of 2 to {LONGEST_SEASON} steps, and season_length is {season}"
            return Conflict(message, tuple(seasons))
        return None

    def fit(self, config: Config, batch: SeriesBatch, cancelled: Callable[[], bool]) -> FittedSeries:
        """Return the models of all series, one after the other."""
        count, horizon = batch.n_series, cast(int, config[HORIZON.name])
        made = [_NONE] * count
        for number in np.flatnonzero(batch.sizes).tolist():
            if cancelled():
                raise Interrupted
            made[number] = _fit(config, batch.y[slice(*batch.start[number : number + 2])], horizon)
        mean, deviation = np.full((2, count, horizon), np.nan)
        for number, each in enumerate(made):
            mean[number], deviation[number] = each.mean, each.deviation
        return FittedSeries(
            np.concatenate([np.empty(0), *(each.fitted for each in made)]),
            mean,
            deviation,
            np.array([each.loss for each in made]),
            np.array([each.converged for each in made], np.bool_),
            [each.method for each in made],
            np.array([each.note for each in made], np.int8),
        )


class _Fitted(NamedTuple):
    """The model of a series; ``loss`` is the negative log likelihood, the others are as in ``FittedSeries``."""

    fitted: FloatArray
    mean: FloatArray | float
    deviation: FloatArray | float
    loss: float
    converged: bool
    method: str
    note: int


#: There is none where there are no values.
_NONE = _Fitted(np.empty(0), math.nan, math.nan, math.nan, False, "", methods.FITTED)


def _given(config: Config, orders: tuple[Hyperparameter, ...]) -> Mapping[str, int]:
    return {each.name: cast(int, config[each.name]) for each in orders if config.get(each.name) is not None}


def _fit(config: Config, y: FloatArray, horizon: int) -> _Fitted:
    known = np.isfinite(y)
    filled = np.interp(np.arange(y.size), np.flatnonzero(known), y[known])
    if np.ptp(filled) == 0 and y.size >= _FEWEST:
        return _Fitted(filled, filled[0], 0.0, 0.0, True, "mean", methods.CONSTANT)
    with _WARNINGS, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        model = _model(config, filled) if known.sum() >= _FEWEST else None
        if model is None:
            mean = float(y[known].mean())
            note = methods.TOO_FEW if known.sum() < _FEWEST else methods.NO_CANDIDATE
            return _Fitted(np.full(y.size, mean), mean, math.nan, 0.0, True, "mean", note)
        ahead = _library().forecast_arima(model, h=horizon, level=(_ONE_DEVIATION,))
        method = str(_library().arima_string(model)).strip()
    fitted = filled - model["residuals"]
    _, _, _, _, period, d, seasonal_d = model["arma"]
    fitted[: d + period * seasonal_d] = np.nan
    deviation = (ahead["upper"] - ahead["lower"]).to_numpy()[:, 0] / 2
    loss = float(np.nan_to_num(-model["loglik"]))
    note = methods.LONG_SEASON if _lacks_season(config, y.size) else methods.FITTED
    return _Fitted(fitted, ahead["mean"], deviation, loss, model["code"] != _AT_LIMIT, method, note)


def _lacks_season(config: Config, steps: int) -> bool:
    """Return whether the orders of seasons would be chosen for a series of so many steps, if seasons were shorter."""
    season = cast(int, config[SEASON_LENGTH.name])
    return not _given(config, _OF_STEPS) and season > LONGEST_SEASON and steps >= 2 * season


def _model(config: Config, y: FloatArray) -> Mapping[str, Any] | None:
    """Return statsforecast's model with the orders that are given or chosen; None if there is none."""
    library, season = _library(), cast(int, config[SEASON_LENGTH.name])
    period = season if season <= LONGEST_SEASON else 1
    steps, seasons = (tuple(_given(config, each).values()) for each in (_OF_STEPS, _OF_SEASONS))
    given = {"order": steps, "seasonal": {"order": seasons or (0, 0, 0), "period": period}}
    if not steps:
        ways: list[tuple[Any, dict[str, Any]]] = [
            (library.auto_arima_f, {"period": period, "ic": str(config[CRITERION.name])})
        ]
    else:
        ways = [(library.Arima, {**given, "method": method}) for method in ("CSS-ML", "ML")]
    for make, options in ways:
        try:
            model: Mapping[str, Any] = make(y, **options)
        except (ArithmeticError, LookupError, ValueError):
            continue  # of little data, or of starting values that are not stationary
        return model
    return None
