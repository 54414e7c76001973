"""Notes on labels and keys as they were read: classes learned as numbers, keys that are not exact, groups of single rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from grouplearn.amounts import counted
from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.shard import FloatArray
from grouplearn.train.job import Job

#: From this number on a type has not every whole number.
_EXACT = {"DOUBLE": 2**53, "FLOAT": 2**24}
#: Fewer groups are few, however many rows they have.
_SEVERAL = 10
#: Rows looked at first.
_SOME = 1000


def classes_as_numbers(job: Job, definition: ModelDefinition) -> Iterator[str]:
    """Yield the note on a label of 0 and 1 that is learned as a number; a loss that the statement names is meant so."""
    learner, label = job.trainer, job.dataset.y
    names_a_loss = any(config.get("objective") is not None for config in definition.configs)
    counts = learner.declaration.log_link or learner.declaration.takes_series
    if not definition.label.is_number or counts or names_a_loss or label.ndim > 1:
        return
    if _are_0_or_1(label[:_SOME]) and _are_0_or_1(label) and (label == 0).any() and (label == 1).any():
        known = learner.declaration.classifies
        advice = (
            "WITH (task = 'classification') learns two classes" if known else "logistic_regression learns two classes"
        )
        yield f"{definition.target_name} is 0 or 1, and learned as a number: {advice}"


def _are_0_or_1(label: FloatArray) -> bool:
    return bool(((label == 0) | (label == 1) | np.isnan(label)).all())


def inexact_keys(job: Job, definition: ModelDefinition) -> Iterator[str]:
    """Yield notes on keys of a type that does not tell apart the whole numbers that they are."""
    for place, key in enumerate(definition.keys):
        exact = _EXACT.get(key.type)
        if exact is None:
            continue
        values = {group.keys[place] for group in job.groups} - {None}
        if any(exact <= abs(float(value)) < math.inf for value in values if value is not None):
            yield (
                f"key {key.name} is {key.type} and beyond {exact:,}, where several whole numbers are one:"
                " read ids as BIGINT or VARCHAR"
            )


def nearly_unique_keys(job: Job, definition: ModelDefinition) -> Iterator[str]:
    """Yield the note on keys that make nearly a group of every row."""
    finest = next(iter(job.groups)).level
    n_groups = sum(1 for _ in itertools.takewhile(lambda group: group.level == finest, job.groups))
    n_rows = job.dataset.n_rows
    if definition.keys and n_groups >= _SEVERAL and n_groups > n_rows / 2:
        keys = ", ".join(key.name for key in definition.keys)
        yield f"GROUP BY {keys} makes {counted(n_groups, 'group')} of {n_rows:,} rows: leave out a key that is nearly unique"
