"""A sketch of the covariance of rows, and their principal components: O(k·d) numbers in place of O(d²).

With fixed random directions Ω (d, k) rows x have the targets Ω'(x − x̄). Their moments (``least_squares.moments``) are the
sketch Y = CΩ and Ω'CΩ of C = Σ w(x − x̄)(x − x̄)', so that sketches merge as moments do. C is about Y(Ω'Y)⁺Y' (Nyström's
approximation; Halko, Martinsson & Tropp 2011, section 5.5; Tropp, Yurtsever, Udell & Cevher 2017). That is never more than C,
equals it if its rank is at most k, and for Gaussian Ω lacks on average at most 1 + r/(k − r − 1) times the variance that the
best r components lack, for each r < k − 1.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Matrix
from grouplearn.kernels import algebra
from grouplearn.kernels.linear import sparse
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.linear.least_squares.moments import block_moments, inverse_spread
from grouplearn.learners.unsupervised.principal_components import Components, deviation_unit, require_rows, too_light
from grouplearn.models.state import Tensors

#: Rows that are centred at a time.
_CENTRED = 1_024
#: The steps of SplitMix64 (Steele, Lea & Flood 2014).
_GAMMA, _FIRST, _SECOND = (np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
#: Entries whose sizes differ by less are taken for equal where a sign is chosen, as by ``algebra.eigen``.
_ALIKE = 1e-9


def of_block(x: Matrix, weight: FloatArray, rows: int) -> Tensors:
    """Return the sketch of rows x (n, d): moments with ``rows`` targets, and without a ``gram``."""
    along = directions(x.shape[1], rows)
    if not isinstance(x, np.ndarray):
        return block_moments(x, sparse.product(x, along), weight, gram=False)
    # Less the first row, so that columns whose mean is huge beside their spread keep their digits.
    first = x[0].astype(np.float64)
    parts = [algebra.product(x[start : start + _CENTRED] - first, along) for start in range(0, len(x), _CENTRED)]
    found = dict(block_moments(x, np.concatenate(parts), weight, gram=False))
    found["target_mean"] = found["target_mean"] + algebra.product(first[None], along)[0]
    return found


@functools.lru_cache(maxsize=4)
def directions(d: int, rows: int) -> FloatArray:
    """Return Ω (d, rows): numbers in [−1, 1), functions of their place, the same in every run."""
    places = np.arange(rows, dtype=np.uint64) + (np.arange(d, dtype=np.uint64) << np.uint64(32))[:, None]
    found = (_mixed(places) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    found.flags.writeable = False
    return found


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    words = words + _GAMMA
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def components(sketch: Tensors) -> Components:
    """Return the components of rows with this sketch, as many as it has rows; ``rest`` is what it does not see.

    Raises Diverged as ``principal_components.fit_one``.
    """
    require_rows({**sketch, "target_gram": np.zeros((0, 0))})
    if not np.isfinite(sketch["target_gram"]).all():
        raise Diverged("the squares of the features overflow; scale them, with zscore for example")
    total, mean, square = (np.asarray(sketch[name], np.float64) for name in ("total", "mean", "square"))
    varies = inverse_spread(square, mean, total) > 0
    found, values = _nystrom(np.where(varies[:, None], sketch["cross"], 0.0), sketch["target_gram"])
    unit = deviation_unit(total)
    if len(values) and not unit > 0:
        raise too_light(sketch)
    rows, rank = sketch["target_gram"].shape[0], len(values)
    variance = np.zeros(rows)
    variance[:rank] = values / (unit * unit)
    directions_found = np.zeros((rows, len(mean)))
    directions_found[:rank] = _turned_up(found)
    whole = square[varies].sum() / (unit[0] * unit[0]) if rank else 0.0
    return Components(mean, directions_found, variance, np.asarray(rank), np.asarray(max(whole - variance.sum(), 0.0)))


def _nystrom(cross: FloatArray, core: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvectors (r, d) and values (r,), above rounding, of Y·core⁺·Y' for Y = ``cross`` (d, k)."""
    middle = algebra.eigen(core)
    kept = int(middle.rank)
    # Y·core⁺·Y' is HH' with this H (d, kept), which has the eigenvectors H·q for those of H'H.
    half = algebra.product(cross, _divided(middle.directions[:kept], middle.values[:kept]).T)
    inner = algebra.eigen(algebra.product(half.T, half))
    kept = int(inner.rank)
    found = algebra.product(_divided(inner.directions[:kept], inner.values[:kept]), half.T)
    return _orthonormal(found), inner.values[:kept]


def _divided(directions: FloatArray, values: FloatArray) -> FloatArray:
    """Return directions (k, d), each divided by the root of its value."""
    divided: FloatArray = directions / np.sqrt(values)[:, None]
    return divided


def _orthonormal(rows: FloatArray) -> FloatArray:
    """Return the orthonormal rows nearest to almost orthonormal ones, (k, d): (VV')^(−1/2)·V."""
    found = algebra.eigen(algebra.product(rows, rows.T))
    root = algebra.product(
        _divided(found.directions, np.sqrt(found.values)).T, _divided(found.directions, np.sqrt(found.values))
    )
    return algebra.product(root, rows)


def _turned_up(rows: FloatArray) -> FloatArray:
    """Return rows (k, d) with the sign by which the largest entry of each, the first of equal ones, is positive."""
    if not rows.size:
        return rows
    sizes = np.abs(rows)
    first = (sizes >= sizes.max(axis=1, keepdims=True) * (1.0 - _ALIKE)).argmax(axis=1)
    turned: FloatArray = rows * np.where(rows[np.arange(len(rows)), first] < 0, -1.0, 1.0)[:, None]
    return turned
