"""Means of models: parts of tensors along their last axis, whose means joined are the mean of the whole, to the bit.

Every number of a mean is made of the numbers at its place alone, in the order of the models. So it makes no difference who
takes the mean of which part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.learners.contract.state import Tensors


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
