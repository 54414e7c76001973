"""Linear models of many groups trained together, and their metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Stack
from grouplearn.kernels import metrics as kernel
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import Drawn, drawn, joined_states
from grouplearn.learners.linear.linear_model import inverse_link, linear_predictor
from grouplearn.models.label import NUMBER, TWO_CLASSES
from grouplearn.models.metrics import metrics
from grouplearn.models.metrics.deviances import row_losses, with_losses


def _lengthened(curve: FloatArray, passes: int) -> FloatArray:
    """Return a curve (n, G, C) padded with NaN to this many passes."""
    return np.concatenate([curve, np.full((passes - len(curve), *curve.shape[1:]), np.nan)])


@dataclass(frozen=True, slots=True)
class SolvedLinear:
    """The finished linear models of a stack: G groups, each with the same C configs; see ``stacks.SolvedStack``.

    ``weights`` (G, C, k, d) and ``intercept`` (G, C, k); ``loss`` (G, C) is the objective there, NaN where a model
    diverged; ``epochs`` (G, C) counts the passes over the rows that each took; ``curve`` (passes, G, C) is the objective
    after each of them, NaN once a model was finished. ``converged`` (G, C) says whether it ended by convergence. ``states``
    (G,) are the sums over their rows, where they are kept.
    """

    weights: FloatArray
    intercept: FloatArray
    loss: FloatArray
    epochs: npt.NDArray[np.int64]
    curve: FloatArray
    converged: npt.NDArray[np.bool_]
    states: Ragged | None = None

    def take(self, groups: npt.NDArray[Any]) -> SolvedLinear:
        """Return the results of some groups, given as a mask or as places in the order wanted."""
        return SolvedLinear(
            self.weights[groups],
            self.intercept[groups],
            self.loss[groups],
            self.epochs[groups],
            self.curve[:, groups],
            self.converged[groups],
            self.states and self.states.take(np.arange(len(self.loss))[groups]),
        )

    @property
    def sound(self) -> npt.NDArray[np.bool_]:
        """Which groups (G,) have only finite models."""
        finite = np.isfinite(self.loss) & np.isfinite(self.weights).all(axis=(2, 3))
        return np.asarray(finite.all(axis=1))

    @property
    def importance(self) -> None:
        """None: weights say it."""

    @property
    def drawn(self) -> Drawn:
        """The objective after each pass."""
        return drawn(self.curve, self.epochs, self.loss)

    def as_multiclass(self) -> SolvedLinear:
        """Return binary models with weights and an intercept for each class, 0 for the first."""
        weights, intercept = (
            np.concatenate([np.zeros_like(each), each], axis=2) for each in (self.weights, self.intercept)
        )
        return replace(self, weights=weights, intercept=intercept)

    def tensors(self) -> dict[str, Ragged]:
        """Return weights and intercepts of each model."""
        groups, configs, outputs, columns = self.weights.shape
        models = groups * configs
        flat = {"weights": self.weights.reshape(models * outputs, columns), "intercept": self.intercept.ravel()}
        return {name: Ragged.of_equal(each, models) for name, each in flat.items()}

    @classmethod
    def of_configs(cls, parts: Mapping[tuple[int, ...], SolvedLinear]) -> SolvedLinear:
        """Return the results of several calls as one; the keys of ``parts`` are the places of each call's configs."""
        if len(parts) == 1:
            return next(iter(parts.values()))
        order = np.argsort([place for places in parts for place in places])
        passes = max(len(part.curve) for part in parts.values())
        curves = [_lengthened(part.curve, passes) for part in parts.values()]

        def placed(name: str) -> npt.NDArray[Any]:
            return np.concatenate([getattr(part, name) for part in parts.values()], axis=1)[:, order]

        return cls(
            placed("weights"),
            placed("intercept"),
            placed("loss"),
            placed("epochs"),
            np.concatenate(curves, axis=2)[:, :, order],
            placed("converged"),
        )

    @classmethod
    def joined(cls, parts: Sequence[SolvedLinear]) -> SolvedLinear:
        """Return the results of several stacks as those of one."""
        if len(parts) == 1:
            return parts[0]
        passes = max(len(part.curve) for part in parts)
        curves = [_lengthened(part.curve, passes) for part in parts]
        return cls(
            np.concatenate([part.weights for part in parts]),
            np.concatenate([part.intercept for part in parts]),
            np.concatenate([part.loss for part in parts]),
            np.concatenate([part.epochs for part in parts]),
            np.concatenate(curves, axis=1),
            np.concatenate([part.converged for part in parts]),
            joined_states([part.states for part in parts]),
        )


def measure(
    learner: Learner,
    problem: Problem,
    stack: Stack,
    models: SolvedLinear,
    wanted: Collection[str],
    part: tuple[npt.NDArray[np.int16], int] | None = None,
) -> dict[str, FloatArray]:
    """Return the ``wanted`` metrics of a linear learner's models on a stack's rows, (G, C) each; equal models get equal bits.

    ``part`` has the part of each row (n,) and the number of parts. Metrics are then (G, parts, C), and ``models`` (G,
    parts, C, ...): the models at place p are measured on the rows of part p. A metric is NaN where it is not defined, as in
    ``metrics.finish``.
    """
    kind = {
        NUMBER: kernel.LOG_VALUES if learner.declaration.log_link else kernel.VALUES,
        TWO_CLASSES: kernel.BINARY,
    }
    found = kernel.of_models(
        kernel.LabelledRows(stack.y, stack.weight, stack.start, part),
        stack.x,
        (models.weights, models.intercept),
        kind.get(problem.label, kernel.CLASSES),
        kernel.ClassCount(problem.n_classes, problem.n_unseen),
        [name for name in wanted if name in kernel.NAMES],
    )
    others = [name for name in wanted if name not in kernel.NAMES]
    return {**found, **_others(learner, problem, stack, models, others, part)} if others else found


def _others(
    learner: Learner,
    problem: Problem,
    stack: Stack,
    models: SolvedLinear,
    names: Sequence[str],
    part: tuple[npt.NDArray[np.int16], int] | None,
) -> dict[str, FloatArray]:
    """Return the metrics that the kernel lacks, as ``measure`` does, group by group."""
    n_parts, losses = 1 if part is None else part[1], row_losses(names, {})
    found = {name: np.full((stack.n_groups, n_parts, models.weights.shape[-3]), np.nan) for name in names}
    for group, place in np.ndindex(stack.n_groups, n_parts):
        rows = np.arange(int(stack.start[group]), int(stack.start[group + 1]))
        rows = rows[(stack.weight[rows] > 0) & (True if part is None else part[0][rows] == place)]
        if not rows.size:
            continue
        model = (group,) if part is None else (group, place)
        predictor = linear_predictor(stack.x[rows], models.weights[model], models.intercept[model])
        scores, y, weight = (
            inverse_link(problem.label, predictor, learner.declaration.log_link),
            stack.y[rows],
            stack.weight[rows],
        )
        sums = metrics.measure(metrics.family_of(problem.label), problem.n_classes, scores, y, weight, problem.n_unseen)
        for name, values in (
            metrics.family_of(problem.label).finish(with_losses(sums, losses, scores, y, weight), *names).items()
        ):
            found[name][group, place] = values
    return {name: values[:, 0] if part is None else values for name, values in found.items()}
