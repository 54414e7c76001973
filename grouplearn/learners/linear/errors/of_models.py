"""The standard errors of a linear learner's models: of a pack on one group, and of the groups of a stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Shard, Stack
from grouplearn.kernels.linear import moments as kernel
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.standard_errors import (
    NOT_CONVERGED,
    PENALISED,
    REFRESHED,
    SEPARATED,
    WIDE,
    ErrorOptions,
    Estimated,
    without,
)
from grouplearn.learners.linear import linear_model
from grouplearn.learners.linear.errors.estimates import estimates
from grouplearn.learners.linear.errors.sums import LinearErrorSums, ModelSums, Rows, model_sums
from grouplearn.learners.linear.least_squares.moments import at_a_time
from grouplearn.models.losses.loss import Loss
from grouplearn.models.state import State, Tensors

#: Most feature columns: the covariance of more takes longer than training.
_MOST_COLUMNS = 256


@dataclass(frozen=True, slots=True)
class ErrorsOf:
    """Standard errors of models that one ``loss`` of a label trains, as ``options`` say."""

    loss: Loss
    problem: Problem
    options: ErrorOptions
    is_estimate: Callable[[Config], bool]

    @property
    def is_wide(self) -> bool:
        """Whether there are too many feature columns."""
        return self.problem.n_features > _MOST_COLUMNS

    @property
    def columns(self) -> int:
        """The feature columns whose weights are learned: all but an offset."""
        return self.problem.n_features - self.problem.offset

    def _rows(self, of: Shard | Stack, x: npt.NDArray[Any], start: npt.NDArray[np.int64]) -> Rows:
        """Return rows with the offset apart from the features."""
        rows = Rows(x, of.y, of.weight, start, cluster=of.cluster)
        if not self.problem.offset:
            return rows
        return rows._replace(x=np.ascontiguousarray(x[:, :-1]), offset=np.asarray(x[:, -1], np.float64))

    def sums(self, configs: Sequence[Config], state: State, rows: Shard) -> LinearErrorSums | None:
        """Return the sums over rows at the models of a state."""
        places = [place for place, config in enumerate(configs) if self.is_estimate(config)]
        if not places or self.is_wide:
            return None
        x = rows.x if isinstance(rows.x, np.ndarray) else rows.x.toarray()
        own = self._rows(rows, x, np.array([0, rows.n_rows]))
        weights, intercepts = state.tensors["weights"][:, 0, : self.columns], state.tensors["intercept"]
        models = {place: self._at(own, weights[place][None], intercepts[place]) for place in places}
        return LinearErrorSums(np.array([float(rows.n_rows)]), own.moments(own.weight), models)

    def of_pack(self, models: Estimated, sums: LinearErrorSums | None) -> list[FloatArray]:
        """Return what is kept of the errors of each config."""
        found = []
        tensors = models.state.tensors
        for place, config in enumerate(models.configs):
            weights = tensors["weights"][place, 0, : self.columns]
            solved = _Solved(
                np.concatenate([weights, tensors["intercept"][place]])[None],
                np.array([models.objective[place]]),
                np.array([bool(models.converged[place])]),
            )
            before = models.before and {name: np.asarray(each)[None] for name, each in models.before.items()}
            of_config = None if sums is None else sums.models.get(place)
            found.append(self._kept(config, solved, sums, of_config, before)[0])
        return found

    def of_stack(
        self, configs: Sequence[Config], stack: Stack, solved: Any, before: Tensors | None
    ) -> list[FloatArray]:
        """Return what is kept of the errors of each config (C) in each group, (G, ...)."""
        parts: list[list[FloatArray]] = []
        for first, last in _runs(stack.n_groups, self.problem.n_features):
            own = stack.part(first, last)
            rows = self._rows(own, own.x, own.start)
            sums = None
            if not self.is_wide and any(map(self.is_estimate, configs)):
                sums = LinearErrorSums(own.sizes.astype(np.float64), rows.moments(own.weight))
            earlier = before and {name: each[first:last] for name, each in before.items()}
            parts.append(
                [
                    self._of_run(rows, config, _solved(solved, place, slice(first, last), self.columns), sums, earlier)
                    for place, config in enumerate(configs)
                ]
            )
        return [np.concatenate(each) for each in zip(*parts, strict=True)]

    def _of_run(
        self, rows: Rows, config: Config, solved: _Solved, sums: LinearErrorSums | None, before: Tensors | None
    ) -> FloatArray:
        at = None
        if sums is not None and self.is_estimate(config):
            at = self._at(rows, solved.weights[:, :-1], solved.weights[:, -1])
        return self._kept(config, solved, sums, at, before)

    def _at(self, rows: Rows, weights: FloatArray, intercept: FloatArray) -> ModelSums:
        return model_sums(rows, weights, intercept, self.loss, self.problem.label, self.options)

    def _kept(
        self,
        config: Config,
        solved: _Solved,
        sums: LinearErrorSums | None,
        of_model: ModelSums | None,
        before: Tensors | None,
    ) -> FloatArray:
        """Return what is kept of the errors of a config in groups (G, ...)."""
        groups = len(solved.weights)
        if not self.is_estimate(config):
            return without(PENALISED, groups)
        if sums is None or of_model is None:
            return without(WIDE, groups)
        if before is not None:
            if self.options.weighted or self.options.kind != "classical":
                return without(REFRESHED, groups)
            plain = _of_features(before, self.columns)
            sums = replace(sums, rows=sums.rows + before["total"], plain=kernel.merged(plain, sums.plain))
        squares = 2.0 * solved.objective if self.loss.is_quadratic else None
        with_intercept = bool(config.get(linear_model.FIT_INTERCEPT.name, True))
        found = estimates(sums, of_model, solved.weights, squares, with_intercept, self.options)
        found = self._with_offset(found)
        found[~solved.converged, :-1] = np.nan
        found[~solved.converged & (found[:, -1] != SEPARATED), -1] = NOT_CONVERGED
        return found

    def _with_offset(self, found: FloatArray) -> FloatArray:
        """Return errors and p-values with none for the weight of the offset, which is known."""
        if not self.problem.offset:
            return found
        d = self.columns
        return np.insert(found, [d, 2 * d + 1], np.nan, axis=1)


@dataclass(frozen=True, slots=True)
class _Solved:
    """Models of one config in G groups: ``weights`` (G, d + 1), the intercept last, ``objective`` and ``converged`` (G,)."""

    weights: FloatArray
    objective: FloatArray
    converged: npt.NDArray[np.bool_]


def _solved(solved: Any, place: int, groups: slice, columns: int) -> _Solved:
    weights, intercept = solved.weights[groups, place, 0, :columns], solved.intercept[groups, place]
    both = np.concatenate([weights, intercept], axis=1)
    return _Solved(both, solved.loss[groups, place], solved.converged[groups, place])


def _of_features(before: Tensors, columns: int) -> Tensors:
    """Return the moments of the first columns, without targets."""
    found = {name: before[name][..., :columns] for name in ("mean", "square")}
    found |= {"total": before["total"], "gram": before["gram"][..., :columns, :columns]}
    empty = {"target_mean": (0,), "cross": (columns, 0), "target_gram": (0, 0)}
    return found | {name: np.empty((*before["total"].shape, *shape)) for name, shape in empty.items()}


def _runs(groups: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield runs of groups whose matrices fit into the processor's cache."""
    size = at_a_time(columns)
    yield from ((first, min(first + size, groups)) for first in range(0, groups, size))
