"""The rows of ``profiles``: what each item's values are like in each group, before they are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.kernels import profiles
from grouplearn.kernels.profiles import GroupRuns
from grouplearn.layout.ragged import Ragged
from grouplearn.models.forms.drift import is_profiled
from grouplearn.train.job import Job

#: Most categories of a group that are listed.
MOST_CATEGORIES = 100
#: Columns of numbers that are gone through together: their samples are in memory.
_TOGETHER = 64
_SCHEMA = pa.schema(
    [
        ("group_id", pa.int32()),
        ("item", pa.int32()),
        ("n_rows", pa.int64()),
        ("n_missing", pa.int64()),
        *((name, pa.float64()) for name in ("mean", "deviation", "low", "high")),
        *((name, pa.list_(pa.float64())) for name in ("quantiles", "shares")),
        ("categories", pa.list_(pa.string())),
        ("counts", pa.list_(pa.int64())),
    ]
)


def profile_rows(job: Job) -> Any:
    """Return the rows of ``profiles`` of all groups of a job; None if it keeps none."""
    if not job.profiles:
        return None
    runs, data = _runs_of(job.groups), job.dataset
    groups = _Groups(np.array([group.id for group in job.groups], np.int32), runs, _rows_of(runs))
    numbered = [(place, item) for place, item in enumerate(job.items, start=1) if is_profiled(item)]
    numbers = [each for each in numbered if each[1].is_number]
    tables = [
        *(
            _numbers(numbers[at : at + _TOGETHER], data, groups, job.quantiles)
            for at in range(0, len(numbers), _TOGETHER)
        ),
        *(_categories(place, item, data, groups) for place, item in numbered if item.is_named),
    ]
    data.forget_pages()
    return pa.concat_tables([_SCHEMA.empty_table(), *tables])


def renumbered(rows: Any, numbers: Mapping[int, int]) -> Any:
    """Return rows, or None, of groups with other ``numbers``, by those that they have; rows of all others are left out."""
    if rows is None:
        return None
    mine = rows.filter(pc.is_in(rows["group_id"], pa.array(list(numbers), pa.int32())))
    mapped = pa.array([numbers[each] for each in mine["group_id"].to_pylist()], pa.int32())
    return mine.set_column(mine.column_names.index("group_id"), "group_id", mapped)


class _Groups(NamedTuple):
    """The numbers of groups (G,), their runs of rows, and how many rows they have (G,)."""

    ids: npt.NDArray[np.int32]
    runs: GroupRuns
    n_rows: npt.NDArray[np.int64]


def _runs_of(groups: Sequence[Group]) -> GroupRuns:
    each = [np.array(list(group.ranges), np.int64).reshape(-1, 2) for group in groups]
    first = np.concatenate([[0], np.cumsum([len(own) for own in each])]).astype(np.int64)
    return GroupRuns(np.ascontiguousarray(np.concatenate([np.empty((0, 2), np.int64), *each])), first)


def _rows_of(runs: GroupRuns) -> npt.NDArray[np.int64]:
    before = np.concatenate([[0], np.cumsum(np.diff(runs.runs, axis=1)[:, 0])])
    return np.diff(before[runs.first])


def _numbers(items: Sequence[tuple[int, Item]], data: Dataset, groups: _Groups, quantiles: bool) -> Any:
    """Return the rows of items that are numbers, group by group, with their ``quantiles`` or NULL."""
    parts = profiles.PARTS if quantiles else 1
    found = profiles.of_numbers(data.numeric, groups.runs, [item.column for _, item in items], parts)
    count, known = len(items), found.present.ravel() > 0
    columns = {
        "group_id": pa.array(np.repeat(groups.ids, count)),
        "item": pa.array(np.tile(np.array([place for place, _ in items], np.int32), len(groups.ids))),
        "n_rows": pa.array(np.repeat(groups.n_rows, count)),
        "n_missing": pa.array((groups.n_rows[:, None] - found.present).ravel()),
        **(_quantiles(found) if quantiles else {}),
    }
    for name in ("mean", "deviation", "low", "high"):
        values = getattr(found, name).ravel()
        columns[name] = pa.array(values, mask=~(known & np.isfinite(values)))
    return _table(columns, count * len(groups.ids))


def _quantiles(found: profiles.NumberProfiles) -> dict[str, Any]:
    listed, sizes = np.arange(profiles.PARTS - 1) < found.edges[:, :, None], found.edges.ravel()
    shares = found.upto / np.maximum(found.present, 1)[:, :, None]
    return {"quantiles": _lists(found.quantiles[listed], sizes), "shares": _lists(shares[listed], sizes)}


def _categories(place: int, item: Item, data: Dataset, groups: _Groups) -> Any:
    """Return the rows of an item that is a category."""
    texts = data.dictionary(item)
    found = profiles.of_codes(data.codes, groups.runs, item.column, len(texts), MOST_CATEGORIES)
    named = pa.DictionaryArray.from_arrays(pa.array(found.codes), pa.array(texts, pa.string())).cast(pa.string())
    columns = {
        "group_id": pa.array(groups.ids),
        "item": pa.array(np.full(len(groups.ids), place, np.int32)),
        "n_rows": pa.array(groups.n_rows),
        "n_missing": pa.array(groups.n_rows - found.present),
        "categories": _lists(named, found.listed),
        "counts": _lists(pa.array(found.counts), found.listed),
    }
    return _table(columns, len(groups.ids))


def _lists(values: Any, sizes: npt.NDArray[np.int64]) -> Any:
    return pa.ListArray.from_arrays(Ragged.of_sizes(np.empty(int(sizes.sum())), sizes).start.astype(np.int32), values)


def _table(columns: dict[str, Any], n_rows: int) -> Any:
    return pa.table([columns.get(field.name, pa.nulls(n_rows, field.type)) for field in _SCHEMA], _SCHEMA)
