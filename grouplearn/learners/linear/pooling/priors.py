"""What the groups of a parent tell about each other: the prior of each group, as sums over rows that it does not have.

Weights b of groups of one parent are taken for draws from N(β, s²Ψ), and β, Ψ and s² are estimated from the sums of all these
groups (``mixed_model``). The best guess at a group's weights is then the least squares over its own rows and (b − β)'Ψ⁻¹(b − β):
the best linear unbiased predictor (Henderson 1975; Robinson 1991).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.data.tensors import named_tensors, tensor_rows, tensors_of_rows
from grouplearn.learners.contract.pooling import Prior
from grouplearn.learners.linear.least_squares import sparse_moments
from grouplearn.learners.linear.pooling.mixed_model import fitted, prior
from grouplearn.learners.linear.pooling.siblings import siblings
from grouplearn.models.state import Tensors

#: Fewest groups of a parent that shrink, fewest per weight for a Ψ that is not diagonal, and most feature columns.
_FEWEST, _PER_WEIGHT, _WIDEST = 3, 3, 256
#: Numbers of matrices that are worked on at a time.
_AT_A_TIME = 4_000_000
#: What a model explains of all but this share of the label leaves nothing to estimate.
_NOTHING_LEFT = 1e-12
_NAMES = ("total", "mean", "target_mean", "square", "cross", "target_gram", "gram")

FEW = f"not shrunk: fewer than {_FEWEST} groups share its parent"
FEW_ROWS = "not shrunk: the groups of its parent have no more rows than one of them has weights"
EXACT = "not shrunk: one model explains the label of all groups of its parent without error"
WIDE = f"not shrunk: more than {_WIDEST} feature columns"


def priors(states: Sequence[bytes], rows: FloatArray, parents: npt.NDArray[np.intp], intercept: bool) -> list[Prior]:
    """Return what each group begins with; see ``contract.pooling``."""
    sums = _sums(states)
    found: list[Prior] = []
    for first, last in _runs(parents, sums["mean"].shape[1]):
        own = {name: each[first:last] for name, each in sums.items()}
        found += _of_run(own, rows[first:last], parents[first:last], intercept)
    return found


def _sums(states: Sequence[bytes]) -> Tensors:
    """Return the sums of groups (K, ...) with dense Gram matrices."""
    lengths = {len(each) for each in states}
    if len(lengths) == 1 and b'"shift"' not in states[0] and b'"factor"' not in states[0]:
        return tensors_of_rows(np.frombuffer(b"".join(states), np.uint8).reshape(len(states), -1))
    read = (named_tensors(state) for state in states)
    dense = [sparse_moments.dense(each) if sparse_moments.is_sparse(each) else each for each in read]
    return {name: np.stack([each[name] for each in dense]) for name in _NAMES}


def _runs(parents: npt.NDArray[np.intp], columns: int) -> Iterator[tuple[int, int]]:
    """Yield runs of whole parents whose matrices fit into memory, if those of one do."""
    most = max(1, _AT_A_TIME // (columns + 1) ** 2)
    ends = np.flatnonzero(np.diff(parents, append=-1)) + 1
    first = 0
    while first < len(parents):
        last = int(ends[max(np.searchsorted(ends, first + most, side="right") - 1, np.searchsorted(ends, first + 1))])
        yield first, last
        first = last


def _of_run(sums: Tensors, rows: FloatArray, parents: npt.NDArray[np.intp], intercept: bool) -> list[Prior]:
    weights = sums["mean"].shape[1] + intercept
    if weights > _WIDEST:
        return [Prior(None, WIDE)] * len(rows)
    start = np.flatnonzero(np.diff(parents, prepend=-1))
    counts = np.diff(np.append(start, len(parents)))
    reasons = np.where(counts < _FEWEST, FEW, "").astype(object)
    own, units = siblings(sums, rows, np.repeat(np.arange(len(start)), counts), intercept)
    reasons[(reasons == "") & (own.sums(rows) <= own.fixed.sum(axis=1))] = FEW_ROWS
    about = sums["target_gram"][:, 0, 0] + sums["total"] * (sums["target_mean"][:, 0] - units.label[own.of]) ** 2
    reasons[(reasons == "") & ~(own.sums(own.squares) > _NOTHING_LEFT * own.sums(about))] = EXACT
    chosen = np.flatnonzero(reasons == "")
    found = [Prior(None, reasons[of]) for of in own.of.tolist()]
    if not chosen.size:
        return found
    shape = np.tril(np.ones((weights, weights), np.bool_))
    full = counts[chosen] >= _PER_WEIGHT * weights
    free = np.where(full[:, None, None], shape, np.eye(weights, dtype=np.bool_))
    given = fitted(own.take(chosen), free)
    states = tensor_rows(prior(given, (units.mean[chosen], units.scale[chosen], units.label[chosen]), intercept))
    for place, state in zip(chosen.tolist(), states, strict=True):
        first = int(start[place])
        found[first : first + int(counts[place])] = [Prior(state.tobytes())] * int(counts[place])
    return found
