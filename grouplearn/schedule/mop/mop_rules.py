"""The options and plan rules of the operator mop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from grouplearn.schedule.messages import Unit
from grouplearn.schedule.mop.hopper import hopping_shards
from grouplearn.schedule.options import REPLAY, Contradiction
from grouplearn.schedule.plan_rules import PlanRules, Repeats
from grouplearn.schedule.workload import REPLICAS, SCHEDULER, Workload

if TYPE_CHECKING:
    from grouplearn.learners.contract.learner import Learner

OPTIONS = (SCHEDULER, REPLICAS, REPLAY)
#: Most sub-epochs per epoch that are scheduled exactly. HiGHS proves the optimum for 30 within 10 s.
MAX_EXACT = 64
_EXACT = "exact"


def contradiction(given: Mapping[str, Any], _: Learner | None) -> Contradiction | None:
    """Return why options cannot be given together."""
    if not {SCHEDULER.name, REPLAY.name} <= given.keys():
        return None
    message = "scheduler and replay contradict each other: replay repeats a recorded schedule"
    return Contradiction(SCHEDULER.name, message, "Leave out one of them.")


def searches(options: Mapping[str, Any]) -> bool:
    """Return whether an exact schedule is searched for."""
    return bool(options[SCHEDULER.name] == _EXACT)


def prepare(workload: Workload, options: Mapping[str, Any], _: int) -> Workload:
    """Return the workload with hops as the options say."""
    replicas = min(workload.workers, options[REPLICAS.name])
    return replace(workload, hops=replace(workload.hops, scheduler=options[SCHEDULER.name], replicas=replicas))


def prepared(workload: Workload) -> Mapping[str, Any]:
    """Return the options by which the workload was prepared."""
    return {SCHEDULER.name: workload.hops.scheduler, REPLICAS.name: workload.hops.replicas}


def _refuses(units: Sequence[Unit], workload: Workload) -> Contradiction | None:
    if workload.hops.scheduler != _EXACT:
        return None
    shards = hopping_shards(units, workload)
    count = sum(len(shards.get(unit.group, ())) for unit in units)
    if count <= MAX_EXACT:
        return None
    message = f"scheduler exact takes at most {MAX_EXACT} sub-epochs an epoch, and this statement has {count:,}"
    return Contradiction(
        SCHEDULER.name, message, "scheduler = 'randomized' takes any number, and is close to the best."
    )


PLAN = PlanRules(shards=hopping_shards, refuses=_refuses, repeats=Repeats(visits=True))
