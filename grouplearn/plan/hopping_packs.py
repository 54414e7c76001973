"""The packs that hop: enough to keep all workers busy; and whether an operator can schedule the units that there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.plan.physical import PhysicalPlan, repacked
from grouplearn.schedule.operators import OPERATORS, searches


def planned_for(physical: PhysicalPlan, operator: str, workers: int) -> PhysicalPlan:
    """Return the plan with the packs that ``operator`` runs: packs that hop are cut until every worker has one to train.

    As many packs of a group can train at a time as it has shards; groups that stay whole keep their packs, as does a
    repeated run. Before: one pack of 12 configs, 4 workers. After: 4 packs of 3.
    """
    cut_into = OPERATORS[operator].plan.shards
    if cut_into is None or physical.recorded is not None or not _has_shards(physical):
        return physical
    shards = cut_into(physical.units, physical.workload(workers))
    if not shards:
        return physical
    wanted = max(map(len, shards.values()))
    packs = tuple(dict.fromkeys(unit.configs for unit in physical.units if unit.group in shards))
    cut = [unit for unit in repacked(physical, cut_packs(packs, wanted)).units if unit.group in shards]
    whole = [unit for unit in physical.units if unit.group not in shards]
    every = sorted((*whole, *cut), key=lambda unit: (unit.group, unit.id))
    return replace(physical, units=tuple(replace(unit, id=number) for number, unit in enumerate(every)))


def _has_shards(physical: PhysicalPlan) -> bool:
    """Whether any group can be split; units are not looked at where all of many thousand groups are small."""
    return any((~tasks.whole & (tasks.rows > physical.block_rows)).any() for tasks in physical.alike)


def cut_packs(packs: Sequence[tuple[int, ...]], wanted: int) -> tuple[tuple[int, ...], ...]:
    """Return the packs cut evenly into the largest pieces that make ``wanted`` of them, at most one per config."""
    most = max(map(len, packs), default=1)
    while most > 1 and sum(math.ceil(len(pack) / most) for pack in packs) < wanted:
        most -= 1
    return tuple(piece for pack in packs for piece in _evenly(pack, math.ceil(len(pack) / most)))


def _evenly(pack: tuple[int, ...], pieces: int) -> list[tuple[int, ...]]:
    cuts = [len(pack) * number // pieces for number in range(pieces + 1)]
    return [pack[start:end] for start, end in itertools.pairwise(cuts)]


def check_units(checker: SqlChecker, physical: PhysicalPlan) -> PhysicalPlan:
    """Return the plan; raise where the operator that is asked for cannot schedule its units with its options."""
    workers, operator = physical.workers, physical.bound.options.placement.operator
    if operator not in OPERATORS or not searches(operator, physical.bound.options.of_operators):
        return physical
    planned = planned_for(physical, operator, workers)
    found = OPERATORS[operator].plan.refuses(planned.units, planned.workload(workers))
    if found is not None:
        options = physical.bound.statement.options
        span = next((each.value.span for each in options if each.name.value.casefold() == found.option), None)
        raise checker.error(found.message, span, found.hint)
    return physical
