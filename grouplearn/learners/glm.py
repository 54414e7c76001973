"""Generalised linear models epoch by epoch: all configs of a pack in every pass, by proximal quasi-Newton steps.

One epoch is one pass over the data: the objective and its gradient for the whole pack, each config at its own trial
point (``lbfgs``). The first pass gathers moments instead; from these follow, in closed form, the objective and gradient
at the start (no weights, the mean label as prediction), the centring and scaling of the features inside the solver, and
the first Hessian, which is the variance of the label there times X'X.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Shard, Stack
from grouplearn.kernels import generalised_linear as kernel
from grouplearn.kernels.algebra import times
from grouplearn.learners import lbfgs, linear_model, moments
from grouplearn.learners.base import Config, Interrupted, Problem, Solved, State, Tensors

#: Up to this many parameters per config the first model of the objective has a full Hessian, from X'X.
DENSE_PARAMETERS = 256
_OPTIMISER = (
    "point",
    "target",
    "gradient",
    "composite",
    "length",
    "slope",
    "fall",
    "retries",
    "changes",
    "bends",
)


class Family(Protocol):
    """What tells one generalised linear model from another; arrays may have leading axes."""

    def loss(self, problem: Problem) -> kernel.Loss:
        """Return the loss of rows, as the kernels name it."""
        ...

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return what the first pass averages, (..., n, t); the first K are the labels of the K outputs."""
        ...

    def start(self, problem: Problem, observed: FloatArray, with_intercept: bool) -> FloatArray:
        """Return the prediction (..., K) without weights from the averages of the targets (..., t)."""
        ...

    def scores(self, mean: FloatArray) -> FloatArray:
        """Return the scores that predict ``mean``."""
        ...

    def coupling(self, mean: FloatArray) -> FloatArray:
        """Return the second derivatives of the loss by the scores, (..., K, K), definite."""
        ...

    def mean_loss(self, observed: FloatArray, mean: FloatArray) -> FloatArray:
        """Return the average loss where every row is predicted by ``mean``."""
        ...


def init(problem: Problem, configs: Sequence[Config]) -> State:
    """Return zero weights and an unknown loss."""
    n = len(configs)
    tensors = {
        "weights": np.zeros((n, problem.n_outputs, problem.n_features)),
        "intercept": np.zeros((n, problem.n_outputs)),
        "loss": np.full(n, np.nan),
    }
    return State(tensors, np.zeros(n, dtype=bool))


