"""Structured coordinate descent as rounds on a state: one round per feature block, then the end of an epoch.

A state has, per config, ``weights`` (C, K, d + 1), the intercept of the centred columns last; ``before``, the weights for
which predictions were last computed in full; ``radius``, how far each weight may move; after the first epochs ``path`` (C,
epochs, K, d + 1), the weights after each epoch since the last extrapolation. ``round`` is -1 for the survey, then the
number of the round, and the number of blocks for the end of an epoch. Blocks follow in their order, or are chosen one round
ahead. Within an epoch ``steps`` says how far rows moved: by the intercept, then by the columns of each round so far, with room
for those to come; before its end ``leap`` is the extrapolated point.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from grouplearn.data.shard import FloatArray, Shard, StoredShard
from grouplearn.kernels.linear import coordinate_descent as kernel
from grouplearn.kernels.linear.generalised_linear import GlmPenalties
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import Descended, Round
from grouplearn.learners.linear import linear_model
from grouplearn.learners.linear.coordinate_descent.hyperparameters import TOLERANCE, has_intercept, leaps
from grouplearn.models.losses.loss import Loss
from grouplearn.models.state import State, Tensors

#: The number of the round before the first block.
SURVEY = -1
#: Tensors that all configs share, set by the survey.
AFTER_SURVEY = ("first", "form", "complete", "unit", "mean")
#: Tensors that all configs share, present only where blocks are chosen by their gains.
OF_CHOICE = ("order", "gains", "waits")
OF_ALL = ("epoch", "round", *AFTER_SURVEY, *OF_CHOICE)


class Memory:
    """What a worker keeps of a shard between rounds: its rows cut by block, with predictions that include all moves before
    the round ``ready`` (epoch, number)."""

    def __init__(self) -> None:
        self.cell: kernel.Cell | None = None
        self.ready: tuple[int, int] | None = None


def init(problem: Problem, configs: Sequence[Config], loss: Loss) -> State:
    """Return zero weights, an unknown loss, and the survey as the first round."""
    n = len(configs)
    shape = (n, problem.n_outputs, problem.n_features + 1)
    tensors = {
        "weights": np.zeros(shape),
        "before": np.zeros(shape),
        "loss": np.full(n, np.nan),
        "start": np.full(n, np.nan),
        "gain": np.full(n, np.inf),
        "pull": np.zeros(n),
        "epoch": np.zeros(1, np.int64),
        "round": np.full(1, SURVEY, np.int64),
    }
    if not loss.is_quadratic:
        tensors["radius"] = np.full(shape, np.inf)
    return State(tensors, np.zeros(n, dtype=bool))


def next_round(state: State) -> Round:
    """Return the number of columns of the next round, and whether it ends an epoch; the first end only measures the start."""
    number = _number(state)
    if number == SURVEY:
        return Round(1, prepares=True)
    first, begun = state.tensors["first"][0], not np.isnan(state.tensors["start"]).any()
    if number == len(first) - 1:
        points = kernel.POINTS if "leap" in state.tensors else 1
        return Round(points, ends_epoch=begun, within_epoch=begun and number > 0)
    block = order_of(state).block[number]
    return Round(int(first[block + 1] - first[block]), within_epoch=number > 0)


def is_surveyed(state: State) -> bool:
    """Return whether the blocks are known."""
    return _number(state) != SURVEY


def _number(state: State) -> int:
    return int(state.tensors["round"][0])


def order_of(state: State) -> kernel.Order:
    """Return a copy of the order of blocks in this epoch, which a kernel may change."""
    tensors = state.tensors
    if "order" not in tensors:
        return kernel.Order(np.arange(tensors["form"].shape[-1], dtype=np.int64))
    return kernel.Order(*(tensors[name][0] for name in OF_CHOICE)).copy()


def _of_order(order: kernel.Order) -> Tensors:
    """Return the order as tensors; none where blocks are not chosen."""
    if order.gain is None or order.waits is None:
        return {}
    return {"order": order.block[None], "gains": order.gain[None], "waits": order.waits[None]}


def proves_convergence(state: State, index: int) -> bool:
    """Return whether a config is done because its gradient shows that it is near the minimum."""
    return bool(state.done[index] and state.tensors["pull"][index] == 0)


def models(state: State) -> tuple[FloatArray, FloatArray]:
    """Return weights (C, K, d) and intercepts (C, K) on the features as written, at the end of the last epoch."""
    weights, level = state.tensors["before"][:, :, :-1], state.tensors["before"][:, :, -1]
    mean = state.tensors.get("mean")
    return weights, level if mean is None else level - (weights * mean[0]).sum(axis=-1)


def group_of(
    problem: Problem, configs: Sequence[Config], state: State, loss: Loss, l2: Hyperparameter
) -> kernel.GroupRounds:
    """Return the settings that all rounds of a group share, as the kernels take them."""
    tensors = state.tensors
    cut = kernel.ColumnBlocks(*(np.ascontiguousarray(tensors[name][0]) for name in ("first", "form", "mean")))
    penalties = GlmPenalties(*(linear_model.column(configs, each) for each in (linear_model.L1, l2, TOLERANCE)))
    shape = kernel.GroupShape(loss.name, len(configs), problem.n_outputs)
    unit = np.ascontiguousarray(tensors["unit"][0])
    return kernel.GroupRounds(
        shape, cut, tensors["complete"][0], unit, has_intercept(configs), penalties, leaps(configs)
    )


def work(
    group: kernel.GroupRounds, state: State, cells: Iterable[tuple[Shard | StoredShard, Memory]]
) -> Iterator[Tensors]:
    """Yield the sums of some shards in a round after the survey.

    For a block, predictions are first moved by the block before; at the end of an epoch they are computed anew, and their
    losses are summed.
    """
    number, epoch, order = _number(state), int(state.tensors["epoch"][0]), order_of(state)
    ends = number == group.cut.n_blocks
    done, block = group.lanes_of_done(state.done), group.cut.n_blocks if ends else int(order.block[number])
    radius = _of_block(group, state, "radius", block)
    leap = group.shape.in_lanes(state.tensors["leap"]) if "leap" in state.tensors else None
    measured = functools.cache(lambda name: group.shape.in_lanes(state.tensors[name]))
    moved = functools.cache(lambda number: _moved(group, state, number))
    for shard, memory in cells:
        cell = _cell(group, shard, memory)
        reached, memory.ready = memory.ready, None  # after an interruption the predictions belong to no round
        if ends:
            sums = group.measure(cell, measured("weights"), radius, done, leap)
            _read_ahead(cell, order, 0)
            memory.ready = (epoch + 1, -1) if leap is None else None
            yield {"sums": sums}
            continue
        if reached is None or reached[0] != epoch or reached[1] > number:
            _predict(group, cell, state, measured("before"), group.lanes_of_done(np.zeros_like(state.done)))
            reached = (epoch, -1)
        for before in range(reached[1], number - 1):  # rounds in which another worker had the shard
            group.pass_over(cell, moved(before), None, None, done)
        _read_ahead(cell, order, number + 1)
        sums = group.pass_over(cell, None if reached[1] == number else moved(number - 1), block, radius, done)
        memory.ready = (epoch, number)
        yield {"sums": sums}


def _read_ahead(cell: kernel.Cell, order: kernel.Order, number: int) -> None:
    """Prefetch the columns of the block in a later round, if that block is known."""
    if cell.stored and number < len(order.block) and order.block[number] >= 0:
        cell.read_ahead(int(order.block[number]))


def _cell(group: kernel.GroupRounds, shard: Shard | StoredShard, memory: Memory) -> kernel.Cell:
    if memory.cell is None:
        memory.cell = kernel.Cell(shard.matrices, shard.labels(), group.cut, group.shape, shard.directory)
    return memory.cell


def _predict(group: kernel.GroupRounds, cell: kernel.Cell, state: State, weights: FloatArray, done: FloatArray) -> None:
    """Compute a cell's predictions from ``weights``, in lanes."""
    group.measure(cell, weights, _of_block(group, state, "radius", group.cut.n_blocks), done)


