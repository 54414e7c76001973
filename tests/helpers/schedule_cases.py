"""What random schedules have in common: units that train some groups, and when their training ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from grouplearn.schedule.messages import Unit
from grouplearn.schedule.workload import Workload
from helpers.schedule_cluster import Rules


def units_of(draw: st.DrawFn, packs: Sequence[int], folds: int = 1) -> tuple[Unit, ...]:
    """Return as many units of each group as it has packs, each in a fold or in none, of any cost."""
    homes = [group for group, number in enumerate(packs) for _ in range(number)]
    return tuple(
        Unit(number, group, (number,), draw(st.integers(-1, folds - 1)), draw(st.sampled_from([0.0, 1.0, 5.0])))
        for number, group in enumerate(homes)
    )


def rules_of(workload: Workload, stop: int, **more: Any) -> Rules:
    """Return the rules of a workload whose units are done after ``stop`` epochs, every other one an epoch later."""
    rules = Rules(
        blocks=workload.blocks_of,
        epochs=workload.epochs,
        stops=lambda unit, epoch: epoch >= stop + unit.id % 2,
        evaluate_epochs=workload.evaluate_epochs,
        sequential=workload.access == "sequential",
    )
    return replace(rules, **more)