def accumulate(family: Family, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
    """Return the moments of one block in the first pass.

    Later, of the configs not done (a of them): ``loss`` (a,), ``residual`` Σw·r (a, k) and ``product`` Σw·r·x' (a, k, d)
    with r the derivative of the loss by the score, at each config's trial point.
    """
    if "point" not in state.tensors:
        gram = n_parameters(problem, configs) <= DENSE_PARAMETERS
        return moments.block_moments(block.x, family.targets(problem, block.y), block.weight, gram)
    active = np.flatnonzero(~state.done)
    frame = _Frame.of(problem, configs, state, active)
    trial = lbfgs.trial_points({name: state.tensors[name][active] for name in ("point", "target", "length")})
    weights, intercept, y, weight = map(np.ascontiguousarray, (*frame.as_written(trial), block.y, block.weight))
    if isinstance(block.x, np.ndarray):
        x = np.ascontiguousarray(block.x)
        loss, residual, product = kernel.sums(x, y, weight, family.loss(problem), weights, intercept)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = linear_model.linear_predictor(block.x, weights, intercept)
            loss, residual = kernel.weigh_slopes(slopes, y, weight, family.loss(problem))
            product = np.asarray(block.x.T @ slopes.reshape(block.n_rows, -1)).T.reshape(weights.shape)
    return {"loss": loss, "residual": residual, "product": product}


def merge(left: Tensors, right: Tensors) -> Tensors:
    """Return the sums of both."""
    if "mean" in left:
        return moments.merge_moments(left, right)
    return {name: value + right[name] for name, value in left.items()}


def step(family: Family, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
    """Return the state after one pass: steps accepted or shortened, next trial points chosen.

    Raises Diverged in the first pass when the sums overflow.
    """
    if "point" not in state.tensors:
        moments.require_finite(sums)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if "point" not in state.tensors:
            return _first_step(family, problem, configs, state, sums)
        return _later_step(problem, configs, state, sums)


def solve(
    family: Family,
    problem: Problem,
    configs: Sequence[Config],
    stack: Stack,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> Solved:
    """Return the models of a stack; configs that the solver cannot tell apart (by learning_rate) are solved once.

    Raises Interrupted.
    """
    shape = (stack.n_groups, len(configs))
    solved = Solved(
        np.empty((*shape, problem.n_outputs, problem.n_features)),
        np.empty((*shape, problem.n_outputs)),
        np.empty(shape),
        np.empty(shape, np.int64),
        np.empty((0, *shape)),
        np.empty(shape, np.bool_),
    )
    curve = solved.curve
    with_intercept = linear_model.column(configs, linear_model.FIT_INTERCEPT)
    for fit_intercept in np.unique(with_intercept):
        places = np.flatnonzero(with_intercept == fit_intercept)
        first, of = _distinct([configs[place] for place in places.tolist()])
        chosen = [configs[place] for place in places[first].tolist()]
        try:
            models = kernel.solve(
                stack.x,
                stack.y,
                stack.weight,
                stack.start,
                loss=family.loss(problem),
                outputs=problem.n_outputs,
                fit_intercept=bool(fit_intercept),
                penalties=_penalties(chosen),
                epochs=problem.epochs,
                report=report,
                cancelled=cancelled,
            )
        except kernel.Stopped:
            raise Interrupted from None
        solved.weights[:, places], solved.intercept[:, places] = models.weights[:, of], models.intercept[:, of]
        solved.loss[:, places], solved.epochs[:, places] = models.value[:, of], models.passes[:, of]
        solved.converged[:, places] = models.converged[:, of]
        longer = max(0, len(models.curve) - len(curve))
        curve = np.concatenate([curve, np.full((longer, *shape), np.nan)])
        curve[: len(models.curve), :, places] = models.curve[:, :, of]
    return replace(solved, curve=curve)


def _penalties(configs: Sequence[Config]) -> kernel.Penalties:
    columns = (linear_model.L1, linear_model.GLM_L2, linear_model.TOLERANCE)
    return kernel.Penalties(*(linear_model.column(configs, each) for each in columns))


def _distinct(configs: Sequence[Config]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the configs whose penalties or tolerance no config before has, and for every config which of these it is like."""
    known: dict[tuple[float, ...], int] = {}
    columns = _penalties(configs)
    values = zip(columns.l1.tolist(), columns.l2.tolist(), columns.tolerance.tolist(), strict=True)
    of = np.array([known.setdefault(value, len(known)) for value in values], np.intp)
    return np.unique(of, return_index=True)[1], of


@dataclass(frozen=True, slots=True)
class _Frame:
    """The solver's coordinates: u = (w / inverse, (b + x̄'w) / inverse), one scale per config and coordinate.

    ``inverse`` (c, p) with p = k·d (+ k intercepts) is 0 for a column without information; ``mean`` (c, d) is x̄, or
    zero without an intercept; ``l2`` (c, 1, 1).
    """

    inverse: FloatArray
    mean: FloatArray
    l2: FloatArray
    outputs: int

    @classmethod
    def of(cls, problem: Problem, configs: Sequence[Config], state: State, active: npt.NDArray[np.intp]) -> _Frame:
        l2 = linear_model.column(configs, linear_model.GLM_L2)[active, None, None]
        return cls(state.tensors["inverse"][active], state.tensors["mean"][active], l2, problem.n_outputs)

    @property
    def size(self) -> int:
        """Number of weights of a config, intercepts left out."""
        return self.outputs * int(self.mean.shape[1])

    def as_written(self, point: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weights (c, k, d) and intercept (c, k) on the features as written."""
        scaled = point * self.inverse
        weights = scaled[:, : self.size].reshape(len(point), self.outputs, self.mean.shape[1])
        centred = scaled[:, self.size :] if self.inverse.shape[1] > self.size else np.zeros((len(point), self.outputs))
        return weights, centred - times(weights, self.mean)

    def evaluate(self, point: FloatArray, sums: Tensors) -> tuple[FloatArray, FloatArray]:
        """Return the smooth part of the objective (c,) and its gradient (c, p) from the sums over rows."""
        weights, _ = self.as_written(point)
        smooth = sums["loss"] + 0.5 * (self.l2 * weights**2).sum(axis=(1, 2))
        by_weight = sums["product"] - sums["residual"][:, :, None] * self.mean[:, None, :] + self.l2 * weights
        gradient = np.concatenate([by_weight.reshape(len(point), self.size), sums["residual"]], axis=1)
        return smooth, gradient[:, : self.inverse.shape[1]] * self.inverse


def n_parameters(problem: Problem, configs: Sequence[Config]) -> int:
    """Return the number of weights of a config, intercepts included."""
    return problem.n_outputs * (problem.n_features + int(has_intercept(configs)))


def has_intercept(configs: Sequence[Config]) -> bool:
    """Return whether the models of a pack have an intercept."""
    return bool(linear_model.column(configs[:1], linear_model.FIT_INTERCEPT)[0])


def _first_step(family: Family, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
    """Set up the solver's coordinates and its starting point, where everything follows from the moments."""
    n_configs, with_intercept = len(configs), has_intercept(configs)
    everything = np.arange(n_configs)
    share = family.start(problem, sums["target_mean"], with_intercept)
    about = sums if with_intercept else moments.about_zero(sums)
    varies = moments.inverse_spread(about["square"], about["mean"], about["total"]) > 0

    def by_config(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Repeat what is known of the group for each of its configs."""
        return np.repeat(values[None], n_configs, axis=0)

    shares, totals = by_config(share), by_config(about["total"])
    coupling = family.coupling(shares)
    bend = np.diagonal(coupling, axis1=1, axis2=2)
    l2 = linear_model.column(configs, linear_model.GLM_L2)[:, None, None]
    curvature = bend[:, :, None] * by_config(about["square"])[:, None, :] + l2
    informative = np.broadcast_to(by_config(varies)[:, None, :], curvature.shape)
    inverse = np.where(informative, 1.0 / np.sqrt(np.where(informative, curvature, 1.0)), 0.0).reshape(n_configs, -1)
    point = np.zeros_like(inverse)
    if with_intercept:
        by_intercept = 1.0 / np.sqrt(bend * totals[:, None])
        inverse = np.concatenate([inverse, by_intercept], axis=1)
        point = np.concatenate([point, family.scores(shares) / by_intercept], axis=1)
    tensors = {**state.tensors, "inverse": inverse, "mean": by_config(about["mean"])}
    if "gram" in about:
        tensors["hessian"] = _first_hessian(coupling, by_config(about["gram"]), totals, inverse)
    setup = State(tensors, state.done)
    frame = _Frame.of(problem, configs, setup, everything)
    at_start = {name: by_config(value) for name, value in _sums_at_start(family, sums, share).items()}
    smooth, gradient = frame.evaluate(point, at_start)
    model = _model(configs, setup, frame, everything)
    history = int(linear_model.column(configs[:1], linear_model.HISTORY)[0])
    started = lbfgs.start(point, smooth, gradient, model.penalty, history)
    rates, tolerance = (
        linear_model.column(configs, linear_model.LEARNING_RATE),
        linear_model.column(configs, linear_model.TOLERANCE),
    )
    hopeless = ~(np.isfinite(started["composite"]) & np.isfinite(gradient).all(axis=1))
    going = np.flatnonzero(~hopeless)
    aimed, converged = lbfgs.aim(
        model.take(going), {name: value[going] for name, value in started.items()}, tolerance[going], rates[going]
    )
    done = hopeless.copy()
    done[going] = converged
    return _with(setup, frame, everything, started, done, going, aimed)


def _sums_at_start(family: Family, sums: Tensors, mean: FloatArray) -> Tensors:
    """Return what ``accumulate`` would give with all weights zero and the same ``mean`` in every row, once per group."""
    total, observed = np.asarray(sums["total"]), sums["target_mean"][..., : mean.shape[-1]]
    residual = total[..., None] * (mean - observed)
    # Σw(μ̄ − y)x = x̄·Σw(μ̄ − y) − Σw(x − x̄)(y − ȳ).
    cross = np.swapaxes(sums["cross"], -1, -2)[..., : mean.shape[-1], :]
    product = residual[..., :, None] * sums["mean"][..., None, :] - cross
    return {"loss": total * family.mean_loss(sums["target_mean"], mean), "residual": residual, "product": product}


def _first_hessian(coupling: FloatArray, gram: FloatArray, total: FloatArray, inverse: FloatArray) -> FloatArray:
    """Return the Hessian at the start in the solver's coordinates, coupling ⊗ X'X scaled, (c, p, p)."""
    size = coupling.shape[1] * gram.shape[1]
    hessian = np.zeros((len(inverse), inverse.shape[1], inverse.shape[1]))
    hessian[:, :size, :size] = (coupling[:, :, None, :, None] * gram[:, None, :, None, :]).reshape(
        len(inverse), size, size
    )
    if inverse.shape[1] > size:
        hessian[:, size:, size:] = coupling * total[:, None, None]
    hessian *= inverse[:, :, None] * inverse[:, None, :]
    diagonal = np.arange(inverse.shape[1])
    # Exactly one where the column varies, by the choice of the scale; a constant column needs any positive number.
    hessian[:, diagonal, diagonal] = 1.0
    return hessian


def _model(configs: Sequence[Config], state: State, frame: _Frame, active: npt.NDArray[np.intp]) -> lbfgs.Model:
    """Return the penalty and the Hessian at the start in the solver's coordinates."""
    penalty = linear_model.column(configs, linear_model.L1)[active, None] * frame.inverse
    penalty[:, frame.size :] = 0.0
    hessian = state.tensors["hessian"][active] if "hessian" in state.tensors else None
    return lbfgs.Model(penalty, hessian)


def _later_step(problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
    active = np.flatnonzero(~state.done)
    frame = _Frame.of(problem, configs, state, active)
    solver = {name: state.tensors[name][active] for name in _OPTIMISER}
    smooth, gradient = frame.evaluate(lbfgs.trial_points(solver), sums)
    model = _model(configs, state, frame, active)
    tolerance = linear_model.column(configs, linear_model.TOLERANCE)[active]
    advanced, converged = lbfgs.advance(model, solver, smooth, gradient, tolerance)
    done = state.done.copy()
    done[active] = converged
    return _with(state, frame, active, advanced, done, np.arange(0), {})


def _with(
    state: State,
    frame: _Frame,
    active: npt.NDArray[np.intp],
    solver: Tensors,
    done: npt.NDArray[np.bool_],
    changed: npt.NDArray[np.intp],
    changes: Tensors,
) -> State:
    """Return the state with the solver's tensors of ``active`` written back, and its accepted models as written."""
    tensors = dict(state.tensors)
    for name in _OPTIMISER:
        value = solver[name].copy()
        if name in changes:
            value[changed] = changes[name]
        whole = tensors[name].copy() if name in tensors else np.zeros_like(value)
        whole[active] = value
        tensors[name] = whole
    for name, value in zip(("weights", "intercept"), frame.as_written(solver["point"]), strict=True):
        tensors[name] = tensors[name].copy()
        tensors[name][active] = value
    loss = state.tensors["loss"].copy()
    loss[active] = np.where(np.isfinite(solver["composite"]), solver["composite"], np.nan)
    tensors["loss"] = loss
    return State(tensors, done)
