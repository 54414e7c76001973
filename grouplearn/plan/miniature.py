"""A smaller plan that is simulated in place of the whole one, so that planning takes little time beside training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from grouplearn.extract.counts.group_counts import GroupCount
from grouplearn.plan.cost import durations as cost
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.plan.units import SimilarTasks
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.operators import searches

#: Most tasks that are simulated one by one, about how many units they have, and the fewest tasks per worker.
MOST_TASKS, MOST_UNITS, TASKS_PER_WORKER = 1000, 4000, 8
#: About how many steps of split groups are simulated, and the fewest epochs: later epochs take as long as the last of these.
MOST_STEPS, FEWEST_EPOCHS = 1000, 4


@dataclass(frozen=True, slots=True)
class Miniature:
    """``physical`` with fewer units than the plan's ``n_units``; one of its groups may be a bundle with the rows of many.

    ``tasks`` is how many of the plan's tasks each group stands for, ``largest`` the rows of the largest of them; both are
    empty where every group is one of the plan's.

    If ``epochs`` are fewer than the plan's, times are extrapolated from two simulations, of this many epochs and of half as
    many.
    """

    physical: PhysicalPlan
    epochs: int
    n_units: int
    tasks: tuple[int, ...] = ()
    largest: tuple[int, ...] = ()

    def tasks_of(self, group: int) -> int:
        """Return how many tasks a group stands for."""
        return self.tasks[group] if self.tasks else 1

    def largest_of(self, group: int) -> int:
        """Return the rows of the largest task in a group's bundle."""
        return self.largest[group] if self.largest else self.physical.stats.rows[group]

    def load_seconds(self, group: int) -> float:
        """Return the estimated time to prepare the rows of all tasks in a group's bundle."""
        further = (self.tasks_of(group) - 1) * self.physical.rates.machine.load
        return self.physical.load_seconds(group) + further

    def shortened(self, epochs: int) -> Miniature:
        """Return the plan with fewer epochs, and proportionally less work."""
        share = epochs / self.physical.epochs
        units = tuple(replace(unit, cost=unit.cost * share) for unit in self.physical.units)
        return replace(self, physical=replace(self.physical, epochs=epochs, units=units), epochs=epochs)


def miniature(physical: PhysicalPlan, workers: int) -> Miniature:
    """Return the smallest plan whose simulation tells how long the whole takes."""
    physical, options = _of_typical_epochs(physical), physical.bound.options
    if physical.recorded is not None or searches(options.placement.operator, options.of_operators):
        return Miniature(physical, physical.epochs, len(physical.units))
    found = physical.alike
    split = [~tasks.whole & (tasks.rows > physical.block_rows) for tasks in found]
    cut = sum(_steps(tasks, mask, workers, physical.block_rows) for tasks, mask in zip(found, split, strict=True))
    cut *= physical.work_items(workers)
    rounds, in_rounds = physical.epoch_rounds, physical.bound.learner.access.in_rounds
    fewest_epochs = FEWEST_EPOCHS // 2 if in_rounds else FEWEST_EPOCHS  # an epoch of rounds has many steps
    epochs = min(physical.epochs, max(fewest_epochs, MOST_STEPS // (2 * cut * rounds))) if cut else physical.epochs
    if physical.bound.learner.access.in_one_go:
        epochs = physical.epochs  # a gang's step runs all epochs
    n_tasks = sum(len(tasks.groups) for tasks in found)
    fewest = TASKS_PER_WORKER * workers
    most = max(fewest, min(MOST_TASKS, MOST_UNITS * n_tasks // max(1, len(physical.units))))
    if n_tasks <= most:
        return Miniature(physical, epochs, len(physical.units))
    bundles = [
        (tasks, [place]) for tasks, mask in zip(found, split, strict=True) for place in np.flatnonzero(mask).tolist()
    ]
    for tasks, mask in zip(found, split, strict=True):
        bundles += ((tasks, places) for places in _bundles(tasks, mask, most // len(found)))
    return _bundled(physical, epochs, bundles)


def _steps(tasks: SimilarTasks, split: npt.NDArray[np.bool_], workers: int, block_rows: int) -> int:
    """Return about how many steps per epoch the split tasks take."""
    blocks = -(-tasks.rows[split] // block_rows)
    return len(tasks.first) * int(np.minimum(workers, blocks).sum())


def _of_typical_epochs(physical: PhysicalPlan) -> PhysicalPlan:
    """Return the plan with the typical number of epochs, on which its units' estimates are based."""
    known = physical.rates.of(physical.bound.learner.way)
    passes = cost.most_passes(physical.bound.learner, physical.bound.configs, physical.epochs, known)
    sums = physical.bound.learner.access.converges and known.typical_epochs is not None
    return replace(physical, epochs=max(1, passes)) if sums else physical


def _bundles(tasks: SimilarTasks, split: npt.NDArray[np.bool_], most: int) -> list[list[int]]:
    """Return the tasks that stay whole in bundles of about equal cost; the largest tasks are alone."""
    (whole,) = np.nonzero(~split)
    by_cost = whole[np.argsort(-tasks.seconds[whole, 0], kind="stable")].tolist()
    alone = max(1, most // 2)
    rest = by_cost[alone:]
    size = max(1, math.ceil(len(rest) / alone))
    return [*([task] for task in by_cost[:alone]), *(rest[start : start + size] for start in range(0, len(rest), size))]


def _bundled(physical: PhysicalPlan, epochs: int, bundles: Sequence[tuple[SimilarTasks, list[int]]]) -> Miniature:
    """Return the plan of one group per bundle."""
    stats = physical.stats
    units: list[Unit] = []
    groups: list[GroupCount] = []
    for number, (tasks, places) in enumerate(bundles):
        joined = (
            replace(unit, group=number, id=first) for first, unit in enumerate(_joined(tasks, places), len(units))
        )
        units.extend(joined)
        first = stats.groups[tasks.groups[places[0]][0]]
        groups.append(first._replace(n_rows=int(tasks.rows[places].sum())))
    small = replace(physical, units=tuple(units), stats=replace(stats, groups=tuple(groups)))
    counts = tuple(len(places) for _, places in bundles)
    largest = tuple(int(tasks.rows[places].max()) for tasks, places in bundles)
    return Miniature(small, epochs, len(physical.units), counts, largest)


def _joined(tasks: SimilarTasks, places: Sequence[int]) -> list[Unit]:
    """Return the units of a bundle's first task with the cost of all its tasks; a bundle is never split."""
    units = tasks.units(places[0])
    if len(places) == 1 and not units[0].others:
        return units
    costs = tasks.seconds[places].sum(axis=0).tolist()
    return [replace(unit, cost=cost, others=(), stacked=True) for unit, cost in zip(units, costs, strict=True)]
