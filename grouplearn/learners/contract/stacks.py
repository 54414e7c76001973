"""Learners that train many small groups in one call, and the models that they return."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Stack
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner, SamplingLearner
from grouplearn.models.state import FloatArray, Tensors


class SolvedStack(Protocol):
    """The finished models of a stack: G groups, each with the same C configs."""

    @property
    def epochs(self) -> npt.NDArray[np.int64]:
        """The passes over the rows, or rounds of boosting, (G, C) of each model."""
        ...

    @property
    def sound(self) -> npt.NDArray[np.bool_]:
        """Which groups (G,) have all their models; the others train alone, and say why."""
        ...

    def take(self, groups: npt.NDArray[Any]) -> Self:
        """Return the results of some groups, by mask or in this order."""
        ...


class GatheringLearner(Learner, Protocol):
    """Trains every config on every group of a stack in one call."""

    stacks: ClassVar[bool] = True

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return whether small groups of these configs may train together."""
        ...

    def measure(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: Any, wanted: Collection[str]
    ) -> Mapping[str, FloatArray]:
        """Return the ``wanted`` metrics, (G, C) each, of this learner's solved models on rows of the same groups.

        A metric is NaN where it is not defined, as in ``metrics.finish``.
        """
        ...


@runtime_checkable
class Solved(SolvedStack, Protocol):
    """Models trained by sums over rows, whose artifacts are tensors."""

    @property
    def loss(self) -> FloatArray:
        """The objective (G, C) of each model, NaN if there is none."""
        ...

    @property
    def curve(self) -> FloatArray:
        """The objective (passes, G, C) after each pass, NaN once a model is finished."""
        ...

    @property
    def converged(self) -> npt.NDArray[np.bool_]:
        """Which models (G, C) have converged."""
        ...

    def as_multiclass(self) -> Self:
        """Return models of two classes converted by ``Learner.as_multiclass``."""
        ...

    def tensors(self) -> Mapping[str, Ragged]:
        """Return the artifacts' tensors by name, (G·C, ...), those of the first group's configs first."""
        ...


@runtime_checkable
class StackLearner(GatheringLearner, AlgebraicLearner, Protocol):
    """Solves a stack from sums over its rows, instead of epoch by epoch."""

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> Solved:
        """Return the models of ``configs`` for each group of ``stack``.

        ``problem`` is one group's; all have equal (n_features, n_classes). A model does not depend on the other groups
        beyond rounding. ``report(n)`` is called for n further epochs, counted per model. Raises Interrupted soon after
        ``cancelled()`` became true, and ValueError for labels that the learner cannot take.
        """
        ...


@runtime_checkable
class MomentsLearner(StackLearner, Protocol):
    """Needs only moments of rows, so that folds need no further pass."""

    has_moments: ClassVar[bool] = True

    def unclear(self, configs: Sequence[Config], sums: Tensors, stack: Stack) -> npt.NDArray[np.bool_]:
        """Return which groups of a stack (G,) must train alone, as their ``sums`` have lost precision."""
        ...

    def solve_moments(self, problem: Problem, configs: Sequence[Config], sums: Tensors) -> Solved:
        """Return the models from moments, whose leading axes, any number, replace G in the result.

        For G groups with F folds, ``moments.fold_moments`` (G, F, ...) gives ``moments.leave_one_out`` (G, F + 1, ...), and
        ``weights`` are (G, F + 1, C, k, d): from every fold's training rows, and last from all rows. Moments that are not
        finite or have no rows give NaN.
        """
        ...


class HeldOut(NamedTuple):
    """The held-out rows of a stack's groups, None if there are none, and the metric of their curves."""

    rows: Stack | None
    metric: str


class BoostedStack(SolvedStack, Protocol):
    """Boosted models, whose artifacts are texts."""

    @property
    def texts(self) -> Ragged:
        """The texts (G·C) as uint8, those of all configs of the first group first."""
        ...

    @property
    def gain(self) -> FloatArray:
        """The importance (G, C, d) of feature columns."""
        ...

    @property
    def points(self) -> npt.NDArray[np.int64]:
        """How many rounds (G, C) were scored on held-out rows."""
        ...

    @property
    def judged(self) -> FloatArray:
        """The metric of held-out rows (rounds, G, C) after each round."""
        ...


@runtime_checkable
class BoostedStackLearner(GatheringLearner, SamplingLearner, Protocol):
    """Boosts a stack, each model with the same bits as alone."""

    def boost_together(
        self,
        problem: Problem,
        configs: Sequence[Config],
        train: Stack,
        held_out: HeldOut,
        cancelled: Callable[[], bool],
    ) -> BoostedStack:
        """Return what ``boost`` makes of each group of ``train``, whose ``problem`` differs in its seed alone.

        Groups with anything unusual are not ``sound``. Raises Interrupted soon after ``cancelled()`` became true, and Diverged
        where no group can be trained.
        """
        ...
