"""Predictions of many groups' models for rows in any order: encoded by group, scored, linked."""

from __future__ import annotations

import ctypes
import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, function

FloatArray = npt.NDArray[np.float64]
#: A row's numbers are padded to multiples of this: lanes of double precision.
LANES = 8
_POINTER, _LONG, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32


class Link(enum.IntEnum):
    """From scores to predictions, in the order of ``Link`` in scoring.cpp."""

    VALUE = 0
    EXPONENTIAL = 1
    SIGMOID = 2
    SOFTMAX = 3


@dataclass(frozen=True, slots=True)
class Encoders:
    """Parameters (groups, items) of a model's numeric items: ``(coalesce(x, fill) - center) / scale``.

    A ``fill`` of NaN leaves missing numbers missing. ``finite``: infinite numbers are missing, too.
    """

    fills: FloatArray
    centers: FloatArray
    scales: FloatArray
    finite: bool

    def encode(self, x: FloatArray, group: npt.NDArray[np.int32]) -> None:
        """Encode the first columns of ``x`` (n, width) in place, by each row's group; -1: none."""
        symbol = function("encode_numbers", _POINTER, _LONG, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER, _INT)
        parameters = map(address, (self.fills, self.centers, self.scales))
        symbol(address(x), *x.shape, address(group), self.fills.shape[1], *parameters, int(self.finite))


@dataclass(frozen=True, slots=True)
class LinearModels:
    """Linear models of G groups with K outputs: weights (G, K, p) of numbers, p a multiple of 8, intercepts (G, K).

    For an output, a category's weight is in ``category_weights`` at ``starts`` (G, K, c) plus its number.
    """

    weights: FloatArray
    intercepts: FloatArray
    starts: npt.NDArray[np.int64]
    category_weights: FloatArray

    def scores(self, x: FloatArray, group: npt.NDArray[np.int32]) -> FloatArray:
        """Return the scores (n, K) of rows: p numbers, then the numbers of c categories, NaN for unknown. Without a group:
        NaN."""
        n_outputs, n_numbers = self.weights.shape[1:]
        if x.shape[1] != n_numbers + self.starts.shape[2] or n_numbers % LANES:
            raise ValueError(f"rows of {x.shape[1]} numbers, and the models have {n_numbers} and categories")
        out = np.empty((len(x), n_outputs))
        models = (self.weights, self.intercepts, self.starts, self.category_weights)
        symbol = function("score_linear", *(_POINTER, _LONG, _LONG, _POINTER, _LONG, _LONG), *[_POINTER] * 5)
        symbol(address(x), *x.shape, address(group), n_outputs, n_numbers, *map(address, models), address(out))
        return out


def linked(scores: FloatArray, link: Link) -> FloatArray:
    """Return predictions (n, K) for scores: values, exp of them, or class probabilities.

    SIGMOID takes scores (n, 1) of the second of two classes, and returns the probabilities (n, 2) of both.
    """
    out = scores
    if link is Link.SIGMOID:
        out = np.empty((len(scores), 2))
        out[:, 1] = scores[:, 0]
    if link is not Link.VALUE:
        call = function("link_scores", _POINTER, _LONG, _LONG, _INT, returns=_INT)
        if call(address(out), *out.shape, int(link)):
            raise MemoryError
    return out
