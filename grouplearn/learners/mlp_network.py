"""The training of multilayer perceptrons in torch: networks, penalty and optimizer with a config axis."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Shard, Totals
from grouplearn.learners.base import Config, FloatArray, Problem, Task

#: Adam's constants, as in Kingma & Ba (2015), algorithm 1.
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8

#: Every tensor of a config starts on a multiple of this many floats. Vector instructions and BLAS kernels then treat
#: it the same way wherever it lies in the stack, so a pack of n gives the bits of n packs of one.
_ALIGNMENT = 64


@functools.cache
def torch_on_one_thread() -> Any:
    """Return torch, set to one thread: results must not depend on the number of cores."""
    import torch

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


def _column(configs: Sequence[Config], name: str) -> FloatArray:
    """Return one hyperparameter of every config, shape (c,)."""
    return np.array([config[name] for config in configs], dtype=np.float64)


class _Network:
    """The networks of one pack during one epoch: parameters and gradients (c, p), forward and backward passes."""

    def __init__(self, problem: Problem, configs: Sequence[Config], parameters: Any) -> None:
        self.torch = torch_on_one_thread()
        self.task = problem.task
        self.layers, size = layers_of(problem, configs[0])
        self.n_configs = len(configs)
        self.activation = str(configs[0]["activation"])
        self.dtype = parameters.dtype
        self.dropout = self.torch.tensor(_column(configs, "dropout"), dtype=self.dtype)[:, None, None]
        self.parameters = parameters
        self.gradient = self.torch.zeros(self.n_configs, size, dtype=self.dtype)
        self.weights = [layer.weight_of(parameters) for layer in self.layers]
        self.biases = [layer.bias_of(parameters) for layer in self.layers]

    def descend(self, x: Any, y: Any, weight: Any, draws: Sequence[Any]) -> FloatArray:
        """Set ``gradient`` to that of mean(weight · loss) over a batch and return that mean per config, shape (c,)."""
        rows = x.shape[0]
        inputs, pre, post, masks = self._forward(x, draws)
        losses, delta = self._loss(pre[-1], y, rows)
        delta.mul_(weight[:, None] / rows)
        ones = self.torch.ones(1, 1, rows, dtype=self.dtype).expand(self.n_configs, 1, rows)
        for depth in reversed(range(len(self.layers))):
            layer = self.layers[depth]
            self.torch.bmm(delta.transpose(1, 2), inputs[depth], out=layer.weight_of(self.gradient))
            self.torch.bmm(ones, delta, out=layer.bias_of(self.gradient))
            if depth:
                flat, back = self._block(rows, layer.inputs)
                self.torch.bmm(delta, self.weights[depth], out=back)
                if masks:
                    back.mul_(masks[depth - 1])
                flat = self._slope(flat, pre[depth - 1], post[depth - 1])
                delta = self._view(flat, rows, layer.inputs)
        # numpy sums each row of a matrix the same way whatever the number of rows; torch need not.
        means: FloatArray = (losses * weight).numpy().sum(axis=1, dtype=np.float64) / rows
        return means

    def _forward(self, x: Any, draws: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Return per layer its input, and its values before and after the activation (flat); and the dropout masks."""
        torch, rows = self.torch, x.shape[0]
        inputs, pre, post = [x.expand(self.n_configs, *x.shape)], [], []
        masks = [(draw >= self.dropout) / (1 - self.dropout) for draw in draws]
        for depth, layer in enumerate(self.layers):
            flat, values = self._block(rows, layer.outputs)
            self._affine(inputs[-1], self.weights[depth], self.biases[depth], values)
            pre.append(flat)
            if depth + 1 < len(self.layers):
                activate = getattr(torch, self.activation) if self.activation != "gelu" else torch.nn.functional.gelu
                post.append(activate(flat))
                hidden = self._view(post[-1], rows, layer.outputs)
                inputs.append(self._align(hidden * masks[depth]) if masks else hidden)
        return inputs, pre, post, masks

    def _affine(self, inputs: Any, weight: Any, bias: Any, out: Any) -> None:
        """Set ``out`` to inputs @ weight' + bias."""
        if out.shape[2] > 1:
            self.torch.baddbmm(bias, inputs, weight.transpose(1, 2), out=out)
        else:  # written the other way round, BLAS takes one kernel for a single product and for a stack of them
            self.torch.baddbmm(bias, weight, inputs.transpose(1, 2), out=out.transpose(1, 2))

    def _loss(self, flat: Any, y: Any, rows: int) -> tuple[Any, Any]:
        """Return the loss of each row (c, rows) and its derivative by the outputs (c, rows, k)."""
        torch, k = self.torch, self.layers[-1].outputs
        z = self._view(flat, rows, k)
        if self.task is Task.REGRESSION:
            delta = self._align(z - y[:, None])
            return 0.5 * delta[..., 0] ** 2, delta
        if self.task is Task.BINARY:
            losses = torch.nn.functional.softplus(flat)[:, :rows] - y * z[..., 0]
            return losses, self._align(self._view(torch.sigmoid(flat), rows, k) - y[:, None])
        logs = torch.log_softmax(z, 2)
        target = y.long()
        losses = -logs.gather(2, target.expand(self.n_configs, rows)[..., None])[..., 0]
        delta = self._view(torch.exp(self._align(logs, flat=True)), rows, k)
        delta.sub_(torch.nn.functional.one_hot(target, k))
        return losses, delta

    def _slope(self, delta: Any, pre: Any, post: Any) -> Any:
        """Return delta times the derivative of the activation."""
        backward = self.torch.ops.aten
        if self.activation == "relu":
            return backward.threshold_backward(delta, post, 0)
        if self.activation == "tanh":
            return backward.tanh_backward(delta, post)
        if self.activation == "sigmoid":
            return backward.sigmoid_backward(delta, post)
        return backward.gelu_backward(delta, pre)

    def _block(self, rows: int, width: int) -> tuple[Any, Any]:
        """Return zeros (c, aligned rows · width) and their view (c, rows, width)."""
        flat = self.torch.zeros(self.n_configs, _aligned(rows * width), dtype=self.dtype)
        return flat, self._view(flat, rows, width)

    def _view(self, flat: Any, rows: int, width: int) -> Any:
        return flat[:, : rows * width].view(self.n_configs, rows, width)

    def _align(self, dense: Any, flat: bool = False) -> Any:
        """Return a copy of ``dense`` (c, rows, width) on aligned rows."""
        block, view = self._block(*dense.shape[1:])
        view.copy_(dense)
        return block if flat else view


