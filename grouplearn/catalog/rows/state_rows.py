"""What models are refreshed from, as rows of ``states``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.checks.fragments import is_simple_type
from grouplearn.catalog.records import Outcome, StoredModel, Watermark
from grouplearn.catalog.schema import table
from grouplearn.data.tensors import of_parts, parts
from grouplearn.interrupting import with_checks
from grouplearn.train.results.trials import BoolArray

#: Rows that are made together.
_TOGETHER = 1 << 14


def states(outcome: Outcome, wanted: BoolArray | None = None) -> Iterator[Any]:
    """Yield the rows of ``states`` of the best trials, or of those among the ``wanted`` (T,)."""
    chosen = outcome.is_best if wanted is None else outcome.is_best & wanted
    rows: list[tuple[int, str, bytes, str]] = []
    for models in with_checks(outcome.trials.models):
        if models.states is None:
            continue
        for at in np.flatnonzero(chosen[models.places] & (models.states.of >= 0)).tolist():
            layout, content = parts(models.states.contents[int(models.states.of[at])])
            rows.append((int(outcome.trials.group[models.places[at]]), layout, content, _digest(layout, content)))
            if len(rows) == _TOGETHER:
                yield _table(rows)
                rows = []
    yield _table(rows)


def _table(rows: list[tuple[int, str, bytes, str]]) -> Any:
    columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    kinds = (pa.int32(), pa.string(), pa.binary(), pa.string())
    return pa.table(
        {
            name: pa.array(column, kind)
            for name, kind, column in zip(("group_id", "layout", "content", "sha256"), kinds, columns, strict=True)
        }
    )


def _digest(layout: str, content: bytes) -> str:
    digest = hashlib.sha256(layout.encode())
    digest.update(content)
    return digest.hexdigest()


def watermarks(given: Watermark | None, learned: Mapping[int, bool]) -> Any:
    """Return the rows of ``watermarks`` of groups, which have a time if they have ``learned`` from their rows."""
    numbers = [] if given is None else list(learned)
    of = {} if given is None else {number: given.latest.get(number, given.others) for number in numbers}
    return pa.table(
        {
            "group_id": pa.array(numbers, pa.int32()),
            "sql": pa.array([given and given.sql] * len(numbers), pa.string()),
            "type": pa.array([given and given.type] * len(numbers), pa.string()),
            "value": pa.array([of[number] if learned[number] else None for number in numbers], pa.string()),
        }
    )


def load_watermark(con: Any, model: StoredModel) -> Watermark | None:
    """Return the latest times of the rows that the groups of a model have learned from; None if it knows no time."""
    where = f"FROM {table(model.location.catalog, 'watermarks')} WHERE model = '{model.id}'::UUID"
    found = con.execute(f"SELECT sql, type, group_id, value {where}").fetchall()
    if not found:
        return None
    sql, kind, *_ = found[0]
    if not is_simple_type(kind):
        raise damaged(model.location.catalog, model.location.name, "watermarks", "a time has no type")
    return Watermark(sql, kind, {number: value for *_, number, value in found if value is not None})


def load_states(con: Any, model: StoredModel) -> dict[int, bytes]:
    """Return the kept states of a model by group, as safetensors files; raises DataError for a damaged one."""
    catalog, name = model.location.catalog, model.location.name
    query = f"SELECT group_id, layout, content, sha256 FROM {table(catalog, 'states')} WHERE model = '{model.id}'::UUID"
    found: dict[int, bytes] = {}
    for group, layout, content, digest in con.execute(query).fetchall():
        if _digest(layout, content) != digest:
            raise damaged(catalog, name, "states", f"the state of group {group} is not what was written")
        found[group] = of_parts(layout, content)
    return found
