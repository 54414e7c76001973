"""Means of models, and steps based on them, computed on parts of tensors along their last axis; joined parts equal the
whole bit for bit.

Each number of a mean depends only on the numbers at its place, in the order of the models. So it does not matter who
computes which part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.models.state import Tensors

#: Relative size of the rounding error that remains when a number is subtracted in many shares.
_CANCELLED = 2.0**-40


def cut(tensors: Tensors, names: Iterable[str], number: int, of: int) -> dict[str, npt.NDArray[Any]]:
    """Return part ``number`` of ``of`` of some tensors (..., p): a copy of columns p·number/of to p·(number + 1)/of.

    The first part also has all other tensors: counts and losses, which are small.
    """
    cut_ones = frozenset(names)
    parts = {}
    for name, tensor in tensors.items():
        width = tensor.shape[-1] if tensor.ndim else 0
        if name in cut_ones:
            parts[name] = np.ascontiguousarray(tensor[..., width * number // of : width * (number + 1) // of])
        elif number == 0:
            parts[name] = tensor
    return parts


def join(parts: Sequence[Tensors], names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors from all their parts in order: inverse of ``cut``."""
    whole = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in names}
    return {**parts[0], **whole}


def mean(tensors: Sequence[npt.NDArray[Any]], weights: Sequence[float]) -> npt.NDArray[Any]:
    """Return ``x₀ + Σ (wᵢ/Σw)·(xᵢ - x₀)``, computed in double precision, in the tensors' type: exact for equal tensors.

    NaN in any tensor gives NaN.
    """
    first = tensors[0].astype(np.float64)
    shift, total = np.zeros_like(first), sum(weights)
    with np.errstate(all="ignore"):
        for tensor, weight in zip(tensors[1:], weights[1:], strict=True):
            shift += (weight / total) * (tensor - first)
        return (first + shift).astype(tensors[0].dtype)


def mean_of(
    parts: Sequence[Mapping[str, npt.NDArray[Any]]], names: Iterable[str], weights: Sequence[float]
) -> dict[str, npt.NDArray[Any]]:
    """Return the means of the named tensors; other tensors are the first part's."""
    means = {name: mean([part[name] for part in parts], weights) for name in names if name in parts[0]}
    return {**parts[0], **means}


def changed(before: Tensors, after: Tensors, summed: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return what a partition pushes: ``after - before`` for ``summed`` tensors, other tensors as after."""
    with np.errstate(all="ignore"):
        return {name: tensor - before[name] if name in summed else tensor for name, tensor in after.items()}


@dataclass(frozen=True, slots=True)
class Names:
    """How a push is applied: changes of ``summed`` tensors are added, ``averaged`` ones are mixed in by share, others are
    replaced."""

    summed: Sequence[str]
    averaged: Sequence[str]


def with_push(part: Tensors, push: Tensors, share: float, names: Names) -> dict[str, npt.NDArray[Any]]:
    """Return a part of the model after a push: ``w + share·Δ`` for summed tensors, ``(1 - share)·u + share·u'`` for other
    averaged ones, computed in double precision, in the tensors' type (Ho et al. 2013: servers add up what workers push).

    The share is the partition's part of the group's rows, so that pushes that began from one model give their mean:
    added without a share they would be as many steps at once as there are partitions, which diverges from a few on. Running
    means, also of squares, stay running means when mixed in by share, however old the push; their changes would not. What
    cancels up to rounding becomes 0, as l1 needs exact zeros.
    """
    found = dict(push)
    with np.errstate(all="ignore"):
        for name, tensor in part.items():
            if name not in names.summed and name not in names.averaged:
                continue
            start, moved = tensor.astype(np.float64), push[name].astype(np.float64)
            if name in names.summed:
                after = start + share * moved
                cancels = np.isfinite(start) & (np.abs(after) <= _CANCELLED * np.abs(start))
                after = np.where(cancels, 0.0, after)
            else:
                after = start + share * (moved - start)
            found[name] = after.astype(tensor.dtype)
    return found


@dataclass(frozen=True, slots=True)
class Momentum:
    """What moves a model besides the mean: ``momentum`` times the ``velocity`` of the previous round (None: 0)."""

    momentum: float
    velocity: npt.NDArray[Any] | None


def pushed(
    before: npt.NDArray[Any], mean: npt.NDArray[Any], push: Momentum, done: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return ``w + v`` and ``v = momentum·velocity + (mean - w)`` of a parameter w (c, ...), in double precision.

    Polyak's momentum (1964) with a round's step in place of a gradient, as Chen & Huo (2016) and Wang et al. (2020) do.
    Finished configs do not move, and zeros in the mean stay 0, as l1 needs exact zeros.
    """
    start = before.astype(np.float64)
    with np.errstate(all="ignore"):
        velocity = mean.astype(np.float64) - start
        if push.velocity is not None:
            velocity = velocity + push.momentum * push.velocity
        rests = done.reshape(-1, *[1] * (before.ndim - 1)) | (mean == 0)
        velocity = np.where(rests, 0.0, velocity)
        return np.where(rests, mean, (start + velocity).astype(before.dtype)), velocity