class _Optimizer:
    """Adam (Kingma & Ba 2015) or SGD with momentum, torch.optim's formulas with one learning rate per config."""

    def __init__(self, configs: Sequence[Config], first: Any, second: Any, step: npt.NDArray[np.int64]) -> None:
        self.torch = torch_on_one_thread()
        self.adam = configs[0]["optimizer"] == "adam"
        self.dtype = first.dtype
        self.rate = _column(configs, "learning_rate")[:, None]
        self.momentum = self._tensor(_column(configs, "momentum")[:, None])
        self.first, self.second, self.step = first, second, step.copy()

    def update(self, parameters: Any, gradient: Any) -> None:
        """Take one step, in place: Adam θ -= η m̂ / (√v̂ + ε), or SGD u = μu + g, θ -= ηu."""
        self.step += 1
        if self.adam:
            self.first.lerp_(gradient, 1 - _BETA1)
            self.second.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
            step = self.step[:, None]
            root = self._tensor(np.sqrt(1 - _BETA2**step))
            denominator = self.second.sqrt().div_(root).add_(_EPSILON)
            parameters.sub_(self._tensor(self.rate / (1 - _BETA1**step)) * (self.first / denominator))
        else:
            self.first.mul_(self.momentum).add_(gradient)
            parameters.sub_(self._tensor(self.rate) * self.first)

    def _tensor(self, values: FloatArray) -> Any:
        return self.torch.tensor(values, dtype=self.dtype)


