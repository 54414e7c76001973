"""Limited-memory quasi-Newton minimisation of f(u) + Σ λⱼ|uⱼ| for many configs in step, one evaluation per epoch.

The caller evaluates f and its gradient at ``trial_points``; ``advance`` accepts or shortens each config's step and
chooses its next direction. Without λ this is L-BFGS (Liu & Nocedal 1989); with it the direction minimises the L-BFGS
model of f plus the penalty, a proximal quasi-Newton step (Lee, Sun & Saunders 2014; Scheinberg & Tang 2016). Models are
kept in the compact form of Byrd, Nocedal & Schnabel (1994).

State tensors: ``point``, ``target``, ``gradient`` (c, p), ``composite``, ``length``, ``slope``, ``fall``, ``retries``
(c,) and the history ``changes``, ``bends`` (c, m, p): steps and gradient differences, newest last, both divided by the
step's length; unused rows are zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.algebra import product, solve_each
from grouplearn.learners import quadratic

Tensors = dict[str, npt.NDArray[np.float64]]
BoolArray = npt.NDArray[np.bool_]

#: Share of the predicted fall that a step must reach (Armijo).
_SUFFICIENT = 1e-4
#: Relative size of rounding errors in an objective summed over rows.
_ROUNDING = 1e-14
#: Shortenings of one step before the history is dropped, and then before the config is given up.
_MAX_RETRIES = 12
#: Added to the unit diagonal of the first Hessian, so that collinear columns do not stop it.
_RIDGE = 1e-13
#: Rounds of the model's own minimisation; it reads no data.
_MODEL_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of f before any step: ``penalty`` λ (c, p) and the first Hessian.

    ``hessian`` is (c, p, p), or None for the identity; coordinates are scaled so that its diagonal is one.
    """

    penalty: FloatArray
    hessian: FloatArray | None

    def take(self, index: npt.NDArray[np.intp]) -> Model:
        """Return the part of the configs in ``index``."""
        return Model(self.penalty[index], None if self.hessian is None else self.hessian[index])


def start(point: FloatArray, smooth: FloatArray, gradient: FloatArray, penalty: FloatArray, history: int) -> Tensors:
    """Return the tensors at a first point where f and its gradient are known, before any direction is chosen."""
    n_configs, size = point.shape
    return {
        "point": point,
        "target": point.copy(),
        "gradient": gradient,
        "composite": smooth + (penalty * np.abs(point)).sum(axis=1),
        "length": np.ones(n_configs),
        "slope": np.zeros(n_configs),
        "fall": np.full(n_configs, np.inf),
        "retries": np.zeros(n_configs),
        "changes": np.zeros((n_configs, history, size)),
        "bends": np.zeros((n_configs, history, size)),
    }


def trial_points(tensors: Tensors) -> FloatArray:
    """Return where f is to be evaluated, shape (c, p); a full step keeps the exact zeros of its target."""
    point, target, length = tensors["point"], tensors["target"], tensors["length"][:, None]
    return np.where(length == 1.0, target, point + length * (target - point))


def aim(model: Model, tensors: Tensors, tolerance: FloatArray, first_length: FloatArray) -> tuple[Tensors, BoolArray]:
    """Return the tensors with a new direction from every point, and which configs are converged.

    A config is converged when the model promises a fall of less than ``tolerance`` times the objective, the last step
    fell by less than ten times that, and so would a step along the steepest descent in scaled coordinates.
    """
    point, gradient, penalty = tensors["point"], tensors["gradient"], model.penalty
    violation = quadratic.subgradient(point, gradient, penalty)
    target, slope, promised = _smooth_step(model, tensors) if not penalty.any() else _proximal_step(model, tensors)
    steepest = 0.5 * (violation**2).sum(axis=1)
    unit = tolerance * np.abs(tensors["composite"])
    converged = (promised <= unit) & (tensors["fall"] <= 10 * unit) & (steepest <= 100 * unit)
    converged |= ~(violation != 0).any(axis=1)
    chosen = {"target": target, "slope": slope, "length": first_length.copy(), "retries": np.zeros_like(slope)}
    return {**tensors, **chosen}, converged


