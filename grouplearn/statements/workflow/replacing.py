"""Prevents TRAIN OR REPLACE, and resumed runs, from replacing a model that predicts with one in which no group has a model."""

from __future__ import annotations

from collections import Counter

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.identities import identity_at
from grouplearn.catalog.records import ModelDefinition, RunOutcome
from grouplearn.catalog.schema import current_database, table
from grouplearn.errors import TrainingError
from grouplearn.messages import Span, without_counts
from grouplearn.statements.context import StatementContext


def refuse_loss(
    definition: ModelDefinition, outcome: RunOutcome, span: Span, checker: SqlChecker, at: StatementContext
) -> None:
    """Raise TrainingError if no group has a model, but the existing model of that name has some."""
    if outcome.has_model:
        return
    catalog = definition.catalog or current_database(at.connection)
    before = identity_at(at.connection, catalog, definition.schema, definition.name)
    usable = f"SELECT 1 FROM {table(catalog, 'groups')} WHERE model = ?::UUID AND best IS NOT NULL LIMIT 1"
    if before is None or not at.databases.rows(usable, [before.id]):
        return
    trials = (trial for group in outcome.every_group(definition.metric) for trial in group.trials)
    reasons = [trial.reason or "it failed" for trial in trials]
    (most, _), *others = Counter(map(without_counts, reasons)).most_common(2)
    reason = next(each for each in reasons if without_counts(each) == most)
    raise TrainingError(
        f'every trial failed, and model "{definition.name}" stays as it was: {reason}'
        + (", and for other reasons" if others else ""),
        text=checker.text,
        span=span,
        hint="Train under another name to see the reasons of all groups, or DROP MODEL first.",
    )
