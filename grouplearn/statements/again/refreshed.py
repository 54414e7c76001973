"""What REFRESH did to each group: decided from the run, and as the statement answers it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from grouplearn.amounts import counted
from grouplearn.catalog.records import ModelDefinition, Outcome, StoredModel
from grouplearn.catalog.schema import table
from grouplearn.models.forms.routed import level_sql
from grouplearn.sqltext import identifier
from grouplearn.store.refreshing import Refreshed, RefreshRun

_UNUSABLE = "the label, the weight or a feature value is missing"
#: In the order of the answer.
_STATUSES = ("new", "updated", "kept", "failed", "unchanged")


def refreshed_groups(
    found: Outcome, definition: ModelDefinition, run: RefreshRun, before: Mapping[int, float], ids: Mapping[int, int]
) -> list[Refreshed]:
    """Return what became of each group that was trained; ``ids`` are the catalog's numbers by those of the run.

    With ON WORSE KEEP, a group keeps its earlier model if the new one has a worse metric on the held-out rows.
    """
    groups, going_on = [], frozenset(run.going_on)
    after, reasons = _metrics(found, definition), _reasons(found)
    for group, facts in zip(found.groups, found.facts, strict=True):
        own, number = run.known.get(group.id), group.id
        has_failed = number not in after
        goes_on = number in going_on
        added = group.n_rows - (0 if own is None or run.has_new_rows else own.n_rows)
        old, new = before.get(number), after.get(number)
        entry = Refreshed(
            ids[number], "updated", added, old, new, goes_on=goes_on, adds_rows=goes_on and run.has_new_rows
        )
        has_model = own is not None and own.best is not None
        if has_failed and has_model and run.has_new_rows and facts and not facts.n_train + facts.n_valid:
            reason = f"{_UNUSABLE} in {counted(group.n_rows, 'new row')}"
            entry = Refreshed(ids[number], "unchanged", 0, reason=reason, is_stored=False)
        elif has_failed:
            reason = reasons.get(number, "it failed")
            entry = Refreshed(ids[number], "failed", added, old, None, reason, is_stored=not has_model)
        elif not has_model:
            entry = Refreshed(ids[number], "new", added, old, new)
        elif run.keeps_better and old is not None and new is not None and _is_worse(definition, old, new):
            reason = f"{definition.metric} would be {new:.4g}, and is {old:.4g}"
            entry = Refreshed(ids[number], "kept", added, old, new, reason, is_stored=False)
        elif run.keeps_better and (old is None or new is None):
            why = "no row is held out" if new is None else "it does not predict the rows that are held out"
            entry = replace(entry, reason=f"not compared with the model of before: {why}")
        groups.append(entry)
    return groups


def _metrics(found: Outcome, definition: ModelDefinition) -> dict[int, float | None]:
    """Return the optimized metric of the best trial of each group that has one, on held-out rows, or on all if there is no label
    to learn; None where it is not known."""
    trials, best = found.trials, found.is_best
    values = trials.metric("valid", definition.metric)[best]
    if not definition.label.is_given:
        values = np.where(np.isnan(values), trials.metric("train", definition.metric)[best], values)
    measured = zip(trials.group[best].tolist(), values.tolist(), strict=True)
    return {number: None if math.isnan(value) else value for number, value in measured}


def _reasons(found: Outcome) -> dict[int, str]:
    """Return why the first failed trial of each group failed."""
    return {int(found.trials.group[place]): text for place, text in sorted(found.trials.texts.items(), reverse=True)}


def _is_worse(definition: ModelDefinition, old: float, new: float) -> bool:
    return new < old if definition.greater_is_better else new > old


def answer(model: StoredModel, *, trained: bool) -> str:
    """Return the query of what became of each group; all are unchanged unless REFRESH ``trained`` some."""
    definition, catalog, own = model.definition, model.location.catalog, f"model = '{model.id}'::UUID"
    metric = definition.metric
    columns = [
        *definition.key_columns("g.keys"),
        *([("model_level", level_sql(definition, "g.level"))] if len(definition.sets) > 1 else []),
        ("status", "coalesce(r.status, 'unchanged')"),
        ("rows_added", "coalesce(r.rows_added, 0)"),
        ("n_rows", "g.n_rows"),
        (f"{metric}_before", "r.before"),
        (f"{metric}_after", "r.after"),
        ("reason", "r.reason"),
    ]
    selected = ", ".join(f"{sql} AS {identifier(name)}" for name, sql in columns)
    refreshed = f"FROM {table(catalog, 'refreshed')} WHERE {own} AND {'true' if trained else 'false'}"
    order = f"list_position({list(_STATUSES)}, coalesce(r.status, 'unchanged'))"
    return (
        f"SELECT {selected} FROM {table(catalog, 'groups')} AS g LEFT JOIN ({refreshed}) AS r ON r.group_id = g.group_id"
        f" WHERE g.{own} ORDER BY {order} ASC, g.level ASC, g.group_id ASC"
    )
