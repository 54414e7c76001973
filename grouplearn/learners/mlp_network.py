"""Multilayer perceptrons in torch: how parameters lie in memory, and the random numbers that training draws."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grouplearn.learners.base import Config, Problem

#: Every tensor of a config starts on a multiple of this many floats. Vector instructions and BLAS kernels then treat
#: it the same way wherever it lies in the stack, so a pack of n gives the bits of n packs of one.
_ALIGNMENT = 64


def torch_on_one_thread() -> Any:
    """Return torch, set to one thread: results must not depend on the number of cores.

    Looked at every time, as the number is the calling thread's, and limits of other libraries put back what they found.
    """
    import torch

    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    return torch


@dataclass(frozen=True, slots=True)
class Layer:
    """Where one layer's weight (outputs, inputs) and bias (outputs,) lie in a config's row of parameters."""

    inputs: int
    outputs: int
    weight: slice
    bias: slice

    def weight_of(self, parameters: Any) -> Any:
        """Return the weights of parameters (c, p) as (c, outputs, inputs), a view."""
        return parameters[:, self.weight].reshape(-1, self.outputs, self.inputs)

    def bias_of(self, parameters: Any) -> Any:
        """Return the biases of parameters (c, p) as (c, 1, outputs), a view."""
        return parameters[:, self.bias].reshape(-1, 1, self.outputs)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def layers_of(problem: Problem, config: Config) -> tuple[tuple[Layer, ...], int]:
    """Return the layers of one network and the length of its row of parameters."""
    hidden: tuple[int, ...] = config["hidden_layers"] or ()  # type: ignore[assignment]
    layers, at = [], 0
    for inputs, outputs in itertools.pairwise((problem.n_features, *hidden, problem.n_outputs)):
        bias = at + _aligned(inputs * outputs)
        layers.append(Layer(inputs, outputs, slice(at, at + inputs * outputs), slice(bias, bias + outputs)))
        at = bias + _aligned(outputs)
    return tuple(layers), at


def _generator(*path: int) -> Any:
    """Return a generator whose stream depends on the numbers of ``path`` alone."""
    seed = int(np.random.SeedSequence(path).generate_state(1, np.uint64)[0])
    return torch_on_one_thread().Generator().manual_seed(seed)


#: Where the shuffles of blocks stand among the batch numbers of dropout: where no batch is.
_SHUFFLE = 2**32 - 1


def visiting_order(seed: int, epoch: int, n_rows: int, block: int = 0) -> Any:
    """Return the order, a torch.int64 tensor (n_rows,), in which an epoch visits the rows of a block."""
    path = (seed, epoch, _SHUFFLE, block) if block else (seed, epoch)
    return torch_on_one_thread().randperm(n_rows, generator=_generator(*path))


def dropout_draws(seed: int, epoch: int, batch: int, rows: int, widths: Sequence[int], block: int = 0) -> list[Any]:
    """Return per hidden layer the uniform numbers (rows, width) of one batch: a unit is dropped where it is < dropout.

    All configs share the draws, so what a config learns does not depend on its pack. Batches are counted in each block.
    """
    path = (seed, epoch, batch, block) if block else (seed, epoch, batch)
    generator = _generator(*path)
    return [torch_on_one_thread().rand(rows, width, generator=generator) for width in widths]
