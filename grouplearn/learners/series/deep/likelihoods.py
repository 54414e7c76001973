"""The distributions of a value given the output of a network: densities, means and samples.

``raw`` (..., n_raw) is what the network gives; ``scale`` (...) is ν, the size of the series around that value.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners.neural.network_module import torch_on_one_thread

#: The least spread of a distribution, as a share of the scale.
_LEAST = 1e-6


class Likelihood(ABC):
    """A distribution: its parameters from the output of a network, its log density, its mean, and samples."""

    name: ClassVar[str]
    #: The numbers per value that a network gives.
    n_raw: ClassVar[int] = 2
    #: Whether values are divided by their scale on their way into the network.
    is_scaled: ClassVar[bool] = True

    @abstractmethod
    def parameters(self, raw: Any, scale: Any) -> tuple[Any, ...]:
        """Return the parameters of the distribution in the units of the label, tensors (...)."""

    @abstractmethod
    def log_density(self, y: Any, *parameters: Any) -> Any:
        """Return log p(y)."""

    def mean(self, *parameters: Any) -> Any:
        """Return the mean, by default the first parameter."""
        return parameters[0]

    @abstractmethod
    def sample(self, random: np.random.Generator, *parameters: FloatArray) -> FloatArray:
        """Return one value for each place of the parameters."""

    def label_error(self, y: FloatArray) -> str | None:
        """Return why labels are none of this distribution."""
        del y
        return None


class Gaussian(Likelihood):
    """A normal distribution: μ = ν·a, σ = ν·log(1 + eᵇ)."""

    name = "gaussian"

    def parameters(self, raw: Any, scale: Any) -> tuple[Any, ...]:
        """Return μ and σ."""
        return raw[..., 0] * scale, (_softplus(raw[..., 1]) + _LEAST) * scale

    def log_density(self, y: Any, *parameters: Any) -> Any:
        """Return -½((y - μ)/σ)² - log σ - ½log 2π."""
        mean, deviation = parameters
        return -0.5 * ((y - mean) / deviation) ** 2 - deviation.log() - 0.5 * math.log(2 * math.pi)

    def sample(self, random: np.random.Generator, *parameters: FloatArray) -> FloatArray:
        """Return normal values."""
        mean, deviation = parameters
        return mean + deviation * random.standard_normal(mean.shape)


class StudentT(Likelihood):
    """Student's t distribution, whose tails are heavier: μ = ν·a, σ = ν·log(1 + eᵇ), degrees of freedom 2 + log(1 + eᶜ)."""

    name = "student_t"
    n_raw = 3

    def parameters(self, raw: Any, scale: Any) -> tuple[Any, ...]:
        """Return μ, σ and the degrees of freedom d."""
        return raw[..., 0] * scale, (_softplus(raw[..., 1]) + _LEAST) * scale, 2 + _softplus(raw[..., 2])

    def log_density(self, y: Any, *parameters: Any) -> Any:
        """Return log Γ((d + 1)/2) - log Γ(d/2) - ½log dπ - log σ - (d + 1)/2·log(1 + z²/d), where z = (y - μ)/σ."""
        mean, spread, freedom = parameters
        square = ((y - mean) / spread) ** 2
        constant = ((freedom + 1) / 2).lgamma() - (freedom / 2).lgamma() - 0.5 * (freedom * math.pi).log()
        return constant - spread.log() - (freedom + 1) / 2 * (square / freedom).log1p()

    def sample(self, random: np.random.Generator, *parameters: FloatArray) -> FloatArray:
        """Return values of Student's t distribution."""
        mean, spread, freedom = parameters
        return mean + spread * random.standard_t(freedom)


class NegativeBinomial(Likelihood):
    """Counts with the mean μ = ν·log(1 + eᵃ) and the variance μ + αμ², where α = log(1 + eᵇ)/√ν."""

    name = "negative_binomial"

    def parameters(self, raw: Any, scale: Any) -> tuple[Any, ...]:
        """Return μ and α in double precision: they go into differences of large numbers."""
        raw, scale = raw.double(), scale.double()
        mean = (_softplus(raw[..., 0]) + _LEAST) * scale
        return mean, (_softplus(raw[..., 1]) + _LEAST) / scale.sqrt()

    def log_density(self, y: Any, *parameters: Any) -> Any:
        """Return log Γ(y + r) - log Γ(y + 1) - log Γ(r) - r·log(1 + αμ) + y·log(αμ/(1 + αμ)), where r = 1/α."""
        mean, alpha = parameters
        y, size, odds = y.double(), 1 / alpha, alpha * mean
        constant = (y + size).lgamma() - (y + 1).lgamma() - size.lgamma()
        return constant - (size + y) * odds.log1p() + y * odds.log()

    def sample(self, random: np.random.Generator, *parameters: FloatArray) -> FloatArray:
        """Return counts."""
        mean, alpha = parameters
        return random.negative_binomial(1 / alpha, 1 / (1 + alpha * mean)).astype(np.float64)

    def label_error(self, y: FloatArray) -> str | None:
        """Return that labels are not counts."""
        if ((y >= 0) & (y == np.floor(y))).all():
            return None
        return "likelihood = 'negative_binomial' learns counts, and a label is not a whole number of 0 or more"


class Bernoulli(Likelihood):
    """Of 0 and 1 the probability of 1, 1/(1 + e⁻ᵃ)."""

    name = "bernoulli"
    n_raw = 1
    is_scaled = False

    def parameters(self, raw: Any, scale: Any) -> tuple[Any, ...]:
        """Return the logit, also as the only one of the parameters."""
        del scale
        return (raw[..., 0],)

    def log_density(self, y: Any, *parameters: Any) -> Any:
        """Return y·a - log(1 + eᵃ)."""
        (logit,) = parameters
        return y * logit - _softplus(logit)

    def mean(self, *parameters: Any) -> Any:
        """Return the probability of 1."""
        return parameters[0].sigmoid()

    def sample(self, random: np.random.Generator, *parameters: FloatArray) -> FloatArray:
        """Return zeros and ones."""
        (logit,) = parameters
        return (random.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(np.float64)

    def label_error(self, y: FloatArray) -> str | None:
        """Return that labels are neither 0 nor 1."""
        return None if np.isin(y, (0, 1)).all() else "likelihood = 'bernoulli' learns 0 and 1, and a label is neither"


def _softplus(x: Any) -> Any:
    return torch_on_one_thread().nn.functional.softplus(x)


LIKELIHOODS: Mapping[str, Likelihood] = MappingProxyType(
    {each.name: each for each in (StudentT(), Gaussian(), NegativeBinomial(), Bernoulli())}
)
