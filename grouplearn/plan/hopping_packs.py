"""The packs that hop: as few as keep all workers busy, and how many sub-epochs an exact schedule may have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from grouplearn.plan.judge import Judge
from grouplearn.plan.physical import PhysicalPlan, repacked
from grouplearn.schedule.mop import sub_epochs

#: Most sub-epochs of an epoch that are scheduled exactly. HiGHS proves the optimum of 24 within 10 s and of 30 seldom.
MAX_EXACT = 64


def planned_for(physical: PhysicalPlan, operator: str, workers: int) -> PhysicalPlan:
    """Return the plan with the packs that ``operator`` runs: those of mop are cut until all workers have one to train.

    A group with a share s of all rows lies on about s p of p workers, and as many of its packs can be trained at a time.
    Before: one pack of 12 configs, 4 workers. After: 4 packs of 3. Packs of a run that is repeated are as they were.
    """
    if operator != "mop" or physical.recorded is not None or not physical.units:
        return physical
    rows = [group.n_rows for group in physical.stats.groups]
    wanted = min(workers, math.floor(workers * max(rows) / max(1, sum(rows))) + 1)
    packs = tuple(dict.fromkeys(unit.configs for unit in physical.units))
    return repacked(physical, cut_packs(packs, wanted))


def cut_packs(packs: Sequence[tuple[int, ...]], wanted: int) -> tuple[tuple[int, ...], ...]:
    """Return the packs cut evenly into pieces, as large as possible, until there are ``wanted`` of them or one per config."""
    most = max(map(len, packs), default=1)
    while most > 1 and sum(math.ceil(len(pack) / most) for pack in packs) < wanted:
        most -= 1
    return tuple(piece for pack in packs for piece in _evenly(pack, math.ceil(len(pack) / most)))


def _evenly(pack: tuple[int, ...], pieces: int) -> list[tuple[int, ...]]:
    cuts = [len(pack) * number // pieces for number in range(pieces + 1)]
    return [pack[start:end] for start, end in itertools.pairwise(cuts)]


def check_exact(judge: Judge, physical: PhysicalPlan) -> PhysicalPlan:
    """Return the plan; raise where an exact schedule is asked for and would take too long to find."""
    if physical.bound.options.scheduler != "exact":
        return physical
    workers = physical.workers
    planned = planned_for(physical, "mop", workers)
    count = sub_epochs(planned.units, planned.workload(workers))
    if count > MAX_EXACT:
        options = physical.bound.statement.options
        span = next(option.value.span for option in options if option.name.value.casefold() == "scheduler")
        message = f"scheduler exact takes at most {MAX_EXACT} sub-epochs an epoch, and this statement has {count:,}"
        raise judge.error(message, span, "scheduler = 'randomized' takes any number, and is close to the best.")
    return physical
