"""Notes on features that are nearly unique per row, as ids are, and on features of very different sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grouplearn.bind.auto.choice import NAMED_ID
from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.encoding import types
from grouplearn.data.shard import FloatArray
from grouplearn.models.definition import ItemColumn
from grouplearn.train.job import Job

#: Fewer rows say little about how often values repeat.
_FEWEST = 100
#: The share of different values that counts as nearly unique.
_NEARLY = 0.95
#: How much more one feature may vary than another before it is all that counts.
_TIMES = 100
#: Rows looked at: first some, and then at most these.
_SOME, _MOST = 1000, 1 << 20


def ids(job: Job, definition: ModelDefinition) -> Iterator[str]:
    """Yield a note on the features that are nearly unique per row: texts, and whole numbers that are called an id or are
    without gaps. Where there is no other feature, it is meant to be one."""
    if job.dataset.n_rows <= _FEWEST:
        return
    found = [entry.item.name for entry in definition.items if _is_id(job, entry)]
    if found and len(found) < len(definition.items):
        what, it = ("features", "them") if len(found) > 1 else ("feature", "it")
        have = "have" if len(found) > 1 else "has"
        yield f"{what} {', '.join(found[:3])} {have} another value in nearly every row, as an id: leave {it} out"


def unscaled(job: Job, definition: ModelDefinition) -> Iterator[str]:
    """Yield a note on the numbers that vary most and least, where only the largest count for the learner."""
    if not job.trainer.declaration.needs_scaling or job.trainer.declaration.takes_series:
        return
    entries = [entry for entry in definition.items if entry.item.kind == "numeric" and entry.item.encoder == "none"]
    values = {entry.item.name: _known(job.dataset.numeric[:_SOME, entry.item.column]) for entry in entries}
    varying = {name: size for name, some in values.items() if some.size and (size := float(np.std(some))) > 0}
    if len(varying) > 1:
        most, least = max(varying, key=varying.__getitem__), min(varying, key=varying.__getitem__)
        times = varying[most] / varying[least]
        if times >= _TIMES:
            written = {entry.item.name: entry.written for entry in entries}
            advice = f"FEATURES (zscore({written[most]}, {written[least]}, ...)) lets both count"
            yield f"{most} varies {times:,.0f} times as much as {least}, which hardly counts beside it: {advice}"


def _is_id(job: Job, entry: ItemColumn) -> bool:
    item, data = entry.item, job.dataset
    if item.is_named:
        return len(data.dictionary(item)) >= _NEARLY * data.n_rows
    if item.kind != "numeric" or types.kind(entry.type) != "numeric":
        return False
    some = _known(data.numeric[:_SOME, item.column])
    named = NAMED_ID.fullmatch(item.name) is not None
    if not (named or types.fits_bigint(entry.type)) or not _are_unique(some):
        return False
    values = _known(data.numeric[:_MOST, item.column])
    without_gaps = float(np.ptp(values)) < 2 * values.size
    return (named or without_gaps) and bool((values == np.floor(values)).all()) and _are_unique(values)


def _known(values: np.typing.NDArray[np.floating]) -> FloatArray:
    known: FloatArray = values[np.isfinite(values)].astype(np.float64)
    return known


def _are_unique(values: FloatArray) -> bool:
    return values.size > _FEWEST and np.unique(values).size >= _NEARLY * values.size