def _proximal_step(model: Model, tensors: Tensors) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the minimum of model plus penalty, the slope toward it and the fall that the model promises."""
    point, gradient, penalty = tensors["point"], tensors["gradient"], model.penalty
    curvature = _curvature(model, tensors)
    violation = quadratic.subgradient(point, gradient, penalty)
    linear = curvature.times(point) - gradient
    accuracy = np.maximum(
        1e-3 * np.abs(violation).max(axis=1, initial=0.0), 1e-14 * np.abs(linear).max(axis=1, initial=0.0)
    )
    target, _ = quadratic.minimise(curvature, linear, penalty, point, accuracy[:, None], _MODEL_ROUNDS)
    direction = target - point
    slope = (gradient * direction).sum(axis=1) + (penalty * (np.abs(target) - np.abs(point))).sum(axis=1)
    return target, slope, -slope - 0.5 * (direction * curvature.times(direction)).sum(axis=1)


def _smooth_step(model: Model, tensors: Tensors) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the same without a penalty, by the two loops of L-BFGS: the model itself is never formed."""
    changes, bends = tensors["changes"], tensors["bends"]
    along = (changes * bends).sum(axis=2)
    inverse = np.where(along > 0, 1.0 / np.where(along > 0, along, 1.0), 0.0)
    step, shares = -tensors["gradient"], np.zeros_like(along)
    newest_first = range(changes.shape[1] - 1, -1, -1)
    for pair in newest_first:
        shares[:, pair] = inverse[:, pair] * (changes[:, pair] * step).sum(axis=1)
        step = step - shares[:, pair, None] * bends[:, pair]
    if model.hessian is None:
        # B₀ = σI with σ = y'y / s'y of the newest pair.
        squares = (bends[:, -1] ** 2).sum(axis=1)
        step *= np.where(squares > 0, along[:, -1] / np.where(squares > 0, squares, 1.0), 1.0)[:, None]
    else:
        definite = model.hessian + _RIDGE * np.eye(step.shape[1])
        step = solve_each(definite, step[:, :, None])[:, :, 0]
    for pair in reversed(newest_first):
        rest = shares[:, pair] - inverse[:, pair] * (bends[:, pair] * step).sum(axis=1)
        step = step + rest[:, None] * changes[:, pair]
    slope = (tensors["gradient"] * step).sum(axis=1)
    return tensors["point"] + step, slope, -0.5 * slope


def _curvature(model: Model, tensors: Tensors) -> quadratic.Quadratic:
    """Return B = B₀ − W'K⁻¹W with W = [B₀S; Y] and K = [[S'B₀S, L], [L', −D]], Lᵢⱼ = sᵢ'yⱼ for i > j, D = diag(sᵢ'yᵢ)."""
    changes, bends = tensors["changes"], tensors["bends"]
    inner = product(changes, bends.transpose(0, 2, 1))
    diagonal = np.einsum("ijj->ij", inner)
    used = diagonal > 0
    if model.hessian is None:
        # B₀ = σI with σ = y'y / s'y of the newest pair.
        newest = np.where(used[:, -1], diagonal[:, -1], 1.0)
        scale = np.where(used[:, -1], (bends[:, -1] ** 2).sum(axis=1) / newest, 1.0)
        based = scale[:, None, None] * changes
    else:
        scale = np.ones(len(changes))
        based = product(changes, model.hessian)
    rows = np.concatenate([based, bends], axis=1)
    lower = np.tril(inner, -1)
    identity = np.eye(changes.shape[1])
    unused = np.where(used, 0.0, 1.0)[:, :, None] * identity
    core = np.block(
        [
            [product(based, changes.transpose(0, 2, 1)) + unused, lower],
            [lower.transpose(0, 2, 1), -diagonal[:, :, None] * identity - unused],
        ]
    )
    if model.hessian is not None:
        return quadratic.Dense(model.hessian - product(rows.transpose(0, 2, 1), solve_each(core, rows)))
    # Every BFGS update adds at most yy'/s'y.
    excess = ((bends**2).sum(axis=2) / np.where(used, diagonal, 1.0)).sum(axis=1)
    return quadratic.LowRank(scale, rows, core, excess)


