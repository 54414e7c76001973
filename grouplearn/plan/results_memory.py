"""The memory that a plan's groups and trial results take: estimated, and refused before any is used."""

from __future__ import annotations

import math
from collections import Counter

from grouplearn.amounts import amount_of_bytes, counted
from grouplearn.bind.clauses.features import BoundItem
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.extract.counts.group_counts import GROUP_BYTES, limit_of
from grouplearn.interrupting import with_checks
from grouplearn.learners import registry
from grouplearn.models.forms.forms import declared_form
from grouplearn.plan.cost import durations as cost
from grouplearn.plan.physical import PhysicalPlan

#: Bytes of a trial's results besides its model, until they are in the database: from the peak memory of runs of a million
#: trials.
TRIAL_BYTES = 600


def trials_of(physical: PhysicalPlan) -> int:
    """Return the number of trials of all groups; for a search procedure, about how many it trains."""
    configs, search = len(physical.bound.configs), physical.bound.search
    return len(physical.stats.groups) * (configs if search is None else search.most_trials(configs))


def results_bytes(physical: PhysicalPlan) -> int:
    """Return the estimated bytes of all groups and of the results of their trials."""
    trials, groups = trials_of(physical), len(physical.stats.groups)
    return groups * GROUP_BYTES + trials * (TRIAL_BYTES + _model_bytes(physical))


def _model_bytes(physical: PhysicalPlan) -> int:
    """Return the bytes of a finished model; with wide items a group has no more columns than its rows use."""
    learner, configs = physical.bound.learner, physical.bound.configs
    rows = math.ceil(physical.stats.n_rows * len(physical.bound.sets) / max(1, len(physical.stats.groups)))
    if declared_form(learner).has_one_weight_per_column:
        wide = sum(
            block.width
            for block, item in zip(physical.feature_blocks(), physical.bound.items, strict=True)
            if _is_wide(item)
        )
        width = physical.width - wide + min(wide, math.ceil(physical.stored * rows))
        return cost.VALUE_BYTES * physical.outputs * (width + 1)
    values = sum(learner.cost.model_values(config, physical.width, physical.outputs, rows) for config in configs)
    return int(learner.cost.resident * cost.VALUE_BYTES * values / max(1, len(configs)))


def _is_wide(item: BoundItem) -> bool:
    return encoder_of(item.stored.item).wide


def _refuse_wide(checker: SqlChecker, physical: PhysicalPlan) -> None:
    """Raise BindError if one model in training does not fit into memory: another solver may need less."""
    learner, limit = physical.bound.learner, limit_of(physical.bound)
    of_level = Counter(group.level for group in with_checks(physical.stats.groups))
    blocks = physical.feature_blocks(min(of_level.values(), default=1))
    for config in physical.bound.configs if declared_form(learner).grows_with_columns else ():
        needed = cost.VALUE_BYTES * learner.cost.most_values(config, blocks, physical.outputs)
        if needed <= limit:
            continue
        columns = counted(sum(block.width for block in blocks), "column")
        by = learner.declaration.solver and f" by {learner.declaration.solver}"
        message = (
            f"{learner.declaration.name}{by} takes about {amount_of_bytes(needed)} of memory for {columns};"
            f" the limit is {amount_of_bytes(limit)}"
        )
        hint = "Use fewer columns, or set a higher memory_limit."
        other = registry.way_within(learner, config, blocks, physical.outputs, limit // cost.VALUE_BYTES)
        if other is not None:
            hint = f"WITH (solver = '{other[0]}') takes about {amount_of_bytes(cost.VALUE_BYTES * other[1])}."
        raise checker.error(message, physical.bound.statement.learner.span, hint)


def refuse_excess(checker: SqlChecker, physical: PhysicalPlan) -> None:
    """Raise BindError, before rows are read, for a plan whose results or one model would not fit into memory."""
    _refuse_wide(checker, physical)
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
