"""A plan as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.amounts import counted
from grouplearn.plan.explain import facts as explain
from grouplearn.plan.explain.measured import Measured, comparison
from grouplearn.plan.operator_choice import Choice
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.visible import visible


def explain_text(physical: PhysicalPlan, choice: Choice, measured: Measured | None = None) -> list[str]:
    """Return the plan, a summary and then a line per fact; if it ran, with measurements beside estimates."""
    simulated = f"Operators (simulated, {counted(choice.simulated, 'worker')})"
    return [
        visible(explain.summary(physical, choice)),
        *_section("Logical plan", explain.logical_plan(physical).lines()),
        *_section("Physical plan", explain.physical_plan(physical, choice).lines()),
        *_section("Groups", explain.skew(physical)),
        *_section("Trials", explain.trials(physical)),
        *_section(simulated, aligned(explain.operator_table(physical, choice))),
        *_section("Choice", explain.choices(physical, choice)),
        *([] if measured is None else _section("Measured", _measured(measured))),
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines: the first and last column left-aligned, numbers right-aligned."""
    last = len(rows[0]) - 1
    widths = [max(len(row[column]) for row in rows) for column in range(last)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(row[column].rjust(widths[column]) for column in range(1, last)),
                row[last],
            ]
        ).rstrip()
        for row in rows
    ]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [title, *(f"  {visible(line)}" for line in lines)]


def _measured(measured: Measured) -> list[str]:
    table = [(what, estimate, seen, "") for what, estimate, seen in comparison(measured)]
    return [*aligned([("", "estimated", "measured", ""), *table]), measured.verdict]