@dataclass(frozen=True, slots=True)
class _Penalty:
    """(l1·‖w‖₁ + ½·l2·‖w‖²) / Σwᵢ on the parameters (c, p); zero coefficients on biases."""

    lasso: Any
    ridge: Any

    @classmethod
    def of(cls, problem: Problem, configs: Sequence[Config], total: float, scale: float, dtype: Any) -> _Penalty | None:
        """Return the penalty per unit of weight ``total`` for labels divided by ``scale``; None when there is none.

        The last layer holds w/scale, and the objective is divided by scale².
        """
        l1, l2 = _column(configs, "l1"), _column(configs, "l2")
        if not l1.any() and not l2.any():
            return None
        layers, size = layers_of(problem, configs[0])
        lasso, ridge = np.zeros((2, len(configs), size))
        for layer in layers:
            own = scale if layer is layers[-1] else 1.0
            lasso[:, layer.weight] = (l1 * own / (total * scale**2))[:, None]
            ridge[:, layer.weight] = (l2 * own**2 / (total * scale**2))[:, None]
        tensor = torch_on_one_thread().tensor
        return cls(tensor(lasso, dtype=dtype), tensor(ridge, dtype=dtype))

    def apply(self, parameters: Any, gradient: Any) -> FloatArray:
        """Add the (sub)gradient to ``gradient`` and return the penalty per config, shape (c,)."""
        gradient.addcmul_(self.ridge, parameters).addcmul_(self.lasso, parameters.sign())
        terms = self.lasso * parameters.abs() + 0.5 * self.ridge * parameters**2
        total: FloatArray = terms.numpy().sum(axis=1, dtype=np.float64)
        return total


def run_block(
    problem: Problem,
    configs: Sequence[Config],
    part: dict[str, npt.NDArray[Any]],
    block: Shard,
    epoch: int,
    whole: Totals,
) -> None:
    """Visit the rows of one block once, in a shuffled order: ``part`` is replaced by the results.

    ``whole`` is of all rows of the group. ``objective`` in ``part`` sums the objective of batches times their rows.
    """
    torch, n = torch_on_one_thread(), block.n_rows
    mean, scale = (whole.label_mean, whole.label_scale) if problem.task is Task.REGRESSION else (0.0, 1.0)
    parameters, first, second = (
        torch.from_numpy(part[name]).clone() for name in ("parameters", "first_moment", "second_moment")
    )
    network = _Network(problem, configs, parameters)
    optimizer = _Optimizer(configs, first, second, part["step"])
    penalty = _Penalty.of(problem, configs, whole.weight, scale, parameters.dtype)
    order = visiting_order(problem.seed, epoch, n, block.first)
    x, y, weight = (
        torch.from_numpy(values.astype(part["parameters"].dtype))[order]
        for values in (np.asarray(block.x), (block.y - mean) / scale, block.weight * (whole.n_rows / whole.weight))
    )
    widths = [layer.outputs for layer in network.layers[:-1]]
    size = int(configs[0]["batch_size"])  # type: ignore[arg-type]
    dropping = bool(_column(configs, "dropout").any())
    sums = part["objective"]
    for batch, start in enumerate(range(0, n, size)):
        rows = slice(start, min(start + size, n))
        length = rows.stop - start
        draws = dropout_draws(problem.seed, epoch, batch, length, widths, block.first) if dropping else []
        objective = network.descend(x[rows], y[rows], weight[rows], draws)
        if penalty:
            objective += penalty.apply(parameters, network.gradient)
        sums = sums + objective * length
        optimizer.update(parameters, network.gradient)
    values = {"parameters": parameters, "first_moment": first, "second_moment": second}
    part.update({name: value.numpy() for name, value in values.items()}, step=optimizer.step, objective=sums)