def _columns(group: kernel.GroupRounds, block: int) -> slice:
    """Return the columns of a block; the number after the last block stands for the intercept."""
    first = group.cut.first
    if block == group.cut.n_blocks:
        return slice(int(first[-1]), int(first[-1]) + 1)
    return slice(int(first[block]), int(first[block + 1]))


def _of_block(group: kernel.GroupRounds, state: State, name: str, block: int) -> FloatArray | None:
    values = state.tensors.get(name)
    return None if values is None else group.shape.in_lanes(values[:, :, _columns(group, block)])


def _moved(group: kernel.GroupRounds, state: State, number: int) -> tuple[int | None, FloatArray]:
    """Return the block of a round of this epoch (None for the intercept, before the first round) and how far it moved rows."""
    if number < 0:
        tensors = state.tensors
        moved = tensors["steps"][:, :, :1] if "steps" in tensors else _of_intercept(tensors)
        return None, group.shape.in_lanes(moved)
    order = order_of(state)
    return int(order.block[number]), group.shape.in_lanes(state.tensors["steps"][:, :, _in_steps(group, order, number)])


def _of_intercept(tensors: Tensors) -> FloatArray:
    """Return how far the intercept has moved rows since the end of the last epoch (C, K, 1)."""
    return tensors["weights"][:, :, -1:] - tensors["before"][:, :, -1:]


