"""Collects the notes that follow from rows; notes that follow from the stored models are in ``catalog.notes``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from grouplearn.bind.bound import BoundTrain
from grouplearn.catalog.notes import NOTHING_SEEN, DataNotes, RowNotes
from grouplearn.catalog.records import ModelDefinition, RunOutcome
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.statements.notes.best_trials import BestTrials
from grouplearn.statements.notes.deviances import poor_deviances
from grouplearn.statements.notes.features import ids, unscaled
from grouplearn.statements.notes.labels import classes_as_numbers, inexact_keys, nearly_unique_keys
from grouplearn.statements.notes.leaks import leaks
from grouplearn.statements.notes.skipped import skipped_rows
from grouplearn.statements.notes.texts import alike_values, missing_as_class, numbers_as_classes, shown_name
from grouplearn.train.job import Job


def seen_in_rows(
    job: Job, definition: ModelDefinition, outcome: RunOutcome, physical: PhysicalPlan | None = None
) -> DataNotes:
    """Return the notes on the groups of a run; what concerns the whole statement is noted on the first group.

    Notes on the columns of FROM are left out without the statement's plan.
    """
    best, found = BestTrials.of(outcome.found), dict(seen_in_groups(job, definition, outcome))
    first = best.first if best.groups else next(iter(job.groups), None)
    of_columns = tuple(_of_columns(physical)) if best.groups and physical else ()
    with np.errstate(all="ignore"):
        of_statement = tuple(_of_statement(job, definition)) if first else ()
    if first and (of_statement or of_columns):
        own = found.get(first.id, RowNotes())
        found[first.id] = replace(own, urgent=(*own.urgent, *of_statement), mild=of_columns)
    return found


def seen_in_plan(physical: PhysicalPlan) -> DataNotes:
    """Return the notes on a statement whose rows were not kept."""
    return {0: RowNotes(mild=tuple(_of_columns(physical)))}


def seen_in_groups(job: Job, definition: ModelDefinition, outcome: RunOutcome) -> DataNotes:
    """Return the notes on single groups of a run.

    The rows of a group are looked at only if its metrics or its number of skipped rows are suspicious.
    """
    best = BestTrials.of(outcome.found)
    if not best.groups:
        return NOTHING_SEEN
    with np.errstate(all="ignore"):  # rows have numbers of any size, and what overflows is not noted
        poor, skipped = poor_deviances(job, definition, best), skipped_rows(job, definition, best)
        urgent = {group: (note,) for group, note in leaks(job, definition, best).items()}
    return {
        group: RowNotes(poor.get(group), urgent.get(group, ()), skipped.get(group))
        for group in sorted({*poor, *urgent, *skipped})
    }


def _of_columns(physical: PhysicalPlan) -> Iterator[str]:
    """Yield the notes on how FROM was read, and on columns of it that are times, or no features."""
    yield from physical.bound.notes
    yield from _of_times(physical.stats.times)
    yield from _of_validation(physical.bound.left_out)
    yield from _of_series(physical.bound)


def _of_series(bound: BoundTrain) -> Iterator[str]:
    """Yield the notes on the frequency and the season that the times of a series show, and on groups of one series."""
    if bound.series is not None and bound.series.inferred:
        yield from bound.series.doubts
        season = bound.configs[0].get("season_length")
        seasons = f", seasons of {season} steps" if season != 1 else ""
        steps = f"steps of {bound.series.frequency.words}{seasons}"
        yield f"{steps}, by the times in {bound.series.time.text.strip()}"
    own = bound.learner.declaration
    if own.needs_many_series and bound.series is not None and not bound.series.keys:
        yield f"{own.name} learned from one series per group, which is little: SERIES BY gives it many"


def _of_times(times: Sequence[str]) -> Iterator[str]:
    """Yield the note on rows that are held out at random though they have an order in time."""
    for column in map(shown_name, times[:1]):
        yield f"rows are held out at random though {column} varies: VALIDATE WHERE {column} >= ... judges by later rows"


def _of_validation(left_out: Sequence[str]) -> Iterator[str]:
    """Yield the note on columns that would be features if VALIDATE did not look at them."""
    if left_out:
        are, them = ("is no feature", "it") if len(left_out) == 1 else ("are no features", "them")
        columns = ", ".join(map(shown_name, left_out))
        yield f"{columns} {are}, as VALIDATE looks at {them}: list FEATURES to learn from {them}, too"


def _of_statement(job: Job, definition: ModelDefinition) -> Iterator[str]:
    """Yield the notes on the label, the keys and the features, the worst first."""
    yield from inexact_keys(job, definition)
    yield from numbers_as_classes(definition)
    yield from missing_as_class(definition)
    yield from classes_as_numbers(job, definition)
    yield from nearly_unique_keys(job, definition)
    yield from ids(job, definition)
    yield from unscaled(job, definition)
    yield from alike_values(job, definition)
