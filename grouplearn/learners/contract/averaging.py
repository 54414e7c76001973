"""Means of models, and the steps that these are: parts of tensors along their last axis, those of the whole when joined, to the
bit.

Every number of a mean is made of the numbers at its place alone, in the order of the models. So it makes no difference who
takes the mean of which part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.learners.contract.state import Tensors

#: As a share of a number, what is left of it by rounding when it is taken away in many shares.
_CANCELLED = 2.0**-40


def cut(tensors: Tensors, names: Iterable[str], number: int, of: int) -> dict[str, npt.NDArray[Any]]:
    """Return the part ``number`` of ``of`` of some tensors (..., p): their columns p·number/of to p·(number + 1)/of, copied.

    The first part has all other tensors besides: counts and losses, which are small.
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
    """Return the tensors of which these are all parts, in order: inverse of ``cut``."""
    whole = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in names}
    return {**parts[0], **whole}


def mean(tensors: Sequence[npt.NDArray[Any]], weights: Sequence[float]) -> npt.NDArray[Any]:
    """Return ``x₀ + Σ (wᵢ/Σw)·(xᵢ - x₀)`` in double precision, as the tensors' type: of equal tensors it is what they are.

    What is not a number in one of them is none in the mean.
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
    """Return the means of some tensors, as far as the parts have them; all others are those of the first part."""
    means = {name: mean([part[name] for part in parts], weights) for name in names if name in parts[0]}
    return {**parts[0], **means}


def changed(before: Tensors, after: Tensors, summed: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the same part of what a partition pushes: ``after - before`` of tensors that are ``summed``, all others after."""
    with np.errstate(all="ignore"):
        return {name: tensor - before[name] if name in summed else tensor for name, tensor in after.items()}


@dataclass(frozen=True, slots=True)
class Names:
    """What becomes of the tensors of a push: the changes of ``summed`` ones add up, of other ``averaged`` ones its share is
    mixed in, and all others are as it has them."""

    summed: Sequence[str]
    averaged: Sequence[str]


def with_push(part: Tensors, push: Tensors, share: float, names: Names) -> dict[str, npt.NDArray[Any]]:
    """Return a part of the model with a push: ``w + share·Δ`` of what is summed, ``(1 - share)·u + share·u'`` of what is averaged
    besides, in double precision, as the tensors' type (Ho et al. 2013: servers add up what workers push).

    A share is that of the partition's rows in the group's, so that the pushes that began from one model are the mean of theirs:
    added up whole, as many steps as there are partitions are made at once, which diverges from a few on. Running means, of
    squares too, stay such when a share is mixed in, however old a push is; their changes would add up to less than nothing.
    What cancels but for rounding is 0: l1 wants it to be.
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
    """What moves a model besides the mean: ``momentum`` times the ``velocity`` of the round before (None: 0)."""

    momentum: float
    velocity: npt.NDArray[Any] | None


def pushed(
    before: npt.NDArray[Any], mean: npt.NDArray[Any], push: Momentum, done: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return ``w + v`` and ``v = momentum·velocity + (mean - w)`` of a parameter w (c, ...), in double precision.

    Polyak (1964), with the step of a round in place of a gradient's, as Chen & Huo (2016) and Wang et al. (2020) do. A config
    that is done stays where it is, and what is 0 in the mean is 0: l1 wants it to be.
    """
    start = before.astype(np.float64)
    with np.errstate(all="ignore"):
        velocity = mean.astype(np.float64) - start
        if push.velocity is not None:
            velocity = velocity + push.momentum * push.velocity
        rests = done.reshape(-1, *[1] * (before.ndim - 1)) | (mean == 0)
        velocity = np.where(rests, 0.0, velocity)
        return np.where(rests, mean, (start + velocity).astype(before.dtype)), velocity
