"""The steps of multilayer perceptrons in torch: many models side by side, each operation one call for all of them.

A model is one configuration of one group. Layers work on (models, units, rows) arrays; a step is written out by hand, in
memory that is set aside once, because at 32 rows the calls cost more than the arithmetic.

On every processor a batched product gives an item the same bits wherever it stands in a batch of any size, under two
conditions that are met here: the batch is of two items or more, as BLAS has other kernels for one, so a single model is
multiplied beside another whose result nobody reads; and every item of operands and result begins on a boundary of vector
instructions, for which results have more rows than are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.learners.base import Config, FloatArray, Problem, Task
from grouplearn.learners.mlp_network import Layer, layers_of, torch_on_one_thread

#: Adam's constants, as in Kingma & Ba (2015), algorithm 1.
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
#: Fewest models of a batched product, and what the sizes of its items are multiples of.
_LEAST, _ALIGNED = 2, 16


def column(configs: Sequence[Config], name: str) -> FloatArray:
    """Return one hyperparameter of every model, shape (m,)."""
    return np.array([config[name] for config in configs], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Penalty:
    """(l1·‖w‖₁ + ½·l2·‖w‖²) / Σwᵢ on the parameters (m, p); zero coefficients on biases, None where no model has any."""

    lasso: Any
    ridge: Any

    @classmethod
    def of(
        cls, layers: Sequence[Layer], configs: Sequence[Config], total: FloatArray, scale: FloatArray, like: Any
    ) -> Penalty:
        """Return the penalty per unit of weight ``total`` (m,) for labels divided by ``scale`` (m,).

        The last layer holds w/scale, and the objective is divided by scale².
        """
        l1, l2 = column(configs, "l1") / (total * scale**2), column(configs, "l2") / (total * scale**2)
        lasso, ridge = np.zeros((2, *like.shape))
        for layer in layers:
            own = scale if layer is layers[-1] else np.ones_like(scale)
            lasso[:, layer.weight] = (l1 * own)[:, None]
            ridge[:, layer.weight] = (l2 * own**2)[:, None]
        tensor = torch_on_one_thread().tensor
        return cls(*(tensor(each, dtype=like.dtype) if each.any() else None for each in (lasso, ridge)))

    def first(self, n: int) -> Penalty:
        """Return that of the first ``n`` models."""
        return Penalty(*(None if each is None else each[:n] for each in (self.lasso, self.ridge)))


@dataclass(frozen=True, slots=True)
class Rates:
    """What every step of every model moves by: Adam's θ -= m / (√v·``root`` + ``floor``), SGD's θ -= ``root``·u."""

    root: Any
    floor: Any

    @classmethod
    def of(cls, adam: bool, rate: FloatArray, step: npt.NDArray[np.int64], dtype: Any) -> Rates:
        """Return the rates of ``step`` with learning rates ``rate``, both flat: shape (n, 1) each.

        Adam's η·m̂ / (√v̂ + ε) is m / (√v·(1-β₁ᵗ)/(η√(1-β₂ᵗ)) + ε(1-β₁ᵗ)/η): the corrections are one number per model.
        """
        torch = torch_on_one_thread()
        if not adam:
            return cls(torch.tensor(rate, dtype=dtype)[:, None], None)
        most = float(torch.finfo(dtype).max)
        per_rate = (1 - _BETA1**step) / rate
        root, floor = per_rate / np.sqrt(1 - _BETA2**step), _EPSILON * per_rate
        return cls(*(torch.tensor(np.minimum(each, most), dtype=dtype)[:, None] for each in (root, floor)))


class Models:
    """The networks of several groups during one pass over their rows: parameters and moments (m, p), and room to work.

    ``weighing`` are the parameters of ``_LEAST`` models at least.
    """

    def __init__(
        self, problem: Problem, configs: Sequence[Config], part: Mapping[str, npt.NDArray[Any]], rows: int
    ) -> None:
        torch = torch_on_one_thread()
        self.task, self.configs, self.activation = problem.task, configs, str(configs[0]["activation"])
        self.adam = configs[0]["optimizer"] == "adam"
        self.layers, _ = layers_of(problem, configs[0])
        self.parameters, self.first, self.second = (
            torch.from_numpy(part[name]).clone() for name in ("parameters", "first_moment", "second_moment")
        )
        self.dtype, m = self.parameters.dtype, max(_LEAST, len(configs))
        self.weighing = self.parameters
        if len(configs) < m:
            self.weighing = torch.zeros(m, self.parameters.shape[1], dtype=self.dtype)
            self.parameters = self.weighing[: len(configs)].copy_(self.parameters)
        self.gradient, self.scratch = torch.zeros_like(self.parameters), torch.zeros_like(self.parameters)
        self.momentum = torch.tensor(column(configs, "momentum"), dtype=self.dtype)[:, None]
        self.dropout = torch.tensor(column(configs, "dropout"), dtype=self.dtype)[:, None, None]

        def room(*shape: int) -> Any:
            return torch.zeros(m, *shape, dtype=self.dtype)

        self.inputs = room(rows, problem.n_features)
        self.pre = [room(layer.outputs, rows) for layer in self.layers[:-1]]
        self.post = [room(layer.outputs, rows) for layer in self.layers[:-1]]
        # Behind the last model's is room for what a product reads beyond the outputs of a layer.
        tails = [torch.zeros((m * layer.outputs + _ALIGNED) * rows, dtype=self.dtype) for layer in self.layers]
        self.delta = [
            tail[: m * layer.outputs * rows].view(m, layer.outputs, rows)
            for layer, tail in zip(self.layers, tails, strict=True)
        ]
        self.products = [room(_filled(layer.outputs, layer.inputs), layer.inputs) for layer in self.layers]
        self.sums = [room(1, _filled(layer.outputs, 1)) for layer in self.layers]
        self.ones = torch.ones(m, 1, rows, dtype=self.dtype)


def _filled(rows: int, columns: int) -> int:
    """Return the fewest rows, ``rows`` at least, whose ``columns`` make an aligned item."""
    step = _ALIGNED // math.gcd(_ALIGNED, columns)
    return -(-rows // step) * step


class Batch(NamedTuple):
    """What one step of the first models takes, and where it leaves its scores and penalties for later.

    ``x`` is (lanes, rows, d); ``target`` and ``scores`` (models, outputs, rows); ``weight`` (models, 1, rows) is wᵢ/(rows of
    the batch), 0 for padding; ``twice`` (models,) is twice the penalty; ``root`` and ``floor`` are the step's ``Rates``;
    ``masks`` are dropout's factors of each hidden layer, (models, units, rows).
    """

    x: Any
    target: Any
    weight: Any
    scores: Any
    root: Any
    floor: Any
    twice: Any
    masks: Sequence[Any] = ()


class Steps:
    """The steps that the first ``n`` models take together; ``lane_of`` (n,) is whose rows each learns from.

    With None all models learn from the rows of one lane. Where there are fewer models than a product takes, those that fill
    it up are worked in vain: their parameters stay as they are.
    """

    def __init__(self, models: Models, penalty: Penalty, n: int, lane_of: Any) -> None:
        torch = torch_on_one_thread()
        self.models, self.torch, self.lane_of, self.n = models, torch, lane_of, n
        wide = max(n, _LEAST)
        self.penalty = penalty.first(n)
        self.parameters, self.gradient, self.scratch = (
            each[:n] for each in (models.parameters, models.gradient, models.scratch)
        )
        self.first, self.second, self.momentum = models.first[:n], models.second[:n], models.momentum[:n]
        self.scratch_rows, self.second_rows = self.scratch.numpy(), self.second.numpy()
        self.inputs, self.ones = models.inputs[:wide], models.ones[:wide]
        self.pre, self.post, self.delta = (
            [each[:wide] for each in some] for some in (models.pre, models.post, models.delta)
        )
        self.own_pre, self.own_post, self.own_delta = (
            [each[:n] for each in some] for some in (self.pre, self.post, self.delta)
        )
        self.weights = [layer.weight_of(models.weighing[:wide]) for layer in models.layers]
        self.turned = [weight.transpose(1, 2) for weight in self.weights]
        self.own_turned = [weight[:n] for weight in self.turned]
        self.biases = [layer.bias_of(models.weighing[:wide]).transpose(1, 2) for layer in models.layers]
        self.weight_gradients = [layer.weight_of(self.gradient) for layer in models.layers]
        self.bias_gradients = [layer.bias_of(self.gradient) for layer in models.layers]
        self.products, self.sums = ([each[:wide] for each in some] for some in (models.products, models.sums))
        # Rows of delta beyond a layer's outputs are the next model's: the products of these are not read.
        self.filled = [
            tuple(_first_rows(each, result.shape[1]) for result in (product, total.transpose(1, 2)))
            for each, product, total in zip(self.delta, self.products, self.sums, strict=True)
        ]
        self.activate, self.slope = _activation(torch, models.activation)
        self.link = _link(torch, models.task)

    def take(self, batch: Batch) -> None:
        """Move every model by one batch."""
        inputs = self._forward(batch)
        delta = self.own_delta[-1]
        self.link(batch.scores, delta)
        delta.sub_(batch.target).mul_(batch.weight)
        self._backward(inputs, batch.masks)
        self._penalize(batch.twice)
        self._update(batch.root, batch.floor)

    def _forward(self, batch: Batch) -> list[Any]:
        """Set the scores; return what each layer was given, (models, rows, units)."""
        torch, last = self.torch, len(self.weights) - 1
        if self.lane_of is None:
            x = batch.x.expand_as(self.inputs)
        else:
            x = torch.index_select(batch.x, 0, self.lane_of, out=self.inputs)
        inputs = [x]
        below = x.transpose(1, 2)
        scores = batch.scores if self.n == len(self.inputs) else self.delta[-1]
        for depth, weight in enumerate(self.weights):
            out = self.pre[depth] if depth < last else scores
            torch.baddbmm(self.biases[depth], weight, below, out=out)
            if depth < last:
                self.activate(self.own_pre[depth], self.own_post[depth])
                below = self.post[depth]
                if batch.masks:
                    below = below * batch.masks[depth]
                inputs.append(below.transpose(1, 2))
        if scores is not batch.scores:
            batch.scores.copy_(self.own_delta[-1])
        return inputs

    def _backward(self, inputs: Sequence[Any], masks: Sequence[Any]) -> None:
        """Set the gradient of Σ weight · loss."""
        torch, n = self.torch, self.n
        for depth in reversed(range(len(inputs))):
            outputs, (rows, summed) = self.delta[depth].shape[1], self.filled[depth]
            # A batched product is one call of BLAS only where the result is contiguous.
            torch.bmm(rows, inputs[depth], out=self.products[depth])
            torch.bmm(self.ones, summed.transpose(1, 2), out=self.sums[depth])
            self.weight_gradients[depth].copy_(self.products[depth][:n, :outputs])
            self.bias_gradients[depth].copy_(self.sums[depth][:n, :, :outputs])
            if depth:
                back = self.own_delta[depth - 1]
                if outputs == 1:
                    torch.mul(self.own_turned[depth], self.own_delta[depth], out=back)
                else:
                    torch.bmm(self.turned[depth], self.delta[depth], out=self.delta[depth - 1])
                if masks:
                    back.mul_(masks[depth - 1])
                self.slope(back, self.own_pre[depth - 1], self.own_post[depth - 1])

    def _penalize(self, out: Any) -> None:
        """Add the penalty's (sub)gradient; leave twice the penalty itself in ``out``."""
        torch, scratch = self.torch, self.scratch
        if self.penalty.ridge is not None:
            torch.mul(self.penalty.ridge, self.parameters, out=scratch)
            self.gradient.add_(scratch)
            torch.sum(scratch.mul_(self.parameters), 1, out=out)
        if self.penalty.lasso is not None:
            torch.mul(self.penalty.lasso, self.parameters.sign(), out=scratch)
            self.gradient.add_(scratch)
            out.add_(scratch.mul_(self.parameters).sum(1), alpha=2)

    def _update(self, root: Any, floor: Any) -> None:
        """Take one step: Adam (Kingma & Ba 2015), or SGD u = μu + g, θ -= ηu."""
        if self.models.adam:
            self.first.lerp_(self.gradient, 1 - _BETA1)
            self.second.mul_(_BETA2).addcmul_(self.gradient, self.gradient, value=1 - _BETA2)
            np.sqrt(self.second_rows, out=self.scratch_rows)  # torch.sqrt is slow on zeros, of which there are many
            self.scratch.mul_(root).add_(floor)
            self.parameters.addcdiv_(self.first, self.scratch, value=-1)
        else:
            self.first.mul_(self.momentum).add_(self.gradient)
            self.parameters.addcmul_(self.first, root, value=-1)


