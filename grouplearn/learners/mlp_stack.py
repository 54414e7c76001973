"""Groups side by side: the batches of several groups' epochs in step, each group's its own, as when it trains alone.

Every lane is one group. Lanes are in order of their number of batches, most first, so that those which still have one at
step t are the first ``k``: a step works on the leading models alone, and what has no batch left is not touched. The last
batch of a block is filled up with rows of weight 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Shard, Totals
from grouplearn.learners.base import Config, FloatArray, Problem, Task
from grouplearn.learners.mlp_network import dropout_draws, torch_on_one_thread, visiting_order
from grouplearn.learners.mlp_steps import Batch, Models, Penalty, Rates, Steps, column, losses

#: Rows of a batch are filled up to a multiple of this, so that vector instructions treat every model alike.
_VECTOR = 32
#: Most values of gathered rows, or of targets, that are laid out ahead of the steps that use them.
_WINDOW = 1 << 20

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lane:
    """One group's pack on its way through an epoch: ``part`` has the state's rows of ``configs`` and takes the results.

    ``whole`` is of all rows of the group, of which ``rows`` may be some blocks.
    """

    problem: Problem
    configs: Sequence[Config]
    part: dict[str, npt.NDArray[Any]]
    rows: Shard
    whole: Totals

    @property
    def scaling(self) -> tuple[float, float]:
        """Mean and standard deviation of the labels that the networks see as 0 and 1."""
        return (self.whole.label_mean, self.whole.label_scale) if self.problem.task is Task.REGRESSION else (0.0, 1.0)


def padded_rows(batch_size: int, rows: int) -> int:
    """Return how many rows a batch has in memory where no block has more than ``rows``."""
    return -(-min(batch_size, rows) // _VECTOR) * _VECTOR


def run_lanes(lanes: Sequence[Lane], epoch: int) -> None:
    """Visit the rows of every lane once, each block in a shuffled order of its own; all have networks of one shape.

    ``objective`` in the lanes' parts sums the objective of batches times their rows.
    """
    with torch_on_one_thread().inference_mode():
        order = _Order.of(lanes, epoch)
        state = {name: np.concatenate([lane.part[name] for lane in order.lanes]) for name in order.lanes[0].part}
        configs = [config for lane in order.lanes for config in lane.configs]
        models = Models(order.lanes[0].problem, configs, state, order.padded)
        _Pass(order, models, state, epoch).run()
        finished = {"parameters": models.parameters, "first_moment": models.first, "second_moment": models.second}
        state |= {name: each.numpy() for name, each in finished.items()}
        _hand_out(order.lanes, state)


def _hand_out(lanes: Sequence[Lane], state: dict[str, npt.NDArray[Any]]) -> None:
    ends = np.cumsum([len(lane.configs) for lane in lanes])
    for lane, end in zip(lanes, ends.tolist(), strict=True):
        lane.part.update({name: value[end - len(lane.configs) : end] for name, value in state.items()})


@dataclass(frozen=True, slots=True)
class _Batches:
    """The batches of one lane in order: row numbers (b, padded), how many of each are rows, its block, its number in it."""

    rows: IntArray
    lengths: IntArray
    block: IntArray
    number: IntArray

    @classmethod
    def of(cls, lane: Lane, epoch: int, size: int, padded: int, first: int, blank: int) -> _Batches:
        """Return the epoch's batches, row ``i`` of the lane numbered ``first + i``, padding ``blank``."""
        rows, lengths, blocks, numbers = [], [], [], []
        for block, (start, stop) in enumerate(itertools.pairwise(lane.rows.bounds), start=lane.rows.first):
            n, width = stop - start, min(size, padded)
            count = -(-n // width)
            order = np.full(count * width, blank, dtype=np.int64)
            order[:n] = visiting_order(lane.problem.seed, epoch, n, block).numpy() + (first + start)
            filled = np.full((count, padded), blank, dtype=np.int64)
            filled[:, :width] = order.reshape(count, width)
            rows.append(filled)
            lengths.append(np.minimum(n - width * np.arange(count), width))
            blocks.append(np.full(count, block, dtype=np.int64))
            numbers.append(np.arange(count, dtype=np.int64))
        return cls(*(np.concatenate(each) for each in (rows, lengths, blocks, numbers)))


def _batches_of(lane: Lane, size: int, padded: int) -> int:
    """Return how many batches an epoch of a lane has."""
    width = min(size, padded)
    return sum(-(-(stop - start) // width) for start, stop in itertools.pairwise(lane.rows.bounds))


@dataclass(frozen=True, slots=True)
class _Order:
    """The steps of an epoch: at step t the first ``active[t]`` lanes have batch t of theirs."""

    lanes: tuple[Lane, ...]
    batches: tuple[_Batches, ...]
    padded: int
    active: IntArray

    @classmethod
    def of(cls, lanes: Sequence[Lane], epoch: int) -> _Order:
        size = int(lanes[0].configs[0]["batch_size"])  # type: ignore[arg-type]
        longest = max(stop - start for lane in lanes for start, stop in itertools.pairwise(lane.rows.bounds))
        padded = padded_rows(size, longest)
        # Ranked before anything is counted: rows are stacked, and numbered, in the order of the lanes.
        ranked = sorted(lanes, key=lambda lane: -_batches_of(lane, size, padded))
        counts = [lane.rows.n_rows for lane in ranked]
        firsts, blank = np.cumsum([0, *counts]).tolist(), sum(counts)
        batches = tuple(
            _Batches.of(lane, epoch, size, padded, first, blank) for lane, first in zip(ranked, firsts, strict=False)
        )
        ends = np.array([len(each.lengths) for each in batches])
        active = (ends[None, :] > np.arange(ends[0])[:, None]).sum(axis=1)
        return cls(tuple(ranked), batches, padded, active)


@dataclass(frozen=True, slots=True)
class _Window:
    """Some consecutive steps laid out in memory, one step after the other: lanes (s, ...), and models (n, ...).

    ``lane`` (n,) says which of the s rows is a model's, ``model`` (n,) which model it is, ``step`` (n,) its step.
    """

    active: IntArray
    n_models: IntArray
    rows: IntArray
    lengths: IntArray
    lane: IntArray
    model: IntArray
    step: IntArray

    @classmethod
    def of(cls, order: _Order, first: int, last: int, lane_of: IntArray) -> _Window:
        """Return the steps ``first`` to ``last`` (half-open)."""
        active = order.active[first:last]
        begins = np.cumsum(active) - active
        rows = np.empty((int(active.sum()), order.padded), dtype=np.int64)
        lengths = np.empty(len(rows), dtype=np.int64)
        for place, batches in enumerate(order.batches[: active[0]]):
            end = min(last, len(batches.lengths))
            at = begins[: end - first] + place
            rows[at], lengths[at] = batches.rows[first:end], batches.lengths[first:end]
        n_models = np.searchsorted(lane_of, active)
        models = np.arange(len(lane_of))
        taking = models < n_models[:, None]
        return cls(
            active=active,
            n_models=n_models,
            rows=rows,
            lengths=lengths,
            lane=(begins[:, None] + lane_of)[taking],
            model=np.broadcast_to(models, taking.shape)[taking],
            step=np.broadcast_to(np.arange(first, last)[:, None], taking.shape)[taking],
        )


class _Pass:
    """One pass of all lanes over their rows; ``state`` are the models' tensors before it, and takes steps and objective."""

    def __init__(self, order: _Order, models: Models, state: dict[str, npt.NDArray[Any]], epoch: int) -> None:
        self._torch = torch_on_one_thread()
        self._order, self._models, self._state, self._epoch = order, models, state, epoch
        self._lane_of = np.repeat(np.arange(len(order.lanes)), [len(lane.configs) for lane in order.lanes])
        self._x, self._y, self._weight = self._rows_of(order.lanes)
        self._rate = column(models.configs, "learning_rate")
        self._penalty = Penalty.of(models.layers, models.configs, *self._totals(), like=models.parameters)
        self._drops = bool(models.dropout.any())
        self._steps: dict[int, Steps] = {}

    def run(self) -> None:
        """Take all steps of the epoch, some of them laid out in memory at a time."""
        problem, padded, active = self._order.lanes[0].problem, self._order.padded, self._order.active
        n_models = np.searchsorted(self._lane_of, active)
        size = np.cumsum(padded * np.maximum(active * problem.n_features, n_models * problem.n_outputs))
        cuts = np.flatnonzero(np.diff(size // _WINDOW)) + 1
        for first, last in itertools.pairwise((0, *cuts.tolist(), len(active))):
            self._run(first, _Window.of(self._order, first, last, self._lane_of))
        self._state["step"] = self._state["step"] + (active[:, None] > self._lane_of).sum(axis=0)

    def _run(self, first: int, window: _Window) -> None:
        torch, models = self._torch, self._models
        target, weight = self._labels(window)
        scores = torch.empty(target.shape, dtype=models.dtype)
        twice = torch.zeros(len(scores), dtype=models.dtype)
        taken = self._state["step"][window.model] + window.step + 1
        rates = Rates.of(models.adam, self._rate[window.model], taken, models.dtype)
        x = self._x.index_select(0, torch.from_numpy(window.rows.reshape(-1)))
        x = x.view(*window.rows.shape, -1).split(window.active.tolist())
        counts = window.n_models.tolist()
        floor = [None] * len(counts) if rates.floor is None else rates.floor.split(counts)
        parts = (each.split(counts) for each in (target, weight, scores, rates.root, twice))
        for at, (rows, goal, weights, z, root, penalties, low) in enumerate(zip(x, *parts, floor, strict=True)):
            masks = self._masks(first + at, counts[at])
            self._steps_of(counts[at]).take(Batch(rows, goal, weights, z, root, low, penalties, masks))
        loss = (losses(models.task, scores, target) * weight[:, 0]).numpy().sum(axis=1, dtype=np.float64)
        objective = (loss + 0.5 * twice.numpy().astype(np.float64)) * window.lengths[window.lane]
        np.add.at(self._state["objective"], window.model, objective)

    def _steps_of(self, n: int) -> Steps:
        if n not in self._steps:
            lanes = self._lane_of[:n]
            several = self._torch.from_numpy(lanes) if lanes[-1] else None
            self._steps[n] = Steps(self._models, self._penalty, n, several)
        return self._steps[n]

    def _rows_of(self, lanes: Sequence[Lane]) -> tuple[Any, FloatArray, FloatArray]:
        """Return x, y and weight of all lanes, each lane's rows where its batches say, and a row of zeros for padding."""
        dtype = self._state["parameters"].dtype
        counts = [lane.rows.n_rows for lane in lanes]
        x = np.zeros((sum(counts) + 1, lanes[0].problem.n_features), dtype=dtype)
        y, weight = np.zeros((2, len(x)))
        for lane, end in zip(lanes, np.cumsum(counts).tolist(), strict=True):
            own, (mean, scale) = slice(end - lane.rows.n_rows, end), lane.scaling
            x[own], y[own] = lane.rows.x, (lane.rows.y - mean) / scale
            weight[own] = lane.rows.weight * (lane.whole.n_rows / lane.whole.weight)
        return self._torch.from_numpy(x), y, weight

    def _totals(self) -> tuple[FloatArray, FloatArray]:
        """Return Σwᵢ and the scale of the labels of every model's group."""
        pairs = np.array([(lane.whole.weight, lane.scaling[1]) for lane in self._order.lanes])
        total, scale = pairs[self._lane_of].T
        return total, scale

    def _labels(self, window: _Window) -> tuple[Any, Any]:
        """Return for every model of every step the targets (n, outputs, rows) and the weights (n, 1, rows)."""
        torch, dtype = self._torch, self._models.dtype
        y, weight = self._y[window.rows], self._weight[window.rows] / window.lengths[:, None]
        target, weighed = (torch.tensor(each, dtype=dtype)[:, None] for each in (y, weight))
        if self._models.task is Task.MULTICLASS:
            k = self._models.layers[-1].outputs
            target = torch.nn.functional.one_hot(torch.from_numpy(y).long(), k).transpose(1, 2).to(dtype)
        lane = torch.from_numpy(window.lane)
        return target[lane].contiguous(), weighed[lane]

    def _masks(self, step: int, n: int) -> Sequence[Any]:
        """Return dropout's factors in a step of the first ``n`` models, (n, units, rows) per hidden layer.

        All configs of a lane share the draws, so what a config learns does not depend on its pack.
        """
        if not self._drops:
            return ()
        rate = self._models.dropout[:n]
        lanes = self._lane_of[:n]
        widths = [layer.outputs for layer in self._models.layers[:-1]]
        draws = [self._torch.zeros(int(lanes[-1]) + 1, width, self._order.padded) for width in widths]
        for place, (lane, batches) in enumerate(zip(self._order.lanes, self._order.batches, strict=True)):
            if place > lanes[-1]:
                break
            number, rows, block = (int(each[step]) for each in (batches.number, batches.lengths, batches.block))
            drawn = dropout_draws(lane.problem.seed, self._epoch, number, rows, widths, block)
            for layer, own in zip(draws, drawn, strict=True):
                layer[place, :, :rows] = own.T
        of = self._torch.from_numpy(lanes)
        return [(layer[of] >= rate) / (1 - rate) for layer in draws]
