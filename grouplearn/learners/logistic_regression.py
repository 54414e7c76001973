"""Binary and multinomial logistic regression with L1 and L2 penalties, all configs of a pack in every pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.special

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.learners import epochwise, lbfgs, linear_model, log_loss, moments, packed
from grouplearn.learners.base import (
    Access,
    Artifact,
    Config,
    Hyperparameter,
    Problem,
    Solved,
    State,
    Task,
    Tensors,
    Value,
)
from grouplearn.learners.lanes import Watch
from grouplearn.learners.row_loss import Binary, Multinomial

LEARNING_RATE = Hyperparameter(
    "learning_rate",
    "float",
    1.0,
    "length of the first trial step, in units of the first model's minimum; the converged model does not depend on it",
    "kingpin table 3",
    low=0.0,
    open_low=True,
)
L2 = Hyperparameter("l2", "float", 1.0, "weight of the penalty ½·l2·‖w‖²", "scikit-learn: C = 1/l2", low=0.0)
HISTORY = Hyperparameter(
    "history", "int", 10, "number of past steps kept by L-BFGS", "kingpin section 5", low=1.0, high=100.0
)
TOLERANCE = Hyperparameter(
    "tolerance",
    "float",
    1e-8,
    "fall of the objective that the next step must promise, relative to the objective, for training to go on",
    "Nocedal & Wright 2006, section 7.2",
    low=0.0,
    open_low=True,
)
#: Up to this many parameters per config the first model of the objective has a full Hessian, from X'X.
DENSE_PARAMETERS = 256
#: Class shares are kept this far from 0 and 1 where they set the starting point.
_SMALLEST_SHARE = 1e-6
#: Adding the same to the scores of all classes changes nothing: below 1, so that the first Hessian is definite there.
_COUPLING = 0.9999
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


class LogisticRegression:
    """Minimises Σ wᵢ·log-loss(yᵢ, p(xᵢ'w + b)) + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b): sigmoid, or softmax with K outputs.

    One epoch is one pass over the data: an evaluation of the objective and its gradient for the whole pack, each
    config at its own trial point (``lbfgs``). The first pass gathers moments instead; from these follow, in closed
    form, the objective and gradient at the start (no weights, class shares as intercept), the centring and scaling
    of the features inside the solver, and the first Hessian p̄(1 − p̄)·X'X. Penalties and the reported weights are on
    the features as written. scikit-learn: LogisticRegression(C=1/l2), or penalty l1 with C=1/l1.
    """

    name: ClassVar[str] = "logistic_regression"
    summary: ClassVar[str] = "binary and multinomial logistic regression by L-BFGS, proximal for L1"
    access: ClassVar[Access] = Access.ALGEBRAIC
    tasks: ClassVar[frozenset[Task]] = frozenset({Task.BINARY, Task.MULTICLASS})
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        LEARNING_RATE,
        linear_model.L1,
        L2,
        HISTORY,
        TOLERANCE,
        linear_model.FIT_INTERCEPT,
    )
    default_epochs: ClassVar[int | None] = 100
    linear: ClassVar[bool] = True
    handles_missing: ClassVar[bool] = False
    handles_sparse: ClassVar[bool] = True
    requires: ClassVar[tuple[str, str] | None] = None

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return (history, fit_intercept): these set the shape of the state."""
        return tuple(config.get(each.name, each.default) for each in (HISTORY, linear_model.FIT_INTERCEPT))

    def conflict(self, config: Config) -> str | None:
        """Return None: no values contradict each other."""
        del config
        return None

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return zero weights and an unknown loss."""
        n = len(configs)
        tensors = {
            "weights": np.zeros((n, problem.n_outputs, problem.n_features)),
            "intercept": np.zeros((n, problem.n_outputs)),
            "loss": np.full(n, np.nan),
        }
        return State(tensors, np.zeros(n, dtype=bool))

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Small groups train together while the solver keeps a full Hessian per config."""
        return _parameters(problem, configs) <= DENSE_PARAMETERS

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard | Stack) -> Tensors:
        """Return the moments of one block in the first pass.

        Later, of the configs not done (a of them): ``loss`` Σw·log-loss (a,), ``residual`` Σw(p − y) (a, k) and
        ``product`` Σw(p − y)x' (a, k, d), at each config's trial point. The rows of a state that trains a stack are
        (group, config), groups outermost.
        """
        if "point" not in state.tensors:
            indicators = _indicators(problem, block.y)
            if isinstance(block, Stack):
                return moments.stack_moments(block.x, indicators, block.weight)
            gram = _parameters(problem, configs) <= DENSE_PARAMETERS
            return moments.block_moments(block.x, indicators, block.weight, gram)
        active = np.flatnonzero(~state.done)
        if isinstance(block, Stack):
            return _stack_sums(problem, configs, state, block, active)
        frame = _Frame.of(problem, configs, state, active)
        trial = lbfgs.trial_points({name: state.tensors[name][active] for name in ("point", "target", "length")})
        weights, intercept = frame.as_written(trial)
        with np.errstate(over="ignore", invalid="ignore"):
            predictor = linear_model.linear_predictor(block.x, weights, intercept)
            loss, residual = log_loss.weighted(problem.task, predictor, block.y, block.weight)
            product = np.asarray(block.x.T @ residual.reshape(block.n_rows, -1)).T.reshape(weights.shape)
        return {"loss": loss, "residual": residual.sum(axis=0), "product": product}

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both."""
        if "mean" in left:
            return moments.merge_moments(left, right)
        return {name: value + right[name] for name, value in left.items()}

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the state after one pass: steps accepted or shortened, next trial points chosen.

        Raises Diverged in the first pass when the sums overflow.
        """
        if "point" not in state.tensors:
            moments.require_finite(sums)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if "point" not in state.tensors:
                return _first_step(problem, configs, state, sums)
            return _later_step(problem, configs, state, sums)

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> Solved:
        """Return the models of every config on every group of a stack; see ``base.StackLearner``.

        Configs without l1 train in ``packed``, where ``learning_rate`` plays no part, the others epoch by epoch.
        """
        watch = Watch(report, cancelled)
        smooth = linear_model.column(configs, linear_model.L1) == 0
        parts, places = [], []
        for chosen, solve in ((smooth, _solve_smooth), (~smooth, epochwise.solve_alike)):
            place = np.flatnonzero(chosen)
            if place.size:
                parts.append(solve(self, problem, [configs[int(i)] for i in place], stack, watch))
                places.append(place)
        return epochwise.over_configs(parts, places)

    def losses(self, state: State) -> FloatArray:
        """Return the objective per config at the accepted parameters."""
        loss: FloatArray = state.tensors["loss"]
        return loss

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return probabilities at the accepted parameters, shape (n, n_configs, n_outputs)."""
        del configs
        predictor = linear_model.linear_predictor(x, state.tensors["weights"], state.tensors["intercept"])
        return linear_model.inverse_link(problem.task, predictor)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weights`` (k, d) and ``intercept`` (k,) of config ``index`` at its last accepted point."""
        del problem, configs
        return linear_model.artifact_of(state, index)

    def score(self, task: Task, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the probabilities of a finished model, shape (n, n_outputs)."""
        return linear_model.score_artifact(task, artifact, x)

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return Σ over outputs of |w| per feature."""
        del n_features
        return linear_model.absolute_weights(artifact)


def _solve_smooth(
    learner: LogisticRegression, problem: Problem, configs: Sequence[Config], stack: Stack, watch: Watch
) -> Solved:
    settings = packed.Settings(
        l2=linear_model.column(configs, L2),
        tolerance=linear_model.column(configs, TOLERANCE),
        fit_intercept=_has_intercept(configs),
        epochs=problem.epochs,
        history=int(linear_model.column(configs[:1], HISTORY)[0]),
    )
    return packed.solve_safely(learner, problem, configs, stack, settings, _family, watch)


def _family(problem: Problem, stack: Stack, fit_intercept: bool) -> packed.Family:
    """Return the log-loss of a stack: its start has the class shares as probabilities."""
    outputs, binary = problem.n_outputs, problem.task is Task.BINARY
    label = _indicators(problem, stack.y).transpose(0, 2, 1)
    share = (label @ stack.weight[:, :, None])[:, :, 0] / stack.weight.sum(axis=1)[:, None]
    if not fit_intercept:
        share = np.full(share.shape, 1.0 / max(2, outputs))
    share = np.clip(share, _SMALLEST_SHARE, 1.0 - _SMALLEST_SHARE)
    if binary:
        return packed.Family(Binary(), scipy.special.logit(share), (share * (1.0 - share))[:, :, None], label)
    share /= share.sum(axis=1, keepdims=True)
    coupling = -share[:, :, None] * share[:, None, :]
    place = np.arange(outputs)
    coupling[:, place, place] += share
    return packed.Family(Multinomial(), np.log(share), coupling, label)


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
        l2 = linear_model.column(configs, L2)[active, None, None]
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
        return weights, centred - (weights @ self.mean[:, :, None])[:, :, 0]

    def evaluate(self, point: FloatArray, sums: Tensors) -> tuple[FloatArray, FloatArray]:
        """Return the smooth part of the objective (c,) and its gradient (c, p) from the sums over rows."""
        weights, _ = self.as_written(point)
        smooth = sums["loss"] + 0.5 * (self.l2 * weights**2).sum(axis=(1, 2))
        by_weight = sums["product"] - sums["residual"][:, :, None] * self.mean[:, None, :] + self.l2 * weights
        gradient = np.concatenate([by_weight.reshape(len(point), self.size), sums["residual"]], axis=1)
        return smooth, gradient[:, : self.inverse.shape[1]] * self.inverse


def _parameters(problem: Problem, configs: Sequence[Config]) -> int:
    return problem.n_outputs * (problem.n_features + int(_has_intercept(configs)))


def _has_intercept(configs: Sequence[Config]) -> bool:
    return bool(linear_model.column(configs[:1], linear_model.FIT_INTERCEPT)[0])


def _indicators(problem: Problem, y: FloatArray) -> FloatArray:
    """Return y (..., n) as one column (binary), or one 0/1 column per class: (..., n, k)."""
    if problem.task is Task.BINARY:
        return y[..., None]
    indicators: FloatArray = (y[..., None] == np.arange(problem.n_classes)).astype(np.float64)
    return indicators


def _stack_sums(
    problem: Problem, configs: Sequence[Config], state: State, stack: Stack, active: npt.NDArray[np.intp]
) -> Tensors:
    """Return the sums of ``accumulate`` for a stack, in one batched product per direction over its unfinished groups."""
    per_group = len(configs) // stack.n_groups
    groups = np.unique(active // per_group)
    rows = (groups[:, None] * per_group + np.arange(per_group)).ravel()
    frame = _Frame.of(problem, configs, state, rows)
    trial = lbfgs.trial_points({name: state.tensors[name][rows] for name in ("point", "target", "length")})
    weights, intercept = frame.as_written(trial)
    x, y, weight = stack.x, stack.y, stack.weight
    if groups.size < stack.n_groups:
        x, y, weight = x[groups], y[groups], weight[groups]
    n_groups, n_rows, outputs = groups.size, y.shape[1], problem.n_outputs
    with np.errstate(over="ignore", invalid="ignore"):
        predictor = x @ weights.reshape(n_groups, per_group * outputs, -1).transpose(0, 2, 1)
        predictor += intercept.reshape(n_groups, 1, per_group * outputs)
        flat = predictor.reshape(n_groups * n_rows, per_group, outputs)
        loss, residual = log_loss.by_row(problem.task, flat, y.ravel())
        # A trial point that overflows must not turn the padding's 0 · inf into NaN for the rows that are there.
        padding = weight.ravel() == 0
        loss[padding], residual[padding] = 0.0, 0.0
        residual *= weight.reshape(-1, 1, 1)
        losses = (weight[:, None, :] @ loss.reshape(n_groups, n_rows, per_group))[:, 0, :].ravel()
        by_group = residual.reshape(n_groups, n_rows, per_group * outputs)
        product = (by_group.transpose(0, 2, 1) @ x).reshape(rows.size, outputs, -1)
        residuals = by_group.sum(axis=1).reshape(rows.size, outputs)
    wanted = np.searchsorted(rows, active)
    return {"loss": losses[wanted], "residual": residuals[wanted], "product": product[wanted]}


def _first_step(problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
    """Set up the solver's coordinates and its starting point, where everything follows from the moments."""
    n_configs, with_intercept = len(configs), _has_intercept(configs)
    everything = np.arange(n_configs)
    share = _starting_share(problem, sums, with_intercept)
    about = sums if with_intercept else moments.about_zero(sums)
    varies = moments.inverse_spread(about["square"], about["mean"], about["total"]) > 0

    def by_config(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Repeat what is known of a group (or of each group of a stack) for each of its configs."""
        whole = values if about["total"].ndim else values[None]
        return np.repeat(whole, n_configs // len(whole), axis=0)

    shares, totals = by_config(share), by_config(about["total"])
    spread = shares * (1.0 - shares)
    l2 = linear_model.column(configs, L2)[:, None, None]
    curvature = spread[:, :, None] * by_config(about["square"])[:, None, :] + l2
    informative = np.broadcast_to(by_config(varies)[:, None, :], curvature.shape)
    inverse = np.where(informative, 1.0 / np.sqrt(np.where(informative, curvature, 1.0)), 0.0).reshape(n_configs, -1)
    point = np.zeros_like(inverse)
    if with_intercept:
        by_intercept = 1.0 / np.sqrt(spread * totals[:, None])
        logit = scipy.special.logit(shares) if problem.task is Task.BINARY else np.log(shares)
        inverse = np.concatenate([inverse, by_intercept], axis=1)
        point = np.concatenate([point, logit / by_intercept], axis=1)
    tensors = {**state.tensors, "inverse": inverse, "mean": by_config(about["mean"])}
    if "gram" in about:
        tensors["hessian"] = _first_hessian(shares, by_config(about["gram"]), totals, inverse)
    setup = State(tensors, state.done)
    frame = _Frame.of(problem, configs, setup, everything)
    at_start = {name: by_config(value) for name, value in _sums_at_start(problem, sums, share).items()}
    smooth, gradient = frame.evaluate(point, at_start)
    model = _model(configs, setup, frame, everything)
    history = int(linear_model.column(configs[:1], HISTORY)[0])
    started = lbfgs.start(point, smooth, gradient, model.penalty, history)
    rates, tolerance = linear_model.column(configs, LEARNING_RATE), linear_model.column(configs, TOLERANCE)
    hopeless = ~(np.isfinite(started["composite"]) & np.isfinite(gradient).all(axis=1))
    going = np.flatnonzero(~hopeless)
    aimed, converged = lbfgs.aim(
        model.take(going), {name: value[going] for name, value in started.items()}, tolerance[going], rates[going]
    )
    done = hopeless.copy()
    done[going] = converged
    return _with(setup, frame, everything, started, done, going, aimed)


def _starting_share(problem: Problem, sums: Tensors, with_intercept: bool) -> FloatArray:
    """Return the probability of each output at the start: the class shares, or equal ones without an intercept."""
    if not with_intercept:
        return np.full(sums["target_mean"].shape, 1.0 / max(2, problem.n_outputs))
    share: FloatArray = np.clip(sums["target_mean"], _SMALLEST_SHARE, 1.0 - _SMALLEST_SHARE)
    return share if problem.task is Task.BINARY else share / share.sum(axis=-1, keepdims=True)


def _sums_at_start(problem: Problem, sums: Tensors, share: FloatArray) -> Tensors:
    """Return what ``accumulate`` would give with all weights zero and probabilities ``share``, once per group."""
    total, observed = np.asarray(sums["total"]), sums["target_mean"]
    loss = -(observed * np.log(share)).sum(axis=-1)
    if problem.task is Task.BINARY:
        loss -= ((1.0 - observed) * np.log1p(-share)).sum(axis=-1)
    residual = total[..., None] * (share - observed)
    # Σw(p̄ − y)x = x̄·Σw(p̄ − y) − Σw(x − x̄)(y − ȳ).
    product = residual[..., :, None] * sums["mean"][..., None, :] - np.swapaxes(sums["cross"], -1, -2)
    return {"loss": total * loss, "residual": residual, "product": product}


def _first_hessian(share: FloatArray, gram: FloatArray, total: FloatArray, inverse: FloatArray) -> FloatArray:
    """Return the Hessian at the start in the solver's coordinates, (c, p, p).

    With probabilities p̄ in every row the Hessian of the log-loss is (diag(p̄) − p̄p̄') ⊗ X'X, for binary p̄(1 − p̄)·X'X.
    """
    outputs, size = share.shape[1], share.shape[1] * gram.shape[1]
    place = np.arange(outputs)
    coupling = -_COUPLING * share[:, :, None] * share[:, None, :]
    coupling[:, place, place] = share * (1 - share)
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
    tolerance = linear_model.column(configs, TOLERANCE)[active]
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