def _first_rows(values: Any, rows: int) -> Any:
    """Return (n, rows, k) of ``values`` (n, r, k): where an item has fewer rows, also those of the items after it."""
    n, _, k = values.shape
    return values.as_strided((n, rows, k), values.stride())


def losses(task: Task, scores: Any, target: Any) -> Any:
    """Return the loss of each row, (n, rows), for ``scores`` and ``target`` (n, outputs, rows)."""
    torch = torch_on_one_thread()
    if task is Task.REGRESSION:
        return 0.5 * (scores[:, 0] - target[:, 0]) ** 2
    if task is Task.BINARY:
        return torch.nn.functional.softplus(scores[:, 0]) - target[:, 0] * scores[:, 0]
    return torch.logsumexp(scores, 1) - (target * scores).sum(1)


def _link(torch: Any, task: Task) -> Any:
    """Return the function that turns scores into predictions, whose distance from the target is the loss's derivative."""
    if task is Task.REGRESSION:
        return lambda scores, out: out.copy_(scores)
    if task is Task.BINARY:
        return lambda scores, out: torch.sigmoid(scores, out=out)
    return lambda scores, out: torch.softmax(scores, 1, out=out)


def _activation(torch: Any, name: str) -> tuple[Any, Any]:
    """Return the activation (pre, out) -> out, and what multiplies ``delta`` by its derivative: (delta, pre, post)."""
    aten = torch.ops.aten
    relu, tanh, sigmoid, gelu = (
        getattr(aten, each).grad_input
        for each in ("threshold_backward", "tanh_backward", "sigmoid_backward", "gelu_backward")
    )
    if name == "relu":
        return lambda pre, out: torch.clamp_min(pre, 0, out=out), lambda d, _, post: relu(d, post, 0, grad_input=d)
    if name == "tanh":
        return lambda pre, out: torch.tanh(pre, out=out), lambda d, _, post: tanh(d, post, grad_input=d)
    if name == "sigmoid":
        return lambda pre, out: torch.sigmoid(pre, out=out), lambda d, _, post: sigmoid(d, post, grad_input=d)
    return lambda pre, out: aten.gelu.out(pre, out=out), lambda d, pre, _: gelu(d, pre, grad_input=d)
