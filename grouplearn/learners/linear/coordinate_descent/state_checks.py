"""Checks a state of coordinate descent read from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from grouplearn.kernels.linear import coordinate_descent as kernel
from grouplearn.learners.contract.config import Config
from grouplearn.learners.linear.coordinate_descent.block_rounds import (
    AFTER_SURVEY,
    OF_ALL,
    OF_CHOICE,
    SURVEY,
    order_of,
)
from grouplearn.learners.linear.coordinate_descent.hyperparameters import chooses, leaps
from grouplearn.models.state import State, Tensors, has_tensors_of


def is_sound(state: State, begun: State, configs: Sequence[Config], n_features: int) -> bool:
    """Return whether a state read from a file is valid, and has blocks of the group's columns.

    It has what the rounds of an epoch need: how far each moved the rows, and at the end the extrapolated point.
    """
    found, n_configs = state.tensors, len(begun.done)
    own = {name: each for name, each in begun.tensors.items() if name not in OF_ALL}
    epoch = found.get("epoch")
    kept = kernel.kept_before(int(epoch.flat[0])) if leaps(configs) and epoch is not None and epoch.size else 0
    if kept:
        own["path"] = np.stack([begun.tensors["weights"]] * kept, axis=1)
    if not has_tensors_of(state, State(own, begun.done)) or not _are_of_all(
        found, {"epoch": (), "round": ()}, n_configs
    ):
        return False
    if (found["round"] == SURVEY).all():
        return not any(name in found for name in (*AFTER_SURVEY, *OF_CHOICE))
    n_blocks = found["form"].shape[-1] if "form" in found and found["form"].ndim else 0
    sizes = {"first": n_blocks + 1, "form": n_blocks, "complete": n_blocks, "unit": n_features + 1, "mean": n_features}
    sizes |= dict.fromkeys(OF_CHOICE, n_blocks) if chooses(configs) else {}
    shapes = {name: (size,) for name, size in sizes.items()}
    if not _are_of_all(found, shapes, n_configs):
        return False
    number, order = int(found["round"].flat[0]), order_of(state)
    if not (found["round"] == number).all() or not 0 <= number <= n_blocks:
        return False
    if chooses(configs) != ("order" in found) or not _is_order(order, n_blocks, number):
        return False
    first, form = found["first"][0], found["form"][0]
    width = np.diff(first)
    covers = first[0] == 0 and first[-1] == n_features and (width > 0).all()
    if not (covers and np.isin(form, range(5)).all() and (width[form == kernel.ONE_COLUMN] == 1).all()):
        return False
    leaping = number == n_blocks and kept == kernel.MOVES
    if number == 0:
        return "steps" not in found and "leap" not in found
    return _has_moves(state, begun, int(width[order.block[:number]].sum()), leaping)


def _has_moves(state: State, begun: State, columns: int, leaping: bool) -> bool:
    """Return whether a state within an epoch has its rounds' moves of ``columns``, and the point to leap to where one is due."""
    weights, steps = begun.tensors["weights"], state.tensors.get("steps")
    room = max(1 + columns, 0 if steps is None or steps.ndim < 3 else steps.shape[2])
    moves = {"steps": np.broadcast_to(0.0, (*weights.shape[:2], room))} | ({"leap": weights} if leaping else {})
    begun_epoch = not np.isnan(state.tensors["start"]).any() and leaping == ("leap" in state.tensors)
    return bool(begun_epoch and has_tensors_of(state, State(moves, begun.done)))


def _is_order(order: kernel.Order, n_blocks: int, number: int) -> bool:
    """Return whether it is a valid order of blocks, known up to the one after the next round."""
    there = ((order.block >= -1) & (order.block < n_blocks)).all() and (order.block[: number + 2] >= 0).all()
    if order.gain is None or order.waits is None:
        return bool(there)
    return bool(there and (order.gain >= 0).all() and (order.waits >= 0).all())


def _are_of_all(found: Tensors, shapes: Mapping[str, tuple[int, ...]], n_configs: int) -> bool:
    """Return whether the named tensors have these shapes after a first axis of size 1 or ``n_configs``."""
    for name, shape in shapes.items():
        tensor, kind = found.get(name), np.float64 if name in ("unit", "mean", "gains") else np.int64
        if tensor is None or tensor.dtype != kind or tensor.shape not in ((1, *shape), (n_configs, *shape)):
            return False
    return True
