"""Which earlier models a run replaces: groups that fail keep their model, or the statement fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.identities import Identity, identity_at
from grouplearn.catalog.records import ModelDefinition, RunOutcome
from grouplearn.catalog.schema import current_database, table
from grouplearn.data.dataset import Group
from grouplearn.errors import TrainingError
from grouplearn.messages import Span, without_counts
from grouplearn.statements.context import StatementContext
from grouplearn.store.keeping import KeptModels, keep_models


def replacing(
    definition: ModelDefinition, outcome: RunOutcome, span: Span, checker: SqlChecker, at: StatementContext
) -> KeptModels:
    """Return the run as it is to be stored, with the models that failed groups keep.

    Raises TrainingError if a group failed and the statement says ON GROUP FAILURE ERROR, or if no group has a model but the
    existing model of that name has some. The caller holds the transaction.
    """
    catalog = definition.catalog or current_database(at.connection)
    failed = outcome.found.failed_groups()
    before = identity_at(at.connection, catalog, definition.schema, definition.name) if failed else None
    refuse_failures(definition, outcome, failed, before, span, checker)
    _refuse_loss(definition, outcome, before, span, checker, at)
    return keep_models(at.connection, before, definition, outcome, failed)


def refuse_failures(
    definition: ModelDefinition,
    outcome: RunOutcome,
    failed: Collection[Group],
    before: Identity | None,
    span: Span,
    checker: SqlChecker,
) -> None:
    """Raise TrainingError if a group ``failed`` and the statement says ON GROUP FAILURE ERROR."""
    if definition.group_failure != "error" or not failed:
        return
    stays = "nothing was stored" if before is None else f'model "{definition.name}" stays as it was'
    first = min(failed, key=lambda group: group.id)
    reason = next(iter(outcome.found.trials.only(first.id).texts.values()), "it failed")
    names = (definition.keys[place].name for place in definition.sets[first.level])
    values = (first.keys[place] for place in definition.sets[first.level])
    named = ", ".join(
        f"{name} = {'NULL' if value is None else value}" for name, value in zip(names, values, strict=True)
    )
    message, hint = f"training failed, and {stays}: {reason}", None
    if definition.keys:
        message = (
            f"{len(failed)} of {len(outcome.found.groups)} groups failed, and {stays}\n{named or 'all rows'}: {reason}"
        )
        hint = "ON GROUP FAILURE KEEP stores the other groups, and under OR REPLACE the failed ones keep their models."
    raise TrainingError(message, text=checker.text, span=span, hint=hint)


def _refuse_loss(
    definition: ModelDefinition,
    outcome: RunOutcome,
    before: Identity | None,
    span: Span,
    checker: SqlChecker,
    at: StatementContext,
) -> None:
    """Raise TrainingError if no group has a model, but the existing model of that name has some."""
    if (outcome.found.best >= 0).any() or before is None:
        return
    groups = table(before.location.catalog, "groups")
    usable = f"SELECT 1 FROM {groups} WHERE model = ?::UUID AND best IS NOT NULL LIMIT 1"
    if not at.databases.rows(usable, [before.id]):
        return
    trials = outcome.found.trials
    reasons = [trials.texts.get(place, "it failed") for place in range(len(trials))]
    (most, _), *others = Counter(map(without_counts, reasons)).most_common(2)
    reason = next(each for each in reasons if without_counts(each) == most)
    raise TrainingError(
        f'every trial failed, and model "{definition.name}" stays as it was: {reason}'
        + (", and for other reasons" if others else ""),
        text=checker.text,
        span=span,
        hint="Train under another name to see the reasons of all groups, or DROP MODEL first.",
    )
