"""EXPLAIN REFRESH: what would be read and trained, in what time and at what price."""

from __future__ import annotations

from dataclasses import replace

from grouplearn.amounts import counted, plural, rounded_seconds
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.parser.statements import ExplainRefresh
from grouplearn.plan.explain import facts
from grouplearn.plan.explain.text import aligned
from grouplearn.plan.operator_choice import Choice
from grouplearn.plan.physical import PhysicalPlan, plan
from grouplearn.plan.retrying import cut
from grouplearn.statements import result_sql
from grouplearn.statements.again.refresh import rows_to_refresh
from grouplearn.statements.again.rows import Planned, RowsToRefresh
from grouplearn.statements.context import StatementContext
from grouplearn.statements.workflow import planning
from grouplearn.statements.workflow.streams import refuse

#: Number of further rows whose time and price are estimated.
_MORE = 1_000_000
#: What models go on from.
_FROM = {"sums": "sums over their rows", "passes": "weights and optimizer", "models": "trees"}


def explain_refresh(statement: ExplainRefresh, checker: SqlChecker, at: StatementContext) -> str:
    """Return a query of what a REFRESH would do."""
    refuse(statement.refresh, checker, at)
    with at.databases.transaction():
        rows = rows_to_refresh(statement.refresh, checker, at)
        planned = rows.planned(*rows.bound())
    if not planned.numbers:
        return result_sql.column("plan", ["nothing to train: no group has new rows, or others than before"])
    choice = planning.choose(planned.physical, at.cancelled, every=True)
    return result_sql.column("plan", [*_summary(rows, planned, choice), *_details(planned, choice, at)])


def _summary(rows: RowsToRefresh, planned: Planned, choice: Choice) -> list[str]:
    physical, n_groups = planned.physical, len(planned.numbers)
    n_rows = sum(physical.stats.groups[number].n_rows for number in planned.numbers)
    going_on = sum(each.goes_on for each in planned.earlier.values())
    anew = len(planned.known) - going_on
    unchanged = len(rows.groups) - len(planned.known) - len(planned.without_state)
    warm = f", warm from {plural(anew, 'its', 'their')} weights" if rows.starts_warm else ""
    every = (
        (going_on, f"{plural(going_on, 'goes', 'go')} on from {_FROM.get(rows.source or '', '')}"),
        (anew, f"{plural(anew, 'is', 'are')} trained anew{warm}, as {plural(anew, 'its', 'their')} rows have changed"),
        (len(planned.new), f"{plural(len(planned.new), 'is', 'are')} new"),
        (len(planned.without_state), "cannot go on: no state is kept"),
        (unchanged, f"{plural(unchanged, 'stays', 'stay')} as {plural(unchanged, 'it is', 'they are')}"),
    )
    seconds = rounded_seconds(planning.estimate(physical, choice))
    head = f"about {seconds} to train {counted(n_groups, 'group')} on {counted(n_rows, 'row')}"
    return [head, "Groups", *(f"  {counted(count, 'group')} {what}" for count, what in every if count)]


def _details(planned: Planned, choice: Choice, at: StatementContext) -> list[str]:
    physical = planned.physical
    more = _with_more_rows(planned)
    further = planning.estimate(more, planning.choose(more, at.cancelled)) - planning.estimate(physical, choice)
    price = physical.bound.options.placement.node_price
    cost = "" if price is None else f", {max(0.0, further) / 3600 * choice.workers * price:.2g} in money"
    return [
        f"Operators (simulated, {counted(choice.simulated, 'worker')})",
        *(f"  {line}" for line in aligned(facts.operator_table(physical, choice))),
        "Choice",
        *(f"  {line}" for line in facts.choices(physical, choice)),
        f"One more million rows: about {rounded_seconds(max(0.0, further))} more{cost}",
    ]


def _with_more_rows(planned: Planned) -> PhysicalPlan:
    """Return the plan of the same groups with a million rows more, in the same shares."""
    physical, trained = planned.physical, frozenset(planned.numbers)
    stats = physical.stats
    n_rows = sum(stats.groups[number].n_rows for number in trained)
    factor = 1 + _MORE / max(1, n_rows)
    groups = tuple(
        group._replace(n_rows=round(group.n_rows * factor)) if number in trained else group
        for number, group in enumerate(stats.groups)
    )
    grown = replace(stats, groups=groups, n_rows=stats.n_rows + _MORE)
    wanted: dict[int, set[int]] = {}
    for unit in physical.units:
        for group in unit.groups:
            wanted.setdefault(group, set()).update(unit.configs)
    larger = plan(physical.bound, grown, physical.rates)
    return replace(larger, units=cut(larger.units, wanted))
