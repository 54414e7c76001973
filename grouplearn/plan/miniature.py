"""A plan as it is simulated: so few units and epochs that planning is a small part of what it plans."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grouplearn.learners.base import Access
from grouplearn.plan import cost
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.workload import Workload

#: Most tasks that are simulated one by one, and how many there are for each worker at least.
MOST_TASKS, TASKS_PER_WORKER = 1000, 8
#: About how many steps of split groups are simulated, and the fewest epochs: further ones take as long as the last.
MOST_STEPS, FEWEST_EPOCHS = 1000, 4


@dataclass(frozen=True, slots=True)
class Miniature:
    """``physical`` with fewer units than the plan has, ``n_units``.

    The groups of a bundle are in ``members``, by the group that stands for them.

    Where ``epochs`` are fewer than the plan's, what they take is known from two numbers of epochs, this and half of it.
    """

    physical: PhysicalPlan
    epochs: int
    n_units: int
    members: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def groups(self, group: int) -> tuple[int, ...]:
        """Return the groups that one stands for."""
        return self.members.get(group, (group,))

    def workload(self, workers: int) -> Workload:
        """Return what operators need to know, with the rows of a bundle as those of its first group."""
        whole = self.physical.workload(workers)
        rows = list(whole.rows)
        for group, members in self.members.items():
            rows[group] = sum(whole.rows[each] for each in members)
        return replace(whole, rows=tuple(rows))

    def shortened(self, epochs: int) -> Miniature:
        """Return the plan of fewer epochs, and so of as much less work."""
        share = epochs / self.physical.epochs
        units = tuple(replace(unit, cost=unit.cost * share) for unit in self.physical.units)
        return replace(self, physical=replace(self.physical, epochs=epochs, units=units), epochs=epochs)


def miniature(physical: PhysicalPlan, workers: int) -> Miniature:
    """Return a plan of which no more is simulated than says how long the whole takes."""
    physical = _of_typical_epochs(physical)
    workload = physical.workload(workers)
    options = physical.bound.options
    if physical.recorded is not None or options.scheduler == "exact":
        return Miniature(physical, physical.epochs, len(physical.units))
    tasks: dict[int, list[Unit]] = defaultdict(list)
    for unit in physical.units:
        tasks[unit.group].append(unit)
    split = [units for units in tasks.values() if _splits(units, workload)]
    cut = sum(len(units) * min(workers, workload.blocks_of(units[0])) for units in split)
    epochs = min(physical.epochs, max(FEWEST_EPOCHS, MOST_STEPS // (2 * cut))) if cut else physical.epochs
    if physical.bound.learner.access is Access.SAMPLING:
        epochs = physical.epochs  # a gang's step is all epochs
    most = max(MOST_TASKS, TASKS_PER_WORKER * workers)
    if len(tasks) <= most:
        return Miniature(physical, epochs, len(physical.units))
    kept = [unit for units in split for unit in units]
    members: dict[int, tuple[int, ...]] = {}
    cut_groups = {units[0].group for units in split}
    for bundle in _bundles([units for group, units in tasks.items() if group not in cut_groups], most):
        members[bundle[0][0].group] = tuple(unit[0].group for unit in bundle)
        kept += _joined(bundle)
    units = tuple(replace(unit, id=number) for number, unit in enumerate(kept))
    return Miniature(replace(physical, units=units), epochs, len(physical.units), members)


def _of_typical_epochs(physical: PhysicalPlan) -> PhysicalPlan:
    """Return the plan of as many epochs as are typically needed, which is what its units' estimates are of."""
    known = physical.rates.of(physical.bound.learner.name)
    passes = max((cost.typical_passes(each, physical.epochs, known) for each in physical.bound.configs), default=1)
    sums = physical.bound.learner.access is Access.ALGEBRAIC and known.typical_epochs is not None
    return replace(physical, epochs=max(1, passes)) if sums else physical


def _splits(units: Sequence[Unit], workload: Workload) -> bool:
    first = units[0]
    return not first.stays_whole and workload.rows[first.group] > workload.block_rows


def _bundles(tasks: Sequence[list[Unit]], most: int) -> list[list[list[Unit]]]:
    """Return tasks of the same packs and folds, of about equal cost, together: the largest stand alone."""
    alike: dict[tuple[tuple[tuple[int, ...], int, int], ...], list[list[Unit]]] = defaultdict(list)
    for units in tasks:
        alike[tuple((unit.configs, unit.fold, unit.folds) for unit in units)].append(units)
    found: list[list[list[Unit]]] = []
    for same in alike.values():
        by_cost = sorted(same, key=lambda units: (-units[0].cost, units[0].id))
        alone = max(1, most // (2 * len(alike)))
        found += ([units] for units in by_cost[:alone])
        rest = by_cost[alone:]
        size = math.ceil(len(rest) / alone)
        found += (rest[start : start + size] for start in range(0, len(rest), max(1, size)))
    return found


def _joined(bundle: Sequence[list[Unit]]) -> list[Unit]:
    """Return the units of a bundle's first task, with the cost of all; it stays whole."""
    if len(bundle) == 1:
        return bundle[0]
    columns = zip(*bundle, strict=True)
    return [replace(column[0], cost=sum(unit.cost for unit in column), others=(), stacked=True) for column in columns]
