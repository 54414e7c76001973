"""How a boosting learner trains many small groups in one call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from grouplearn.data.ragged import Ragged
from grouplearn.data.shard import Stack
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.state import FloatArray
from grouplearn.learners.contract.ways import SamplingLearner


class HeldOut(NamedTuple):
    """The held-out rows of a stack's groups, None if there are none, and the metric of their curves."""

    rows: Stack | None
    metric: str


class SolvedStack(Protocol):
    """The finished models of a stack: G groups, each with the same C configs, whose artifacts are texts."""

    @property
    def texts(self) -> Ragged:
        """The texts (G·C) as uint8, those of all configs of the first group first."""
        ...

    @property
    def gain(self) -> FloatArray:
        """The importance (G, C, d) of feature columns."""
        ...

    @property
    def epochs(self) -> npt.NDArray[np.int64]:
        """The rounds (G, C) of each model."""
        ...

    @property
    def points(self) -> npt.NDArray[np.int64]:
        """How many rounds (G, C) were scored on held-out rows."""
        ...

    @property
    def judged(self) -> FloatArray:
        """The metric of held-out rows (rounds, G, C) after each round."""
        ...

    @property
    def sound(self) -> npt.NDArray[np.bool_]:
        """Which groups (G,) have all their models; the others train alone, and say why."""
        ...

    def take(self, groups: npt.NDArray[Any]) -> Self:
        """Return the results of some groups, chosen or in that order."""
        ...


@runtime_checkable
class BoostedStackLearner(SamplingLearner, Protocol):
    """Boosts every config on every group of a stack in one call, each with the same bits as alone."""

    stacks: ClassVar[bool] = True
    draws: ClassVar[bool] = True

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return whether small groups of these configs may train together."""
        ...

    def boost_together(
        self,
        problem: Problem,
        configs: Sequence[Config],
        train: Stack,
        held_out: HeldOut,
        cancelled: Callable[[], bool],
    ) -> SolvedStack:
        """Return what ``boost`` makes of each group of ``train``, whose ``problem`` differs in its seed alone.

        Groups with anything unusual are not ``sound``. Raises Interrupted soon after ``cancelled()`` became true, and Diverged
        where no group can be trained.
        """
        ...

    def measure(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: Any, wanted: Collection[str]
    ) -> Mapping[str, FloatArray]:
        """Return the ``wanted`` metrics, (G, C) each, of what ``boost_together`` returned on rows of the same groups."""
        ...
