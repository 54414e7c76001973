"""The rounds of a plan's epochs, by what its operator declares: how many there are, and what EXPLAIN says of them."""

from __future__ import annotations

from dataclasses import replace

from grouplearn.plan.physical import PhysicalPlan
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.operators import OPERATORS
from grouplearn.schedule.plan_rules import PlanSizes


def describe_rounds(physical: PhysicalPlan, operator: str) -> str:
    """Return a description of an operator's rounds, empty if it has none."""
    words = OPERATORS[operator].plan.words
    return words(sizes_of(physical, physical.workers)) if words else ""


def sizes_of(physical: PhysicalPlan, workers: int) -> PlanSizes:
    """Return the sizes of the plan on this many workers."""
    return PlanSizes(
        work=physical.workload(workers),
        epochs=physical.epochs,
        rounds=rounds_of_epoch(physical, workers),
        packs=tuple(physical.pack_bytes(numbers) for numbers in physical.distinct_packs()),
        leaving=physical.bound.options.placement.address is not None,
    )


def by_rounds(physical: PhysicalPlan, operator: str, workers: int) -> PhysicalPlan:
    """Return the plan with an epoch's rounds as its epochs: all cost the same, so few have to be simulated."""
    declared = OPERATORS[operator].plan
    rounds = rounds_of_epoch(physical, workers) if declared.rounds else 1
    if rounds == 1:
        return physical
    options = physical.bound.options.changed(declared.one_round)
    return replace(physical, epochs=physical.epochs * rounds, bound=replace(physical.bound, options=options))


def rounds_of_epoch(physical: PhysicalPlan, workers: int) -> int:
    """Return the rounds per epoch of the largest group; 1 unless the operator that is asked for has some."""
    rows, asked = physical.stats.rows, OPERATORS.get(physical.bound.options.placement.operator)
    if asked is None or asked.plan.rounds is None or not physical.units:
        return 1
    largest = max(range(len(rows)), key=rows.__getitem__)
    return asked.plan.rounds(Unit(0, largest, physical.units[0].configs), physical.workload(workers))
