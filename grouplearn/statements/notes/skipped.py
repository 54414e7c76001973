"""Why rows of groups were skipped, and how many of them will have no prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from grouplearn.catalog.notes import MUCH_SKIPPED
from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.models.definition import ItemColumn
from grouplearn.statements.notes.best_trials import BestTrials
from grouplearn.train.job import GroupFacts, Job

#: The reasons are counted for at most so many groups, those with the largest share of skipped rows.
_MOST_GROUPS = 200
#: Rows looked at together.
_ROWS = 1 << 17


def skipped_rows(job: Job, definition: ModelDefinition, best: BestTrials) -> Mapping[int, str]:
    """Return by group number the note on groups of which many rows were skipped."""
    shares = [(facts.n_skipped / (group.n_rows - facts.n_ahead), group, facts) for group, facts in best.skipping()]
    much = sorted((each for each in shares if each[0] > MUCH_SKIPPED), key=lambda each: (-each[0], each[1].id))
    required = [entry for entry in definition.items if _is_required(job, entry.item)]
    return {group.id: _note(job, definition, required, group, facts) for _, group, facts in much[:_MOST_GROUPS]}


def _is_required(job: Job, item: Item) -> bool:
    """Return whether a row without this feature is skipped, and has no prediction."""
    encoder, handles_missing = encoder_of(item), job.trainer.declaration.handles_missing
    filled = item.impute is not None or encoder.fills
    return not filled and (encoder.required or (not handles_missing and (item.is_numeric or item.kind == "category")))


def _note(job: Job, definition: ModelDefinition, required: list[ItemColumn], group: Group, facts: GroupFacts) -> str:
    # Rows of the steps after the last label of a series are not skipped.
    skipped, n_rows, unlabelled = facts.n_skipped, group.n_rows - facts.n_ahead, -facts.n_ahead
    unweighted, unpredicted = 0, 0
    missing, infinite = np.zeros((2, len(required)), np.int64)
    for rows in _parts(group):
        part = job.dataset.rows(rows.start, rows.stop)
        unlabelled += int((~part.has_label()).sum())
        unweighted += int((part.weight == 0).sum())
        masks = np.array([_is_missing(part, entry.item) for entry in required], bool).reshape(
            len(required), part.n_rows
        )
        missing += masks.sum(axis=1)
        infinite += np.array([_n_infinite(part, entry.item) for entry in required], np.int64)
        unpredicted += int(masks.any(axis=0).sum())
        part.forget_pages()
    reasons = [
        (int(missing[place]), f"{entry.item.name} is {_what(missing[place], infinite[place])} in", _filled(entry))
        for place, entry in enumerate(required)
    ]
    reasons.append((unlabelled, f"{definition.target_name} is NULL in", ""))
    count, why, _ = max(reasons, key=lambda each: each[0])
    if not count or skipped - unweighted <= MUCH_SKIPPED * n_rows:
        return ""  # who gives a row no weight wants it skipped
    text = f"{skipped:,} of {n_rows:,} rows are skipped, as {why} {count:,}"
    if not unpredicted:
        return text
    advice = max(reasons[: len(required)], key=lambda each: each[0])[2]
    return f"{text}, and {unpredicted:,} will predict NULL: {advice} fills them"


def _parts(group: Group) -> Iterator[slice]:
    for start, stop in group.ranges:
        for first in range(start, stop, _ROWS):
            yield slice(first, min(first + _ROWS, stop))


def _is_missing(part: Dataset, item: Item) -> np.typing.NDArray[np.bool_]:
    if item.kind == "category":
        return part.codes[:, item.column] < 0
    columns = part.numeric[:, item.column : item.column + item.numbers]
    return ~np.asarray(np.isfinite(columns).all(axis=1))


def _n_infinite(part: Dataset, item: Item) -> int:
    columns = part.numeric[:, item.column : item.column + item.numbers] if item.kind != "category" else np.empty((0, 0))
    return int(np.isinf(columns).any(axis=1).sum())


def _what(missing: int, infinite: int) -> str:
    return "infinite" if 0 < infinite == missing else "missing or infinite" if infinite else "missing"


def _filled(entry: ItemColumn) -> str:
    """Return the feature that has a value in every row."""
    sql = entry.written.strip()
    if encoder_of(entry.item).required:
        return f"{entry.item.name} = coalesce(..., 0)"
    return f"impute({sql})" if entry.item.kind == "numeric" else f"coalesce({sql}, ...)"
