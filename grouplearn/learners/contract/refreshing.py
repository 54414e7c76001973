"""Which learners go on from new rows alone, and from what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.state import Artifact, State

#: What models are refreshed from: sums over rows, weights and their optimizer, or the models themselves.
Source = Literal["sums", "passes", "models"]


@dataclass(frozen=True, slots=True)
class Continuation:
    """How models themselves are trained further: ``way`` is one of the learner's.

    ``rounds`` are those that are added, None for a tenth of the model's; ``decay`` is the share of the values of before.
    """

    way: str
    rounds: int | None = None
    decay: float = 0.9


@runtime_checkable
class ContinuesModels(Protocol):
    """Its finished models can be trained further on new rows."""

    #: The values of WITH (refresh = ...), the default first.
    refresh_ways: ClassVar[tuple[str, ...]]

    def continued(
        self, problem: Problem, configs: Sequence[Config], models: Sequence[Artifact], how: Continuation
    ) -> State:
        """Return the state in which these models, one for each config, begin; raises Diverged if they cannot."""
        ...


@runtime_checkable
class StartsWarm(Protocol):
    """Trains until it has converged, wherever it starts: from a finished model it takes fewer epochs."""

    def starts_warm(self, configs: Sequence[Config]) -> bool:
        """Return whether it does so for these configs."""
        ...

    def warm(self, problem: Problem, configs: Sequence[Config], model: Artifact) -> State | None:
        """Return the state in which configs start from a model; None if it is of another shape."""
        ...


def source_of(learner: Learner) -> Source | None:
    """Return what a learner's models go on from; None if they are trained anew on all rows."""
    if learner.declaration.one_pass:
        return "sums"
    if learner.access.visits and not learner.declaration.takes_series:
        return "passes"
    return "models" if refresh_ways(learner) else None


def refresh_ways(learner: Learner) -> tuple[str, ...]:
    """Return the values of WITH (refresh = ...) that a learner has."""
    return learner.refresh_ways if isinstance(learner, ContinuesModels) else ()
