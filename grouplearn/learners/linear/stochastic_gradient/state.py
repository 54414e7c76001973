"""The state of linear models in stochastic gradient descent: its tensors, models, means and parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.linear import stochastic_gradient as kernel
from grouplearn.learners.contract import averaging
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import Visit
from grouplearn.models.state import State, Tensors

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

#: Tensors (c, k, d) that exist only if needed.
WIDE = ("unscaled", "paid", "beyond")
_CHANGING = (*WIDE, "scale", "due", "total", "counted", "intercept", "intercept_sum", "step", "objective")
#: Tensors whose pushed changes are added.
SUMMED = (*WIDE, "intercept", "intercept_sum", "counted", "step")
#: Scalars that are averaged.
_MEANS = (
    *("rate", "step", "visited", "seen", "counted", "objective", "intercept", "intercept_sum", "best", "stalled"),
    *("l1", "l2", "loss"),
)


def begun(problem: Problem, n: int, owes: bool, averages: bool) -> State:
    """Return the initial state of n configs."""
    shape = (n, problem.n_outputs, problem.n_features)
    wide = {"unscaled": True, "paid": owes, "beyond": averages}
    tensors: Arrays = {name: np.zeros(shape) for name, there in wide.items() if there}
    for name in ("intercept", "intercept_sum", "objective"):
        tensors[name] = np.zeros(shape[:2])
    for name in ("due", "total", "step", "rate", "visited", "seen", "counted", "stalled", "l1", "l2"):
        tensors[name] = np.zeros(n)
    tensors |= {"scale": np.ones(n), "best": np.full(n, np.inf), "loss": np.full(n, np.nan), "epoch": np.full(n, -1)}
    return State(tensors, np.zeros(n, dtype=bool))


def models_of(tensors: Arrays) -> kernel.SgdModels:
    """Return the kernel's models of a state's tensors."""
    return kernel.SgdModels(**{name: tensors.get(name) for name in _CHANGING})  # type: ignore[arg-type]


def tensors_of(models: kernel.SgdModels) -> Arrays:
    """Inverse of ``models_of``."""
    found = {name: getattr(models, name) for name in _CHANGING}
    return {name: value for name, value in found.items() if value is not None}


def epoch_begun(tensors: Arrays, visit: Visit) -> Arrays:
    """Return the tensors with sums reset where an epoch or a round begins, and outstanding l1 applied or dropped.

    Otherwise weights that were 0 while steps were long would owe more l1 than short steps can ever pay.
    """
    begins = (tensors["epoch"] != visit.epoch) | visit.begins
    tensors = {
        **tensors,
        "objective": np.where(begins[:, None], 0.0, tensors["objective"]),
        "visited": np.where(begins, 0.0, tensors["visited"]),
        "seen": np.where(begins, 0.0, tensors["seen"]),
        "epoch": np.full_like(tensors["epoch"], visit.epoch),
    }
    if "paid" in tensors and begins.any():
        paid = kernel.settled(tensors["unscaled"], tensors["paid"], tensors["due"])
        tensors["unscaled"] = np.where(begins[:, None, None], paid, tensors["unscaled"])
        tensors["paid"] = np.where(begins[:, None, None], 0.0, tensors["paid"])
        tensors["due"] = np.where(begins, 0.0, tensors["due"])
    return tensors


def chosen(tensors: Arrays, places: Sequence[int]) -> Arrays:
    """Return the tensors of some configs: copies, unless these are all configs."""
    if len(places) == len(tensors["scale"]):
        return dict(tensors)
    return {name: value[list(places)] for name, value in tensors.items()}


def updated(state: State, places: Sequence[int], changed: Arrays) -> Arrays:
    """Return a state's tensors with those of some configs replaced; the state's arrays are not changed."""
    if len(places) == len(state.done):
        return {**state.tensors, **changed}
    tensors = {name: value.copy(order="K") for name, value in state.tensors.items()}
    for name, value in changed.items():
        tensors[name][list(places)] = value
    return tensors


def finished(state: State, index: slice, averaged: npt.NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Return the weights (c, k, d) and intercepts (c, k) that some configs predict with, means of steps if ``averaged`` (c,)."""
    tensors = {name: value[index] for name, value in state.tensors.items()}
    models = models_of(tensors)
    if models.beyond is None:
        return models.weights(), models.intercept
    counts = np.where(averaged, tensors["counted"], 0.0)
    counted = np.where(counts > 0, counts, 1.0)
    sums = models.total[:, None, None] * models.unscaled - models.beyond
    weights = np.where(counts[:, None, None] > 0, sums / counted[:, None, None], models.weights())
    intercept = np.where(counts[:, None] > 0, models.intercept_sum / counted[:, None], models.intercept)
    return weights, intercept


def settled(state: State) -> State:
    """Return the same models with scales multiplied into the weights, and outstanding l1 applied or dropped."""
    models, tensors = models_of(state.tensors), dict(state.tensors)
    tensors["unscaled"] = models.weights()
    if models.paid is not None:
        tensors["paid"] = np.zeros_like(models.paid)
    if models.beyond is not None:
        tensors["beyond"] = models.beyond - models.total[:, None, None] * models.unscaled
    none = np.zeros_like(models.scale)
    tensors |= {"scale": np.ones_like(models.scale), "due": none, "total": none}
    return State(tensors, state.done)


def part(state: State, number: int, of: int) -> dict[str, npt.NDArray[Any]]:
    """Return part ``number`` of ``of`` of a state for averaging; see ``averaging.cut``."""
    return averaging.cut(settled(state).tensors, WIDE, number, of)


def mean_of(parts: Sequence[Tensors], weights: Sequence[float]) -> dict[str, npt.NDArray[Any]]:
    """Return the weighted mean of parts: of weights, sums over steps, losses, counts of steps and rows."""
    return averaging.mean_of(parts, (*WIDE, *_MEANS), weights)


def of_parts(parts: Sequence[Tensors], done: npt.NDArray[np.bool_]) -> State:
    """Return the state from all its parts in order."""
    return State(averaging.join(parts, [name for name in WIDE if name in parts[0]]), done)


def stepped(state: State, rate: FloatArray, gradient: FloatArray, by_intercept: FloatArray) -> State:
    """Return the state after one step of length ``rate`` (c,) against mean gradients (c, k, d) and (c, k) of losses.

    The penalties of a row are ``l1`` and ``l2`` of the state: ``w ← soft(max(0, 1 − η·l2)·w − η·gradient, η·l1)``, for all
    columns.
    """
    state = settled(state)
    tensors, length = dict(state.tensors), rate[:, None, None]
    shrunk = np.maximum(1.0 - rate * tensors["l2"], 0.0)
    moved = tensors["unscaled"] * shrunk[:, None, None] - length * gradient
    threshold = (rate * tensors["l1"])[:, None, None]
    weights = np.where(moved > 0, np.maximum(moved - threshold, 0.0), np.minimum(moved + threshold, 0.0))
    counts = tensors["step"] + 1.0
    tensors |= {"unscaled": weights, "intercept": tensors["intercept"] - rate[:, None] * by_intercept, "step": counts}
    tensors["intercept_sum"] = tensors["intercept_sum"] + counts[:, None] * tensors["intercept"]
    tensors["counted"] = tensors["counted"] + counts
    if "beyond" in tensors:
        tensors["beyond"] = tensors["beyond"] - counts[:, None, None] * weights
    return State(tensors, state.done)