def _in_steps(group: kernel.GroupRounds, order: kernel.Order, number: int) -> slice:
    """Return where ``steps`` has the columns of a round."""
    widths = np.diff(group.cut.first)[order.block[: number + 1]]
    end = 1 + int(widths.sum())
    return slice(end - int(widths[-1]), end)


def take(group: kernel.GroupRounds, state: State, parts: Sequence[Tensors], *, in_place: bool) -> State:
    """Return the state after a round from the sums of its parts; of many columns only the block's change."""
    number = _number(state)
    order, sums = order_of(state), np.concatenate([part["sums"] for part in parts])
    if number == group.cut.n_blocks:
        return _closed(group, state, sums)
    block = int(order.block[number])
    columns = _columns(group, block)
    tensors = {**state.tensors, "round": np.full(1, number + 1, np.int64)}
    if number == 0:
        tensors["steps"] = np.zeros_like(tensors["weights"])
        tensors["steps"][:, :, :1] = _of_intercept(tensors)
    elif not in_place:
        tensors["steps"] = tensors["steps"].copy()
    if not in_place:
        tensors |= {name: tensors[name].copy() for name in ("weights", "radius") if name in tensors}
    found = np.concatenate([tensors["weights"][:, :, columns], tensors["weights"][:, :, -1:]], axis=2)
    weights, radius = group.shape.in_lanes(found), _of_block(group, state, "radius", block)
    step, progress = group.solve(number, sums, weights, radius, (_progress(state), order))
    tensors["weights"][:, :, columns] = group.shape.out_of_lanes(weights[:-1])
    tensors["weights"][:, :, -1:] = group.shape.out_of_lanes(weights[-1:])
    if radius is not None:
        tensors["radius"][:, :, columns] = group.shape.out_of_lanes(radius)
    place = _in_steps(group, order, number)
    if place.stop > tensors["steps"].shape[2]:  # blocks that are chosen may come again
        tensors["steps"] = np.concatenate([tensors["steps"], np.zeros_like(tensors["steps"])], axis=2)
    tensors["steps"][:, :, place] = group.shape.out_of_lanes(step)
    tensors["pull"] = progress.pull
    if number + 1 == group.cut.n_blocks:
        moved, done = group.shape.in_lanes(tensors["weights"]), group.lanes_of_done(state.done)
        group.shift(moved, done)
        tensors["weights"] = group.shape.out_of_lanes(moved)
        if group.leaps and kernel.kept_before(int(tensors["epoch"][0])) == kernel.MOVES:
            tensors["leap"] = group.shape.out_of_lanes(group.leap(_path(group, state), moved, done))
    return State({**tensors, **_of_order(order)}, state.done)


