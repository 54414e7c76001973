"""The options and plan rules of averaging and parameter_server, and the plan rules of coordinate_descent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from grouplearn.schedule.averages import OUTER_MOMENTUM, PARTITIONS, REDUCE, SEND, STALENESS, SYNC, Averages
from grouplearn.schedule.messages import Push, Unit, is_possible_order
from grouplearn.schedule.options import REPLAY, Contradiction
from grouplearn.schedule.plan_rules import PlanRules, Pushes, Repeats
from grouplearn.schedule.rounds import averaging, facts
from grouplearn.schedule.rounds.averaging import Averaging, partitions_of
from grouplearn.schedule.workload import Workload

if TYPE_CHECKING:
    from grouplearn.learners.contract.learner import Learner

OF_AVERAGING = (PARTITIONS, SEND, SYNC, OUTER_MOMENTUM, REDUCE)
OF_SERVER = (PARTITIONS, SYNC, STALENESS, REPLAY)


def contradiction(given: Mapping[str, Any], _: Learner | None) -> Contradiction | None:
    """Return why options of a parameter server cannot be given together."""
    if "early_stopping" not in given or not given.get(STALENESS.name, STALENESS.default):
        return None
    message = "early_stopping looks at one model after every epoch, and with a staleness no model has seen all partitions then"
    hint = f"Add staleness = 0, or use operator = '{Averaging.name}'."
    return Contradiction("early_stopping", message, hint)


def prepare(workload: Workload, options: Mapping[str, Any], workers: int) -> Workload:
    """Return the workload with averages as the options say: unless they give partitions, one for each of the workers."""
    return replace(workload, averages=Averages.of(options, workers))


def prepared(workload: Workload) -> Mapping[str, Any]:
    """Return the options by which the workload was prepared."""
    averages = workload.averages
    return {
        PARTITIONS.name: averages.partitions,
        REDUCE.name: averages.reduce,
        SEND.name: averages.send,
        SYNC.name: averages.batches or SYNC.default,
        OUTER_MOMENTUM.name: averages.momentum,
        STALENESS.name: averages.staleness,
    }


def _rounds(unit: Unit, workload: Workload) -> int:
    cuts = partitions_of(unit, workload)
    return averaging.rounds_of_epoch(cuts, unit, workload) if len(cuts) > 1 else 1


def _pushed(options: Mapping[str, Any], pushes: Pushes) -> Mapping[str, Any]:
    """Return as many partitions as pushed, unless the statement gives a number."""
    pushed = max((push.partition + 1 for each in pushes.values() for push in each), default=1)
    return {PARTITIONS.name: options[PARTITIONS.name] or pushed}


def _contradiction(
    model: str, pushes: Pushes, units: Sequence[Unit], workload: Workload, options: Mapping[str, Any]
) -> str | None:
    staleness = options[STALENESS.name]
    if not any(pushes.values()) and staleness:
        return f"{model} has no order of pushes: staleness = 0, no group of two partitions, or a run that went on from disk"
    if pushes and not staleness:
        return f"{model} was trained with a staleness, and this statement has staleness = 0"
    if not all(is_possible_order(each) for each in pushes.values()):
        return f"the pushes of {model} cannot have been in that order"
    if not all(_fits(workload, unit, pushes.get(unit.id, ())) for unit in units):
        return f"{model} was trained in other partitions, or in more epochs or rounds"
    return None


def _fits(workload: Workload, unit: Unit, pushes: Sequence[Push]) -> bool:
    """Return whether a unit has these partitions, each in so many rounds."""
    cuts, counts = partitions_of(unit, workload), Counter(push.partition for push in pushes)
    most = workload.epochs * averaging.rounds_of_epoch(cuts, unit, workload) if counts else 0
    return all(partition < len(cuts) and count <= most for partition, count in counts.items())


_ONE_ROUND: Mapping[str, Any] = {SYNC.name: SYNC.default}
AVERAGING = PlanRules(rounds=_rounds, one_round=_ONE_ROUND, words=facts.averaging_words)
SERVER = PlanRules(
    rounds=_rounds,
    one_round=_ONE_ROUND,
    words=facts.server_words,
    repeats=Repeats(options=_pushed, validation_error=_contradiction),
)
DESCENT = PlanRules(words=facts.descent_words)
