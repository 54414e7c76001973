"""Learners that train many small groups in one call, and the models that they return."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Stack
from grouplearn.data.tensors import tensor_rows
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner, SamplingLearner
from grouplearn.models.state import FloatArray, Tensors


class Drawn(NamedTuple):
    """The curves of G·C models: the ``losses`` and the metric on held-out rows (``judged``), NaN where there is none, of
    ``lengths`` (G, C) epochs, model after model."""

    lengths: npt.NDArray[np.int64]
    losses: FloatArray
    judged: FloatArray


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

    @property
    def converged(self) -> npt.NDArray[np.bool_] | None:
        """Which models (G, C) have converged; None if the learner does not say."""
        ...

    @property
    def importance(self) -> Ragged | None:
        """The importance of each model's feature columns (G·C), if the learner gives any."""
        ...

    @property
    def drawn(self) -> Drawn:
        """The curves of the models."""
        ...

    def take(self, groups: npt.NDArray[Any]) -> Self:
        """Return the results of some groups, by mask or in this order."""
        ...

    def as_multiclass(self) -> Self:
        """Return models of two classes converted by ``Learner.as_multiclass``."""
        ...

    def tensors(self) -> Mapping[str, Ragged]:
        """Return the artifacts' tensors by name, (G·C, ...), those of the first group's configs first; texts as ``TEXT``."""
        ...


class SummedStack(SolvedStack, Protocol):
    """The finished models of a learner of one pass."""

    @property
    def states(self) -> Ragged | None:
        """The sums over each group's rows as a safetensors file, (G,), if the stack ``keeps_sums``."""
        ...


def states_of(sums: Tensors) -> Ragged:
    """Return sums of groups (G, ...) by name as a safetensors file for each."""
    rows = tensor_rows(sums)
    return Ragged.of_equal(rows.reshape(-1), len(rows))


def joined_states(parts: Sequence[Ragged | None]) -> Ragged | None:
    """Return the states of all parts' groups, None if they are not kept."""
    known = [part for part in parts if part is not None]
    return Ragged.joined(known) if known else None


def drawn(curve: FloatArray, epochs: npt.NDArray[np.int64], loss: FloatArray) -> Drawn:
    """Return curves (passes, G, C) of so many ``epochs`` (G, C), which end with the finished model's ``loss`` (G, C)."""
    whole = np.ascontiguousarray(curve.transpose(1, 2, 0))
    np.put_along_axis(whole, (epochs - 1)[:, :, None], loss[:, :, None], axis=2)
    losses = whole[np.arange(whole.shape[2]) < epochs[:, :, None]]
    return Drawn(epochs, losses, np.full(losses.size, np.nan))


class GatheringLearner(Learner, Protocol):
    """Trains every config on every group of a stack in one call."""

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
class StackLearner(GatheringLearner, AlgebraicLearner, Protocol):
    """Solves a stack from sums over its rows, instead of epoch by epoch."""

    @property
    def prefers_sparse(self) -> bool:
        """Whether it takes CSR: sums of few values are faster."""
        return self.declaration.handles_sparse

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> SolvedStack:
        """Return the models of ``configs`` for each group of ``stack``.

        ``problem`` is one group's; all have equal (n_features, n_classes). A model does not depend on the other groups
        beyond rounding. ``report(n)`` is called for n further epochs, counted per model. Raises Interrupted soon after
        ``cancelled()`` became true, and ValueError for labels that the learner cannot take.
        """
        ...


@runtime_checkable
class MomentsLearner(StackLearner, Protocol):
    """Needs only moments of rows, so that folds need no further pass."""

    def unclear(self, configs: Sequence[Config], sums: Tensors, stack: Stack) -> npt.NDArray[np.bool_]:
        """Return which groups of a stack (G,) must train alone, as their ``sums`` have lost precision."""
        ...

    def solve_moments(self, problem: Problem, configs: Sequence[Config], sums: Tensors) -> SolvedStack:
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
    ) -> SolvedStack:
        """Return what ``boost`` makes of each group of ``train``, whose ``problem`` differs in its seed alone.

        Groups with anything unusual are not ``sound``. Raises Interrupted soon after ``cancelled()`` became true, and Diverged
        where no group can be trained.
        """
        ...