def _closed(group: kernel.GroupRounds, state: State, sums: FloatArray) -> State:
    lanes, order = _in_lanes(group, state), order_of(state)
    path, leap = _path(group, state), lanes.pop("leap", None)
    lanes["before"], progress = group.close(
        sums, lanes["weights"], lanes.get("radius"), (_progress(state), order), leap
    )
    if group.leaps:
        path[kernel.kept_before(int(state.tensors["epoch"][0])) % kernel.MOVES] = lanes["before"]
    return _after(group, state, {**lanes, "path": path}, (progress, order), 1)


def _path(group: kernel.GroupRounds, state: State) -> FloatArray:
    """Return the weights after each epoch since the last extrapolation, in lanes, with room for those that the next needs."""
    shape, kept = group.shape, state.tensors.get("path")
    path = np.empty((kernel.MOVES if group.leaps else 1, len(group.unit), shape.groups, shape.outputs, shape.lanes))
    for number in range(0 if kept is None else kept.shape[1]):
        path[number] = shape.in_lanes(state.tensors["path"][:, number])
    return path


def _in_lanes(group: kernel.GroupRounds, state: State) -> dict[str, FloatArray]:
    names = ("weights", "before", "radius", "leap")
    return {name: group.shape.in_lanes(state.tensors[name]) for name in names if name in state.tensors}


def _progress(state: State) -> kernel.EpochProgress:
    tensors = state.tensors
    return kernel.EpochProgress(tensors["loss"], tensors["start"], tensors["gain"], state.done, tensors["pull"])


def _after(
    group: kernel.GroupRounds,
    state: State,
    lanes: dict[str, FloatArray],
    about: tuple[kernel.EpochProgress, kernel.Order],
    epochs: int,
) -> State:
    """Return the state before the first block of an epoch, after ``epochs`` more ends of epochs."""
    progress, order = about
    epoch, path = state.tensors["epoch"] + epochs, lanes.pop("path")
    kept = kernel.kept_before(int(epoch[0])) if group.leaps else 0
    tensors = {name: each for name, each in state.tensors.items() if name not in ("steps", "leap", "path")}
    tensors |= {name: group.shape.out_of_lanes(values) for name, values in lanes.items()}
    tensors |= {name: each for name, each in progress._asdict().items() if name != "done"}
    tensors |= {"epoch": epoch, "round": np.zeros(1, np.int64)}
    if kept:
        tensors["path"] = np.stack([group.shape.out_of_lanes(each) for each in path[:kept]], axis=1)
    return State({**tensors, **_of_order(order)}, progress.done)


def descend(
    group: kernel.GroupRounds, state: State, cells: Sequence[tuple[Shard | StoredShard, Memory]], epochs: int
) -> Descended:
    """Return the state after at most ``epochs`` epochs, and the objective after each; the state lies between two epochs."""
    begun = not np.isnan(state.tensors["start"]).any()
    epoch = int(state.tensors["epoch"][0])
    for shard, memory in cells:
        cell, reached = _cell(group, shard, memory), memory.ready
        memory.ready = None
        if begun and reached != (epoch, -1):
            before = group.shape.in_lanes(state.tensors["before"])
            _predict(group, cell, state, before, group.lanes_of_done(state.done))
    lanes = _in_lanes(group, state)
    given = [memory.cell for _, memory in cells if memory.cell is not None]
    lanes["path"] = _path(group, state)
    arrays, order = (lanes["weights"], lanes["before"], lanes.get("radius"), lanes["path"]), order_of(state)
    about = _progress(state), order
    progress, curve, passes = group.descend(given, arrays, about, (epoch if begun else 0, epochs))
    after = _after(group, state, lanes, (progress, order), len(curve) + int(not begun))
    for _, memory in cells:
        memory.ready = (int(after.tensors["epoch"][0]), -1)
    return Descended(after, curve, passes)
