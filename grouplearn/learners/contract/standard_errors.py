"""Standard errors of a model's weights: how they are asked for, what a learner supplies, and why there may be none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Shard, Stack
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.state import FloatArray, State, Tensors

#: What ``WITH (standard_errors = ...)`` takes.
KINDS = ("classical", "hc1", "cluster", "none")
#: The tensor of a finished model that has them: see ``packed``.
ERRORS = "errors"
#: Why a model has none, by number; 0 says that it has some, and those that are missing are of redundant features.
REASONS = (
    "",
    "penalised: l1 or l2 is above 0, or pooling shrinks it",
    "not converged",
    "no more rows than weights",
    "more than 256 feature columns",
    "refreshed without the rows of before",
    "separated: the features tell some labels without error, and the best weights are infinite",
    "one cluster: its rows cannot be compared with others",
)
PENALISED, NOT_CONVERGED, FEW_ROWS, WIDE, REFRESHED, SEPARATED, ONE_CLUSTER = range(1, len(REASONS))
#: Why a weight of a model with standard errors has none.
REDUNDANT = "redundant: other features determine it"


@dataclass(frozen=True, slots=True)
class ErrorOptions:
    """Which standard errors are wanted, and the confidence of intervals; ``weighted``: rows have weights."""

    kind: str
    confidence: float = 0.95
    weighted: bool = False


class ErrorSums(Protocol):
    """Sums over rows at finished models."""

    @property
    def nbytes(self) -> int:
        """Bytes of the sums."""
        ...

    def merged(self, other: Self) -> Self:
        """Return the sums over the rows of both."""
        ...


@dataclass(frozen=True, slots=True)
class Estimated:
    """The models of a pack on one group: which configs have ``converged``, and the ``objective`` (C,) of each.

    ``before`` are the sums over earlier rows of a learner of one pass, to which those of the rows are added.
    """

    configs: Sequence[Config]
    converged: Sequence[bool | None]
    objective: FloatArray
    state: State
    before: Tensors | None = None


class HasStandardErrors(Protocol):
    """Its weights are maximum likelihood estimates where they are not penalised; ``Declaration.has_standard_errors``."""

    def is_estimate(self, config: Config) -> bool:
        """Return whether the weights of a config are not penalised."""
        ...

    def error_sums(
        self, problem: Problem, configs: Sequence[Config], state: State, rows: Shard, options: ErrorOptions
    ) -> ErrorSums | None:
        """Return the sums over rows at the models of a state; None if no config has standard errors."""
        ...

    def errors(self, problem: Problem, models: Estimated, sums: Any, options: ErrorOptions) -> list[FloatArray]:
        """Return what is kept of each config's errors, see ``packed``, from the sums over all rows, None if there are none."""
        ...

    def stack_errors(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: Any, options: ErrorOptions
    ) -> list[FloatArray]:
        """Return what is kept of the errors of each config (C) in the groups of a stack, (G, ...) each."""
        ...


def packed(errors: FloatArray, p_values: FloatArray, critical: FloatArray, reason: npt.NDArray[Any]) -> FloatArray:
    """Return errors and p-values (..., m) of weights and intercept, critical values and reasons (...) in a row (..., 2·m + 2)."""
    return np.concatenate([errors, p_values, critical[..., None], reason[..., None].astype(np.float64)], axis=-1)


def are_packed(kept: npt.NDArray[Any]) -> bool:
    """Return whether an array is what ``packed`` or ``without`` makes."""
    sized = kept.dtype == np.float64 and kept.ndim == 1 and (kept.size == 1 or (kept.size > 2 and kept.size % 2 == 0))
    return sized and kept[-1] in range(len(REASONS))


def without(reason: int, groups: int | None = None) -> FloatArray:
    """Return what is kept of models that have none: the number of the reason, (1,), or (G, 1)."""
    return np.full(1 if groups is None else (groups, 1), float(reason))
