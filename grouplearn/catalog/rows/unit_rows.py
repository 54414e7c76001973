"""The schedule as it ran, as an Arrow table: the rows of ``units``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from grouplearn.catalog.records import RunOutcome
from grouplearn.catalog.rows.run_rows import columns_of
from grouplearn.interrupting import with_checks
from grouplearn.plan.explain.measured import LOST
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import UnitResult


def units(outcome: RunOutcome) -> Any:
    """Return the rows of ``units``: of those that ran step by step, and of the others."""
    whole = [result for result in with_checks(outcome.units) if not (result.steps or result.lost)]
    stepped = [result for result in with_checks(outcome.units) if result.steps or result.lost]
    by_step = columns_of(
        (row for result in stepped for row in _rows_of(result)),
        unit=pa.int32(),
        group_id=pa.int32(),
        configs=pa.list_(pa.int32()),
        fold=pa.int32(),
        kind=pa.string(),
        epoch=pa.int32(),
        first_block=pa.int32(),
        last_block=pa.int32(),
        worker=pa.int32(),
        started=pa.float64(),
        ended=pa.float64(),
        loaded=pa.int64(),
        fetched=pa.int64(),
        pushes=pa.list_(pa.struct({"partition": pa.int32(), "seen": pa.int32()})),
    )
    return pa.concat_tables([by_step, _whole_units(whole, by_step.schema)])


def _whole_units(results: Sequence[UnitResult], schema: Any) -> Any:
    """Return a row per unit and group; the bytes loaded for all groups of a unit count for the first."""
    counts = [len(result.unit.groups) for result in results]
    of_unit = pa.array(np.repeat(np.arange(len(results)), counts))
    first = np.zeros(len(of_unit), dtype=bool)
    first[np.cumsum([0, *counts])[:-1]] = True
    per_unit = {
        "unit": [result.unit.id for result in results],
        "configs": [result.unit.configs for result in results],
        "fold": [None if result.unit.is_final else result.unit.fold for result in results],
        "worker": [result.worker for result in results],
        "started": [result.started for result in results],
        "ended": [result.ended for result in results],
        "loaded": [result.loaded for result in results],
    }
    columns = {name: pa.array(values, schema.field(name).type).take(of_unit) for name, values in per_unit.items()}
    columns["group_id"] = pa.array(
        [group for result in with_checks(results) for group in result.unit.groups], pa.int32()
    )
    columns["kind"] = pa.array(["unit"]).take(pa.array(np.zeros(first.size, np.int8)))
    columns["loaded"] = pa.array(np.where(first, columns["loaded"].to_numpy(), 0), pa.int64())
    columns["fetched"] = pa.array(np.zeros(first.size, np.int64))
    for name in ("epoch", "first_block", "last_block", "pushes"):
        columns[name] = pa.nulls(first.size, schema.field(name).type)
    return pa.table(columns).select(schema.names)


def _rows_of(result: UnitResult) -> Iterator[tuple[Any, ...]]:
    """Yield work lost with its worker, then the unit or its steps as they ran."""
    head = _unit_head(result.unit, result.unit.group)
    for lost in result.lost:
        blocks = (None, None) if lost.blocks is None else (lost.blocks.first, lost.blocks.last)
        epoch = None if lost.epoch is None else lost.epoch + 1
        yield (*head, LOST, epoch, *blocks, lost.worker, lost.started, lost.ended, 0, 0, None)
    yield from _step_rows(result) if result.steps else _unit_rows(result)


def _unit_rows(result: UnitResult) -> Iterator[tuple[Any, ...]]:
    """Yield a row per group; the first has the bytes loaded for all."""
    ran = (result.worker, result.started, result.ended)
    for group in result.unit.groups:
        loaded = result.loaded if group == result.unit.group else 0
        yield (*_unit_head(result.unit, group), "unit", None, None, None, *ran, loaded, 0, None)


def _step_rows(result: UnitResult) -> Iterator[tuple[Any, ...]]:
    head = _unit_head(result.unit, result.unit.group)
    for step in result.steps:
        blocks = (None, None) if step.blocks is None else (step.blocks.first, step.blocks.last)
        ran = (step.worker, step.started, step.ended)
        pushed = [{"partition": push.partition, "seen": push.seen} for push in result.pushes]
        pushes = pushed or None if step.kind == "finish" else None
        yield (*head, step.kind, step.epoch + 1, *blocks, *ran, step.loaded, step.fetched, pushes)


def _unit_head(unit: Unit, group: int) -> tuple[Any, ...]:
    return unit.id, group, unit.configs, None if unit.is_final else unit.fold
