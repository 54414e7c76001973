"""The memory that the groups of a plan and the results of their trials take: told, and refused before it is spent."""

from __future__ import annotations

from grouplearn.amounts import amount_of_bytes, counted
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.extract.group_counts import GROUP_BYTES, limit_of
from grouplearn.plan.cost import durations as cost
from grouplearn.plan.physical import PhysicalPlan

#: Bytes of the results of a trial besides its model, until they are in the database: the peak of trainings of a million trials.
TRIAL_BYTES = 600


def trials_of(physical: PhysicalPlan) -> int:
    """Return the trials of all groups; of a search procedure, about how many it trains."""
    configs, search = len(physical.bound.configs), physical.bound.search
    return len(physical.stats.groups) * (configs if search is None else search.most_trials(configs))


def results_bytes(physical: PhysicalPlan) -> int:
    """Return the estimated bytes of all groups and of what their trials leave."""
    trials, groups = trials_of(physical), len(physical.stats.groups)
    return groups * GROUP_BYTES + trials * (TRIAL_BYTES + _model_bytes(physical))


def _model_bytes(physical: PhysicalPlan) -> int:
    learner, configs = physical.bound.learner, physical.bound.configs
    if learner.form == "linear":
        return cost.VALUE_BYTES * physical.outputs * (physical.width + 1)
    size = cost.state_bytes(learner, configs, physical.width, physical.outputs) // max(1, len(configs))
    return int(learner.cost.resident * size)


def refuse_excess(checker: SqlChecker, physical: PhysicalPlan) -> None:
    """Raise BindError for a plan whose results would not fit into memory: before its rows are read."""
    needed, limit = results_bytes(physical), limit_of(physical.bound)
    if needed <= limit:
        return
    statement, groups = physical.bound.statement, len(physical.stats.groups)
    trials = trials_of(physical)
    what = f"{counted(trials, 'trial')} of {counted(groups, 'group')}"
    message = (
        f"the results of {what} take about {amount_of_bytes(needed)} of memory; the limit is {amount_of_bytes(limit)}"
    )
    hint = "Train fewer groups (WHERE, HAVING count(*) >= n)"
    if trials > groups:
        hint += ", or try fewer configurations (OVER RANDOM (...) WITH (trials = n))"
    span = statement.search.span if statement.search and trials > groups else statement.source.span
    raise checker.error(message, span, f"{hint}, or set a higher memory_limit.")
