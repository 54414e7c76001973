"""A partition's work in a round: a pass over its rows, some batches of them, or gradient sums."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Shard, StoredShard
from grouplearn.learners.contract import averaging
from grouplearn.learners.contract.ways import AveragingLearner, BatchesLearner, Piece, Visit
from grouplearn.models.state import State, Tensors
from grouplearn.schedule.messages import Step
from grouplearn.train.fit import blocks_visited
from grouplearn.train.pack import Pack, Training

#: The tensors of a partition's sums that are cut into parts.
_CUT = ("gradient",)


@dataclass
class TrainedModel:
    """The model after a partition's rows of a round; ``weight`` is the weight of the visited ``rows``."""

    learner: AveragingLearner
    state: State
    weight: float
    rows: Shard | StoredShard

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Which configs need no further epoch."""
        return self.state.done

    def piece(self, piece: Piece) -> Tensors:
        """Return a part of the state."""
        return self.learner.part(self.state, *piece)


@dataclass
class GradientSums:
    """A partition's gradient sums in a round; every piece has the tensors that are not cut."""

    sums: Mapping[str, npt.NDArray[Any]]
    weight: float
    done: npt.NDArray[np.bool_]

    def piece(self, piece: Piece) -> Tensors:
        """Return a part of the sums."""
        return every_piece(self.sums, _CUT, piece)


#: A partition's product, with the weight of its rows, the configs that are done, and its pieces.
Work = TrainedModel | GradientSums


def trained(pack: Pack, training: Training, step: Step) -> TrainedModel:
    """Return the model after the partition's rows of a round, starting from the common model."""
    learner, rows = cast(AveragingLearner, pack.learner), pack.prepared.train
    if not step.averages.batches:
        state = blocks_visited(pack, learner, training, rows) if rows.n_rows else training.state
        return TrainedModel(learner, state, rows.total_weight(), rows)
    state, weight = training.state, 0.0
    for block, visit in _visits(pack, rows, training.epochs, step):
        pack.check()
        state = cast(BatchesLearner, learner).train_batches(pack.prepared.problem, pack.configs, state, block, visit)
        weight += _weight(block, visit)
    return TrainedModel(learner, state, weight, rows)


def gradients(pack: Pack, training: Training, step: Step) -> GradientSums:
    """Return the gradient sums over the partition's rows of a round, at the common model."""
    learner, rows = cast(BatchesLearner, pack.learner), pack.prepared.train
    found, weight = [], 0.0
    for block, visit in _visits(pack, rows, training.epochs, step):
        pack.check()
        found.append(learner.gradient(pack.prepared.problem, pack.configs, training.state, block, visit))
        weight += _weight(block, visit)
    return GradientSums(added(found), weight, training.state.done)


def added(sums: Sequence[Tensors]) -> dict[str, npt.NDArray[Any]]:
    """Return the sum of several sums, tensor by tensor, in order."""
    total = dict(sums[0]) if sums else {}
    for each in sums[1:]:
        total = {name: total[name] + each[name] for name in total}
    return total


def every_piece(tensors: Tensors, names: Sequence[str], piece: Piece) -> dict[str, npt.NDArray[Any]]:
    """Return a part of the tensors that are cut, together with all others."""
    kept = {name: tensor for name, tensor in tensors.items() if name not in names}
    return {**kept, **averaging.cut(tensors, names, *piece)}


def _visits(pack: Pack, rows: Shard | StoredShard, epoch: int, step: Step) -> Iterator[tuple[Shard, Visit]]:
    """Yield the blocks of a partition with the batches of round r of R: of B batches, those from B·r/R to B·(r + 1)/R.

    So all partitions finish an epoch in the same round, whatever their numbers of rows.
    """
    size = cast(BatchesLearner, pack.learner).batch_rows(pack.configs[0])
    bounds = rows.bounds
    counts = [-(-(stop - start) // size) for start, stop in itertools.pairwise(bounds)]
    number, of = step.stretch.number, step.stretch.of
    first, last = (sum(counts) * each // of for each in (number, number + 1))
    before, begins = 0, True
    for place, count in enumerate(counts):
        start, stop = max(first - before, 0), min(last - before, count)
        if start < stop:
            block = rows.first + place
            whole = (rows if len(counts) == 1 else rows.part(block, block + 1)).read()
            yield whole, Visit(epoch, start * size, min(whole.n_rows, stop * size), begins)
            begins = False
        before += count


def _weight(block: Shard, visit: Visit) -> float:
    """Return the weight of visited rows, as if all rows of a block had equal weight."""
    return float(block.weight.sum()) * ((visit.stop - visit.start) / block.n_rows)
