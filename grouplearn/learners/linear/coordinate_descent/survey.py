"""The survey of the rows, the round before the first: which feature blocks there are, and where weights begin.

Blocks follow from the values in each column and the number of entries that rows have in each
item (scd 3.2.3). An item is one block if no row has more than one entry in it: numbers, one-hot and ordinal codes, a hash.
Other items (lists and arrays) become one block per column if they have at most ``SPLIT_UP_TO`` columns; wider ones are cut
into as many runs of columns as rows have entries in them on average. Where rows still have several entries in a block, the
entries share one bound (De Pierro 1995): all columns of the block move at once, the objective never rises, and there is no
line search, which would need a barrier. With an intercept, columns of numbers are centred, as in glmnet, and a one-hot
block with an entry in every row is shifted against the intercept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Shard, StoredShard
from grouplearn.kernels.linear import coordinate_descent as kernel
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear.coordinate_descent.hyperparameters import BLOCKS, chooses, has_intercept
from grouplearn.learners.linear.cost import SPLIT_UP_TO
from grouplearn.learners.linear.least_squares import moments
from grouplearn.models.losses.loss import Loss
from grouplearn.models.state import State, Tensors

#: A column whose values differ by less than this share of the largest is constant up to rounding.
_ROUNDING = 4 * float(np.finfo(np.float64).eps)
#: Largest absolute value whose square may be summed.
_MOST = 1e150


def items_of(problem: Problem, configs: Sequence[Config]) -> tuple[list[int], npt.NDArray[np.bool_]]:
    """Return the number of columns of each item, and whether they may be centred and be blocks of their own.

    All columns are one item if the items are not known, or with ``blocks = 'one'``.
    """
    items = [block for block in problem.items if block.width]
    widths = [block.width for block in items]
    one = configs[0].get(BLOCKS.name, BLOCKS.default) == "one"
    if sum(widths) == problem.n_features and not one:
        return widths, np.array([block.width == 1 or not block.pure for block in items], np.bool_)
    widths = [problem.n_features] * bool(problem.n_features)
    return widths, np.ones(len(widths), np.bool_)


def survey(
    problem: Problem, configs: Sequence[Config], targets: FloatArray, weight: FloatArray, shard: Shard | StoredShard
) -> Tensors:
    """Return statistics of a shard's columns and items, and the moments of its ``targets`` (n, t)."""
    widths, centred = items_of(problem, configs)
    first = np.cumsum([0, *widths], dtype=np.int64)
    weight = np.ascontiguousarray(weight, np.float64)
    found = kernel.survey(shard.matrices(), weight, first, centred)
    of_targets = moments.block_moments(np.empty((shard.n_rows, 0)), targets, weight, gram=False)
    return {**of_targets, **found._asdict(), "rows": np.array([shard.n_rows])}


def merge(left: Tensors, right: Tensors) -> Tensors:
    """Return the sums of both."""
    if "items" not in left:
        return {name: left[name] + right[name] for name in left}
    both = kernel.merged(*(kernel.Survey(*(each[name] for name in kernel.Survey._fields)) for each in (left, right)))
    return {**moments.merge_moments(left, right), **both._asdict(), "rows": left["rows"] + right["rows"]}