def advance(
    model: Model, tensors: Tensors, smooth: FloatArray, gradient: FloatArray, tolerance: FloatArray
) -> tuple[Tensors, BoolArray]:
    """Return the tensors after f and its gradient were evaluated at the trial points, and which configs are done."""
    trial = trial_points(tensors)
    composite = smooth + (model.penalty * np.abs(trial)).sum(axis=1)
    finite = np.isfinite(composite) & np.isfinite(gradient).all(axis=1)
    rounding = _ROUNDING * np.abs(tensors["composite"])
    enough = tensors["composite"] + _SUFFICIENT * tensors["length"] * tensors["slope"] + rounding
    accepted = finite & (composite <= enough)
    moved = _accept(tensors, accepted, trial, composite, gradient)
    shortened, hopeless = _shorten(moved, ~accepted, composite, finite)
    return _aim_again(model, shortened, accepted, hopeless, tolerance)


def _accept(
    tensors: Tensors, accepted: BoolArray, trial: FloatArray, composite: FloatArray, gradient: FloatArray
) -> Tensors:
    step, bend = trial - tensors["point"], gradient - tensors["gradient"]
    length = np.sqrt((step**2).sum(axis=1))
    curved = (step * bend).sum(axis=1) > 1e-10 * length * np.sqrt(
        (np.where(accepted[:, None], bend, 0.0) ** 2).sum(axis=1)
    )
    kept = (accepted & curved & (length > 0))[:, None, None]
    unit = np.where(length > 0, length, 1.0)[:, None]
    return {
        **tensors,
        "changes": np.where(kept, _pushed(tensors["changes"], step / unit), tensors["changes"]),
        "bends": np.where(kept, _pushed(tensors["bends"], bend / unit), tensors["bends"]),
        "point": np.where(accepted[:, None], trial, tensors["point"]),
        "gradient": np.where(accepted[:, None], gradient, tensors["gradient"]),
        "fall": np.where(accepted, tensors["composite"] - composite, tensors["fall"]),
        "composite": np.where(accepted, composite, tensors["composite"]),
    }


def _pushed(history: FloatArray, newest: FloatArray) -> FloatArray:
    return np.concatenate([history[:, 1:], newest[:, None]], axis=1)


def _shorten(
    tensors: Tensors, rejected: BoolArray, composite: FloatArray, finite: BoolArray
) -> tuple[Tensors, BoolArray]:
    """Return shorter steps where ``rejected`` (the parabola through both ends, in [0.1, 0.5]), and who tried too often."""
    length, slope = tensors["length"], tensors["slope"]
    rise = np.where(finite, composite - tensors["composite"], 0.0) - slope * length
    vertex = np.where(rise > 0, -slope * length / (2 * np.where(rise > 0, rise, 1.0)), 0.5)
    factor = np.where(finite, np.clip(vertex, 0.1, 0.5), 0.1)
    retries = tensors["retries"] + rejected
    shortened = {**tensors, "length": np.where(rejected, length * factor, length), "retries": retries}
    return shortened, rejected & ((retries > _MAX_RETRIES) | ~(slope < 0))


def _aim_again(
    model: Model, tensors: Tensors, accepted: BoolArray, hopeless: BoolArray, tolerance: FloatArray
) -> tuple[Tensors, BoolArray]:
    """Choose new directions where a step was accepted, or given up with a history that may be to blame."""
    remembers = (tensors["changes"][:, -1] != 0).any(axis=1)
    forgets = (hopeless & remembers)[:, None, None]
    tensors = {
        **tensors,
        "changes": np.where(forgets, 0.0, tensors["changes"]),
        "bends": np.where(forgets, 0.0, tensors["bends"]),
    }
    done = hopeless & ~remembers
    index = np.flatnonzero(accepted | (hopeless & remembers))
    if index.size:
        part = {name: value[index] for name, value in tensors.items()}
        aimed, converged = aim(model.take(index), part, tolerance[index], np.ones(index.size))
        done[index] = converged
        for name in ("target", "slope", "length", "retries"):
            tensors[name] = tensors[name].copy()
            tensors[name][index] = aimed[name]
    return tensors, done
