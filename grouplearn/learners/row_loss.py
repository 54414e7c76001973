"""Losses of the rows of a stack, for every model of every group in one pair of batched products.

A model has K outputs with p weights each; the M models of a group stand side by side as the rows of (G, M·K, p), so
that the scores are one product with X' (G, p, n) and the gradient is one product with X (G, n, p).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.special

from grouplearn.data.shard import FloatArray

Array = npt.NDArray[Any]
#: Scores held at a time in a pass, and the fewest rows it is worth to part.
_SCORES, _FEWEST_ROWS = 100_000, 2_048
#: The largest score whose exponential is taken: single precision ends at 88.
_LARGEST_EXPONENT = 80.0


class Kernel(Protocol):
    """The loss of rows in two calls, which share the scores (G, M, K, n) and a scratch array of that shape in place."""

    def sign(self, label: Array) -> Array | None:
        """Return what every row of x is multiplied by beforehand, (G, n), or None for nothing."""
        ...

    def loss(self, score: Array, scratch: Array, label: Array) -> Array:
        """Return the loss of every row and model, (G, M, n); ``score`` is overwritten for ``slope``."""
        ...

    def slope(self, score: Array, scratch: Array, label: Array) -> None:
        """Overwrite what ``loss`` left in ``score`` by the derivatives of the loss by the scores."""
        ...

    def bend(self, slope: Array, label: Array, outputs: tuple[int, int]) -> Array:
        """Return the second derivatives by two scores, (G, M, n), from what ``slope`` left."""
        ...


class Binary:
    """log(1 + eᵐ) for rows multiplied by 1 − 2y, so that m is minus the margin and no label is needed.

    The derivative eᵐ/(1 + eᵐ) keeps all its digits however small it is, which p − y would not.
    """

    def sign(self, label: Array) -> Array | None:
        """Return 1 − 2y."""
        sign: Array = 1.0 - 2.0 * label[:, 0]
        return sign

    def loss(self, score: Array, scratch: Array, label: Array) -> Array:
        """Return log(1 + eᵐ)."""
        del label
        margin, loss = score[:, :, 0], scratch[:, :, 0]
        beyond = margin.size and margin.max() > _LARGEST_EXPONENT
        excess = np.maximum(margin - _LARGEST_EXPONENT, 0.0) if beyond else None
        np.minimum(margin, _LARGEST_EXPONENT, out=margin)
        np.exp(margin, out=margin)
        np.log1p(margin, out=loss)
        return loss if excess is None else loss + excess

    def slope(self, score: Array, scratch: Array, label: Array) -> None:
        """Turn eᵐ into eᵐ/(1 + eᵐ)."""
        del label
        np.add(score, 1.0, out=scratch)
        np.divide(score, scratch, out=score)

    def bend(self, slope: Array, label: Array, outputs: tuple[int, int]) -> Array:
        """Return p(1 − p)."""
        del label, outputs
        probability: Array = slope[:, :, 0]
        return probability * (1.0 - probability)


class Multinomial:
    """log Σⱼ exp(zⱼ) − z_y; ``label`` is 0/1 per class, (G, K, n)."""

    def sign(self, label: Array) -> Array | None:
        """Return None: rows stay as they are."""
        del label
        return None

    def loss(self, score: Array, scratch: Array, label: Array) -> Array:
        """Return the log-loss and leave softmax(z) in ``score``."""
        score -= score.max(axis=2, keepdims=True)
        np.multiply(score, label[:, None], out=scratch)
        own = scratch.sum(axis=2)
        np.exp(score, out=score)
        total = score.sum(axis=2)
        score /= total[:, :, None]
        loss: Array = np.log(total) - own
        return loss

    def slope(self, score: Array, scratch: Array, label: Array) -> None:
        """Turn softmax(z) into softmax(z) − 1[y]."""
        del scratch
        score -= label[:, None]

    def bend(self, slope: Array, label: Array, outputs: tuple[int, int]) -> Array:
        """Return p₁·1[1 = 2] − p₁p₂."""
        first, second = (slope[:, :, output] + label[:, None, output] for output in outputs)
        return first * (float(outputs[0] == outputs[1]) - second)


class Poisson:
    """Half the deviance, eᶻ − y·z + (y·log y − y), which is zero where eᶻ = y; ``label`` is y, (G, 1, n)."""

    def sign(self, label: Array) -> Array | None:
        """Return None: rows stay as they are."""
        del label
        return None

    def loss(self, score: Array, scratch: Array, label: Array) -> Array:
        """Return half the deviance and leave eᶻ in ``score``."""
        np.multiply(score, label[:, None], out=scratch)
        scratch -= (scipy.special.xlogy(label, label) - label)[:, None]
        np.exp(score, out=score)
        loss: Array = np.subtract(score, scratch, out=scratch)[:, :, 0]
        return loss

    def slope(self, score: Array, scratch: Array, label: Array) -> None:
        """Turn eᶻ into eᶻ − y."""
        del scratch
        score -= label[:, None]

    def bend(self, slope: Array, label: Array, outputs: tuple[int, int]) -> Array:
        """Return eᶻ."""
        del outputs
        mean: Array = slope[:, :, 0] + label
        return mean


@dataclass
class Rows:
    """Rows of G groups in one precision: ``x`` (G, n, p), ``label`` as its kernel wants it and ``weight`` (G, n).

    Padding has weight 0 and zeros in ``x``. ``outputs`` is K.
    """

    x: Array
    label: Array
    weight: Array
    kernel: Kernel
    outputs: int = 1
    transposed: Array | None = None
    _transposed: Array = field(init=False)
    _weighted: bool = field(init=False)
    _scratch: tuple[Array, Array] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.transposed is None:
            # A copy pays in single precision, where passes are many.
            view = self.x.transpose(0, 2, 1)
            self.transposed = np.ascontiguousarray(view) if self.x.dtype == np.float32 else view
        self._transposed = self.transposed
        self._weighted = bool(((self.weight != 0) & (self.weight != 1)).any())

    def take(self, groups: Array | slice) -> Rows:
        """Return the rows of some groups; those of a slice are not copied."""
        return Rows(self.x[groups], self.label[groups], self.weight[groups], self.kernel, self.outputs)

    def evaluate(self, point: Array) -> tuple[FloatArray, Array]:
        """Return Σw·loss (G, M) and its gradient (G, M·K, p) at ``point`` (G, M·K, p)."""
        groups, rows = self.x.shape[:2]
        run = max(_FEWEST_ROWS, _SCORES // (groups * point.shape[1]))
        if rows <= run:
            return self._sums(point)
        # Long groups go block by block, so that scores stay in the cache.
        blocks = [self._block(slice(start, start + run)) for start in range(0, rows, run)]
        value, gradient = np.zeros((groups, point.shape[1] // self.outputs)), np.zeros(point.shape)
        for block in blocks:
            more, slope = block._sums(point)
            value += more
            gradient += slope
        return value, gradient.astype(self.x.dtype)

    def _block(self, rows: slice) -> Rows:
        label = self.label[:, :, rows]
        return Rows(
            self.x[:, rows], label, self.weight[:, rows], self.kernel, self.outputs, self._transposed[:, :, rows]
        )

    def _sums(self, point: Array) -> tuple[FloatArray, Array]:
        value, slope = self._slopes(point)
        if self._weighted:
            np.multiply(slope, self.weight[:, None, :], out=slope)
        return value, slope @ self.x

    def hessian(self, point: Array) -> tuple[FloatArray, Array, Array]:
        """Return Σw·loss (G,), its gradient (G, K, p) and second derivatives (G, K·p, K·p) at ``point`` (G, K, p)."""
        value, slope = self._slopes(point)
        groups, rows, size = self.x.shape
        whole = np.zeros((groups, self.outputs, size, self.outputs, size), self.x.dtype)
        run = max(_FEWEST_ROWS, _SCORES // (groups * size))
        weighted = np.empty((groups, min(run, rows), size), self.x.dtype)
        for first in range(self.outputs):
            for second in range(first + 1):
                bend = self.kernel.bend(slope[:, None], self.label, (first, second))[:, 0] * self.weight
                block = np.zeros((groups, size, size), self.x.dtype)
                for start in range(0, rows, run):
                    part = slice(start, min(start + run, rows))
                    scaled = weighted[:, : part.stop - start]
                    np.multiply(self.x[:, part], bend[:, part, None], out=scaled)
                    block += self._transposed[:, :, part] @ scaled
                whole[:, first, :, second] = block
                whole[:, second, :, first] = block.transpose(0, 2, 1)
        gradient = (slope * self.weight[:, None, :]) @ self.x
        return value[:, 0], gradient, whole.reshape(groups, self.outputs * size, self.outputs * size)

    def _slopes(self, point: Array) -> tuple[FloatArray, Array]:
        """Return Σw·loss (G, M) and dloss/dscore (G, M·K, n), which the next call overwrites."""
        groups, rows = self.x.shape[:2]
        shape = (groups, point.shape[1], rows)
        if self._scratch is None or self._scratch[0].shape != shape:
            self._scratch = np.empty(shape, self.x.dtype), np.empty(shape, self.x.dtype)
        score, scratch = self._scratch
        by_model = (groups, point.shape[1] // self.outputs, self.outputs, rows)
        np.matmul(point, self._transposed, out=score)
        loss = self.kernel.loss(score.reshape(by_model), scratch.reshape(by_model), self.label)
        value: FloatArray = (loss @ self.weight[:, :, None])[:, :, 0].astype(np.float64)
        self.kernel.slope(score.reshape(by_model), scratch.reshape(by_model), self.label)
        return value, score