def begin(
    problem: Problem, configs: Sequence[Config], state: State, sums: Tensors, level: FloatArray, loss: Loss
) -> State:
    """Return the state after the survey, with its blocks and the score ``level`` (K,) for every row; raises Diverged."""
    widths, centred_items = items_of(problem, configs)
    centred = np.repeat(centred_items, widths)
    _require_finite(sums, centred)
    fit_intercept = has_intercept(configs)
    rows = int(sums["rows"][0])
    first, form, complete = _blocks(widths, sums["items"], rows, configs)
    mean, largest = np.zeros(len(centred)), np.zeros(len(centred))
    single = np.repeat(form == kernel.ONE_COLUMN, np.diff(first))[centred] & fit_intercept
    mean[centred], largest[centred] = _centred(sums, single, rows)
    largest[~centred] = sums["largest"]
    varies = largest > 0
    unit = np.append(np.where(varies, 1.0 / np.where(varies, largest, 1.0), 0.0), 1.0)
    tensors = dict(state.tensors)
    tensors |= {"first": first[None], "form": form[None], "complete": complete[None].astype(np.int64)}
    tensors |= {"unit": unit[None], "mean": mean[None], "round": np.full(1, len(form), np.int64)}
    if chooses(configs):
        blocks = np.arange(len(form), dtype=np.int64)
        tensors |= {
            "order": blocks[None],
            "gains": np.full((1, len(form)), np.inf),
            "waits": np.zeros_like(blocks)[None],
        }
    weights = np.zeros_like(tensors["weights"])
    weights[:, :, -1] = level
    if loss.curvature is None:
        tensors["radius"] = np.broadcast_to(unit, weights.shape).copy()
    return State({**tensors, "weights": weights, "before": weights.copy()}, state.done)


def _blocks(
    widths: Sequence[int], items: npt.NDArray[np.int64], rows: int, configs: Sequence[Config]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return where blocks begin, their storage forms, and which of them have exactly one entry, a 1, in every row."""
    split_up_to = SPLIT_UP_TO if configs[0].get(BLOCKS.name, BLOCKS.default) == "items" else 0
    sizes: list[int] = []
    forms: list[int] = []
    complete: list[bool] = []
    for width, most, entries, odd in zip(widths, *items.tolist(), strict=True):
        if width == 1:
            cut, form = [1], kernel.ONE_COLUMN
        elif most <= 1:
            cut, form = [width], kernel.CODES_WITH_VALUES if odd else kernel.CODES
        elif width <= split_up_to:
            cut, form = [1] * width, kernel.ONE_COLUMN
        else:
            parts = min(width, max(1, round(entries / rows))) if split_up_to else 1
            cut = np.diff(np.linspace(0, width, parts + 1).astype(np.int64)).tolist()
            form = kernel.RAGGED_WITH_VALUES if odd else kernel.RAGGED
        sizes += cut
        forms += [kernel.ONE_COLUMN if size == 1 else form for size in cut]
        complete += [form == kernel.CODES and entries == rows] * len(cut)
    first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
    return first, np.array(forms, np.int64), np.array(complete, np.bool_)


def _centred(sums: Tensors, single: npt.NDArray[np.bool_], rows: int) -> tuple[FloatArray, FloatArray]:
    """Return what is subtracted from each column that may be centred, and the largest absolute value then, 0 for a constant.

    Columns are centred that are blocks of their own, ``single``, and have a value in most rows.
    """
    total, low, high, count = np.ascontiguousarray(sums["columns"].T)
    low, high = (
        np.where(count < rows, edge(each, 0.0), each) for edge, each in ((np.minimum, low), (np.maximum, high))
    )
    mean = np.where(single & (2 * count > rows), total / sums["total"], 0.0)
    flat = (mean != 0) & (high - low <= _ROUNDING * np.maximum(np.abs(low), np.abs(high)))
    largest = np.maximum(np.abs(high - mean), np.abs(low - mean))
    return mean, np.where((count == 0) | flat, 0.0, largest)


def _require_finite(sums: Tensors, centred: npt.NDArray[np.bool_]) -> None:
    total, low, high, _ = sums["columns"].T
    bad = np.empty(len(centred), np.bool_)
    bad[centred] = ~np.isfinite(total * total) | (np.maximum(np.abs(low), np.abs(high)) > _MOST) & np.isfinite(low)
    bad[~centred] = ~(sums["largest"] <= _MOST)
    if not np.isfinite(sums["total"]):
        raise Diverged("the sum of the weights overflows; scale the weights down")
    if not np.isfinite(sums["target_gram"]).all():
        raise Diverged("the squares of the label overflow; scale the label down")
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise Diverged(f"the squares of feature column {first + 1} overflow; scale it, with zscore for example", first)
