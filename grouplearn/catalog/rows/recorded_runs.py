"""Reads a stored run for WITH (replay): which unit visited which blocks in which order, or which partitions pushed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb

from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog import naming
from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.models import load_definition
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import table
from grouplearn.errors import Error
from grouplearn.messages import Span
from grouplearn.plan.replaying import EarlierRun, check_same, replay_span
from grouplearn.schedule.messages import BlockRange, Push
from grouplearn.schedule.workload import Visits


def repeated_by(con: duckdb.DuckDBPyConnection, checker: SqlChecker, bound: BoundTrain) -> EarlierRun | None:
    """Return the run that a statement replays, None if it replays none; raise unless both train the same."""
    name = bound.options.repeated
    if name is None:
        return None
    model = load_definition(con, bound.catalog, bound.schema, name)
    if model is None:
        raise unknown_model(con, checker, name, replay_span(bound))
    found = earlier(con, model)
    check_same(checker, bound, found)
    return found


def unknown_model(
    con: duckdb.DuckDBPyConnection, checker: SqlChecker, name: str, span: Span, qualified: str | None = None
) -> Error:
    """Return the error for an unknown model, with the names of existing ones; ``qualified`` is its name as it was given."""
    given = qualified or name
    known, hint = naming.suggestion(con, name, given)
    return checker.error(f'unknown model "{given}"{naming.listed(known)}', span, hint)


def earlier(con: duckdb.DuckDBPyConnection, model: StoredModel) -> EarlierRun:
    """Return the run that made a stored model."""

    def rows(columns: str, name: str, rest: str = "") -> list[tuple[Any, ...]]:
        source = table(model.location.catalog, name)
        return con.execute(f"SELECT {columns} FROM {source} WHERE model = '{model.id}'::UUID {rest}").fetchall()

    refuse_invalid_rows(con, model, ("groups", "units"))
    definition = model.definition
    ((operator,),) = rows("operator", "models")
    units = rows("DISTINCT unit, group_id, configs, coalesce(fold, -1)", "units")
    applied = rows("unit, pushes", "units", "AND pushes IS NOT NULL")
    trains = rows("unit, epoch, first_block, last_block", "units", "AND kind = 'train' ORDER BY rowid ASC")
    return EarlierRun(
        name=definition.name,
        operator=str(operator),
        learner=definition.learner,
        seed=definition.seed,
        configs=definition.configs,
        rows=tuple(n_rows for (n_rows,) in rows("n_rows", "groups", "ORDER BY group_id ASC")),
        units=frozenset((unit, group, tuple(configs), fold) for unit, group, configs, fold in units),
        visits=visits(trains),
        pushes={unit: tuple(map(_push, pushes)) for unit, pushes in applied},
    )


def _push(row: Mapping[str, int | None] | None) -> Push:
    """Return a push from its columns; NULL is no partition's."""
    partition, seen = (None, None) if row is None else row.values()
    return Push(-1, -1) if partition is None or seen is None else Push(partition, seen)


def visits(trains: Iterable[tuple[int, ...]]) -> Visits:
    """Return the visits that made the models, from (unit, epoch counted from 1, first, last block) in order.

    After a loss a unit continues from an older state; blocks that it visits again count at their last visit.
    """
    found: defaultdict[int, defaultdict[int, dict[BlockRange, None]]] = defaultdict(lambda: defaultdict(dict))
    for unit, epoch, first, last in trains:
        order = found[unit][epoch - 1]
        order.pop(BlockRange(first, last), None)
        order[BlockRange(first, last)] = None
    return {unit: {epoch: tuple(order) for epoch, order in epochs.items()} for unit, epochs in found.items()}
