"""One against the rest: for each class a binary generalised linear model that is independent of the others.

With two classes there is one model, that of the second. The weights and intercepts of K models form one model with K
outputs; its objective is the sum of theirs, and it is finished when they all are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from grouplearn.data.shard import FloatArray, Shard, Stack
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear import glm
from grouplearn.learners.linear.solved import SolvedLinear
from grouplearn.models.label import TWO_CLASSES
from grouplearn.models.losses.loss import Loss
from grouplearn.models.state import State, Tensors, has_tensors_of


def of_two(problem: Problem) -> Problem:
    """Return the binary problem of one class against the rest."""
    return replace(problem, label=TWO_CLASSES, n_classes=2)


def has_solver(problem: Problem, configs: Sequence[Config], state: State) -> bool:
    """Return whether the solver state of each class's models, if there is one, is valid."""
    if "solver" not in state.tensors:
        return True
    shape = (len(configs), problem.n_outputs)
    of_classes = {"class_loss": np.zeros(shape), "class_done": np.zeros(shape, np.bool_)}
    if not has_tensors_of(state, State(of_classes, state.done)) or state.tensors["solver"].shape[:-1] != shape:
        return False
    parts = [_part(state, place) for place in range(problem.n_outputs)]
    return all(glm.has_solver(of_two(problem), configs, part) for part in parts)


def accumulate(loss: Loss, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
    """Return the moments of one block in the first pass, with targets for each class.

    Later ``glm.accumulate`` of each unfinished class, with the number of the class at the end of the names.
    """
    if "solver" not in state.tensors:
        targets = [loss.targets(labels, 1) for labels in labels_of(problem, block.y)]
        return glm.block_moments(of_two(problem), configs, np.concatenate(targets, axis=-1), block)
    sums = {}
    for place, labels in enumerate(labels_of(problem, block.y)):
        part = _part(state, place)
        if not part.done.all():
            found = glm.accumulate(loss, of_two(problem), configs, part, replace(block, y=labels))
            sums.update({f"{name}_{place}": value for name, value in found.items()})
    return sums


def step(loss: Loss, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
    """Return the state after one pass, with a step of every unfinished model; see ``glm.step``."""
    parts = []
    for place in range(problem.n_outputs):
        part = _part(state, place)
        if not part.done.all():
            part = glm.step(loss, of_two(problem), configs, part, _sums_of(sums, place))
        parts.append(part)
    by_class = {name: np.stack([part.tensors[name] for part in parts], axis=1) for name in ("loss", "solver")}
    tensors = {
        **{name: np.concatenate([part.tensors[name] for part in parts], axis=1) for name in ("weights", "intercept")},
        "loss": by_class["loss"].sum(axis=1),
        "solver": by_class["solver"],
        "class_loss": by_class["loss"],
        "class_done": np.stack([part.done for part in parts], axis=1),
    }
    return State(tensors, tensors["class_done"].all(axis=1))


def solve(
    loss: Loss,
    problem: Problem,
    configs: Sequence[Config],
    stack: Stack,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> SolvedLinear:
    """Return the models of a stack, solved class by class; raises Interrupted."""
    if problem.label == TWO_CLASSES:
        return glm.solve(loss, problem, configs, stack, report, cancelled)
    parts: list[SolvedLinear] = []
    epochs = np.zeros((stack.n_groups, len(configs)), np.int64)
    for place, labels in enumerate(labels_of(problem, stack.y)):
        begin = {name: each[:, place : place + 1].copy() for name, each in (stack.before or {}).items()}
        of_class = replace(stack, y=labels, before=begin or None)
        parts.append(glm.solve(loss, of_two(problem), configs, of_class, lambda _: None, cancelled))
        longer = np.maximum(epochs, parts[-1].epochs)
        report(int((longer - epochs).sum()))  # the classes' epochs count as simultaneous
        epochs = longer
    return SolvedLinear(
        np.concatenate([part.weights for part in parts], axis=2),
        np.concatenate([part.intercept for part in parts], axis=2),
        np.sum([part.loss for part in parts], axis=0),
        epochs,
        _curve(parts, epochs),
        np.logical_and.reduce([part.converged for part in parts]),
    )


def _curve(parts: Sequence[SolvedLinear], epochs: np.ndarray) -> FloatArray:
    """Return the sum of the classes' objectives after each pass; finished ones stay constant."""
    passes = np.arange(max(len(part.curve) for part in parts))[:, None, None]
    total = np.zeros((len(passes), *epochs.shape))
    for part in parts:
        total += part.loss
        total[: len(part.curve)] += np.where(passes[: len(part.curve)] < part.epochs, part.curve - part.loss, 0.0)
    return np.where(passes < epochs, total, np.nan)


def labels_of(problem: Problem, y: FloatArray) -> list[FloatArray]:
    """Return the 0/1 labels of the rows for each model."""
    if problem.label == TWO_CLASSES:
        return [y]
    return [(y == place).astype(np.float64) for place in range(problem.n_classes)]


def _part(state: State, place: int) -> State:
    """Return the state of one class's models."""
    one = slice(place, place + 1)
    tensors = {name: state.tensors[name][:, one] for name in ("weights", "intercept")}
    if "solver" not in state.tensors:
        return State({**tensors, "loss": state.tensors["loss"]}, state.done)
    by_class = {"loss": state.tensors["class_loss"][:, place], "solver": state.tensors["solver"][:, place]}
    return State({**tensors, **by_class}, state.tensors["class_done"][:, place] | state.done)


def _sums_of(sums: Tensors, place: int) -> Tensors:
    """Return the sums of one class's models."""
    if "mean" not in sums:
        end = f"_{place}"
        return {name.removesuffix(end): value for name, value in sums.items() if name.endswith(end)}
    one = slice(place, place + 1)
    of_targets = {"target_mean": sums["target_mean"][one], "cross": sums["cross"][:, one]}
    return {**sums, **of_targets, "target_gram": sums["target_gram"][one, one]}
