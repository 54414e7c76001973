"""The learner ``deepar``: one recurrent network for many series, which samples their future."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, cast

import numpy as np

from grouplearn.learners.contract.access import AccessPattern
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.control import Diverged, Gang, Stop
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.learners.series.batch import QUANTILES, FittedSeries
from grouplearn.learners.series.deep.forecasting import forecasts
from grouplearn.learners.series.deep.likelihoods import LIKELIHOODS
from grouplearn.learners.series.deep.settings import Settings
from grouplearn.learners.series.deep.training import check_device, trained
from grouplearn.learners.series.deep.windows import PanelTensors
from grouplearn.learners.series.panel import Panel, PanelLearner
from grouplearn.learners.series.series_learner import HORIZON, SEASON_LENGTH, SeriesCost, frequency_of
from grouplearn.models.label import NUMBER
from grouplearn.models.metrics.forecasts import GRID
from grouplearn.models.outputs.forecast import SampledForecast
from grouplearn.models.state import Artifact

_GLUONTS = "GluonTS: DeepAREstimator"
#: By the names of ``Settings``.
_OWN = {
    "likelihood": Hyperparameter(
        "likelihood",
        "str",
        "student_t",
        "the distribution of a value: of numbers with or without outliers, of counts, of 0 and 1",
        f"Salinas et al. 2020, 3.1; {_GLUONTS}(distr_output)",
        choices=tuple(LIKELIHOODS),
    ),
    "context": Hyperparameter(
        "context_length",
        "int",
        None,
        "steps that the network reads before it forecasts; by default as many as the horizon",
        f"{_GLUONTS}(context_length)",
        low=1,
        high=10_000,
        nullable=True,
    ),
    "hidden_units": Hyperparameter(
        "hidden_units", "int", 40, "width of a layer", f"{_GLUONTS}(hidden_size)", low=1, high=4096
    ),
    "layers": Hyperparameter("layers", "int", 2, "layers of the network", f"{_GLUONTS}(num_layers)", low=1, high=16),
    "dropout": Hyperparameter(
        "dropout",
        "float",
        0.1,
        "share of the numbers between two layers that are left out, drawn anew for each batch",
        f"{_GLUONTS}(dropout_rate)",
        low=0.0,
        high=0.9,
    ),
    "learning_rate": Hyperparameter(
        "learning_rate",
        "float",
        1e-3,
        "first step size of Adam, which falls to 0 as a half cosine",
        f"{_GLUONTS}(lr)",
        low=0.0,
        open_low=True,
        remedy="lower",
    ),
    "batch_size": Hyperparameter(
        "batch_size", "int", 32, "windows of a batch", f"{_GLUONTS}(batch_size)", low=1, high=65_536
    ),
    "batches_per_epoch": Hyperparameter(
        "batches_per_epoch",
        "int",
        50,
        "batches of an epoch, whatever the number of series",
        f"{_GLUONTS}(num_batches_per_epoch)",
        low=1,
        high=1_000_000,
    ),
    "n_samples": Hyperparameter(
        "n_samples",
        "int",
        200,
        "paths into the future that are sampled for each series",
        f"{_GLUONTS}(num_parallel_samples)",
        low=2,
        high=100_000,
    ),
    "device": Hyperparameter(
        "device",
        "str",
        "cpu",
        "what the network trains on: cpu is the processor, cuda an NVIDIA graphics card",
        "torch",
        choices=("cpu", "cuda"),
    ),
}


class DeepAr(PanelLearner):
    """Forecasts many series by one recurrent network: h(t) = LSTM(h(t - 1), y at earlier steps, features of t, the series).

    The parameters of the distribution of y(t) are linear in h(t). Training maximises log p over windows of context and
    horizon, drawn in proportion to the sizes of their series; values are divided by the mean absolute value of the context.
    A forecast is what sampled paths make of it: each takes its own samples for the earlier values of later steps.
    Source: Salinas, Flunkert, Gasthaus & Januschowski 2020.
    """

    access: ClassVar[AccessPattern] = replace(PanelLearner.access, gang_waits="batch")
    declaration = Declaration(
        name="deepar",
        summary="one recurrent network for many series, which samples their future",
        labels=frozenset({NUMBER}),
        output=SampledForecast,
        needs_scaling=True,
        hyperparameters=(*_OWN.values(), SEASON_LENGTH, HORIZON),
        default_epochs=20,
        form="vectors",
        handles_missing=True,
        takes_series=True,
        takes_panel=True,
        needs_many_series=True,
        requires=Requirement("torch", "grouplearn[networks]"),
        cost=SeriesCost(Coefficients(0.0, 1e-3, 0.0, 0.0, 1e-8, 10.0, 1e-5)),
    )

    def validation_error(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from those of sampled forecasts."""
        wrong = super().validation_error(problem, artifact)
        if wrong or QUANTILES not in artifact.tensors:
            return wrong or "it has no quantiles"
        each = artifact.tensors[QUANTILES].size == len(GRID) * artifact.tensors["mean"].size
        return None if each else f"it has not {len(GRID)} quantiles of each step"

    def fit(self, problem: Problem, config: Config, panel: Panel, stop: Stop, gang: Gang | None = None) -> FittedSeries:
        """Return the forecasts of all series; raises Diverged for labels that the likelihood does not have."""
        settings = replace(_settings(problem, config, panel.ahead.shape[1]), gang=gang)
        if settings.members > settings.batch_size:
            raise Diverged(
                f"a batch of {settings.batch_size} windows cannot be shared by {settings.members} workers: raise batch_size"
            )
        series = panel.series
        wrong = settings.distribution.label_error(series.y[np.isfinite(series.y)])
        if wrong:
            raise Diverged(wrong)
        check_device(settings.device)
        tensors = PanelTensors(panel, frequency_of(problem), settings)
        losses: list[float] = []
        network = trained(tensors, stop.cancelled, losses.append)
        found = forecasts(network, tensors, stop.cancelled)
        count = series.n_series
        return FittedSeries(
            found.fitted,
            found.mean,
            found.deviation,
            np.full(count, losses[-1]),
            np.ones(count, np.bool_),
            quantiles=found.quantiles,
        )


def _settings(problem: Problem, config: Config, horizon: int) -> Settings:
    given = {name: config[each.name] for name, each in _OWN.items()}
    given["context"] = given["context"] or horizon
    return Settings(
        horizon=horizon,
        season=cast(int, config[SEASON_LENGTH.name]),
        epochs=problem.epochs,
        seed=problem.seed,
        **given,  # type: ignore[arg-type]
    )
