"""What a run produced as Arrow tables, one per catalog table."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.catalog.artifacts import store
from grouplearn.catalog.records import GroupOutcome, ModelDefinition, PackedOutcome, RunOutcome
from grouplearn.catalog.rows import packed as packed_rows
from grouplearn.data.dataset import Group
from grouplearn.data.encoders import FittedItem
from grouplearn.interrupting import look, pieces, watched
from grouplearn.models.state import Artifact
from grouplearn.train.job import CurvePoint, GroupFacts, TrialResult

_TEXTS = pa.list_(pa.string())
_NUMBERS = pa.list_(pa.float64())
_INTEGERS = pa.list_(pa.int32())
#: Packs, of a hundred groups each, whose rows are made together.
_PACKS_AT_ONCE = 64
#: Bytes of models whose rows are made together.
_MODEL_BYTES = 1 << 24


def columns_of(rows: Iterable[tuple[Any, ...]], **types: Any) -> Any:
    """Return a table from rows, built in pieces; ``types`` name and type the columns in order."""
    schema = pa.schema(list(types.items()))
    tables = [
        pa.table(
            [pa.array(column, kind) for column, kind in zip(zip(*piece, strict=True), schema.types, strict=True)],
            schema,
        )
        for piece in pieces(rows)
    ]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _struct(**types: Any) -> Any:
    return pa.list_(pa.struct(list(types.items())))


def models(definition: ModelDefinition, outcome: RunOutcome) -> Any:
    """Return the row of ``models``."""
    fields: dict[str, tuple[Any, Any]] = {
        **_defined(definition),
        "operator": (outcome.operator, pa.string()),
        "executor": (outcome.executor, pa.string()),
        "workers": (outcome.workers, pa.int32()),
        "seconds": (outcome.seconds, pa.float64()),
        "trained_at": (dt.datetime.now(dt.UTC).replace(tzinfo=None), pa.timestamp("us")),
    }
    return pa.table({name: pa.array([value], kind) for name, (value, kind) in fields.items()})


def as_stored(definition: ModelDefinition) -> dict[str, Any]:
    """Return a definition's values in the row of ``models``, as they are read back; raises ValueError if a row cannot hold
    it."""
    try:
        columns = {name: pa.array([value], kind) for name, (value, kind) in _defined(definition).items()}
        return {name: column.to_pylist(maps_as_pydicts="strict")[0] for name, column in columns.items()}
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(str(error)) from error


def _defined(definition: ModelDefinition) -> dict[str, tuple[Any, Any]]:
    """Return the values and types of a definition's columns in ``models``."""
    keys = [{"name": key.name, "sql": key.sql, "type": key.type} for key in definition.keys]
    items = [
        {
            "name": entry.item.name,
            "kind": entry.item.kind,
            "position": entry.item.column,
            "encoder": entry.item.encoder,
            "impute": None if entry.item.impute is None else _text(entry.item.impute),
            "scope": entry.item.scope,
            "buckets": entry.item.buckets,
            "options": {name: _text(value) for name, value in entry.item.options},
            "type": entry.type,
            "sql": entry.sql,
        }
        for entry in definition.items
    ]
    text, integer = pa.string(), pa.int32()
    return {
        "schema_name": (definition.schema, text),
        "model_name": (definition.name, text),
        "learner": (definition.learner, text),
        "task": (definition.label.name, text),
        "linear": (definition.linear, pa.bool_()),
        "statement": (definition.statement, text),
        "target_name": (definition.target_name, text),
        "target_sql": (definition.target_sql, text),
        "label_type": (definition.label_type, text),
        "classes": (definition.classes, _TEXTS),
        "keys": (keys, _struct(name=text, sql=text, type=text)),
        "sets": (definition.sets, pa.list_(_INTEGERS)),
        "items": (
            items,
            _struct(
                name=text,
                kind=text,
                position=integer,
                encoder=text,
                impute=text,
                scope=text,
                buckets=integer,
                options=pa.map_(text, text),
                type=text,
                sql=text,
            ),
        ),
        "hyperparameters": (
            [{"name": column.name, "type": column.type} for column in definition.hyperparameters],
            _struct(name=text, type=text),
        ),
        "metric": (definition.metric, text),
        "positive_class": (definition.positive_class, text),
        "weight_sql": (definition.weight_sql, text),
        "greater_is_better": (definition.greater_is_better, pa.bool_()),
        "metrics": (definition.metrics, _TEXTS),
        "missing_group": (definition.missing_group, text),
        "seed": (definition.seed, pa.int64()),
        "keep_best": (definition.keep_best, integer),
        "null_label": (definition.null_label, text),
        "group_failure": (definition.group_failure, text),
        "refit": (definition.refit, pa.bool_()),
        "search_path": (
            [{"database": database, "schema": schema} for database, schema in definition.search_path],
            _struct(database=text, schema=text),
        ),
    }


def configs(definition: ModelDefinition) -> Any:
    """Return the rows of ``configs``: hyperparameters as text that casts back to their types."""
    rows = [
        (number, [(name, None if value is None else _text(value)) for name, value in config.items()])
        for number, config in enumerate(definition.configs)
    ]
    return columns_of(rows, config=pa.int32(), parameters=pa.map_(pa.string(), pa.string()))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(list(value)) if isinstance(value, tuple | list) else str(value)


def groups(outcome: RunOutcome) -> Any:
    """Return the rows of ``groups``."""
    tables = [
        _groups(
            [entry.group for entry in piece],
            [entry.facts for entry in piece],
            pa.array([entry.best for entry in piece], pa.int32()),
        )
        for piece in pieces(outcome.groups)
    ]
    for start in range(0, len(outcome.packs), _PACKS_AT_ONCE):
        look()
        packs = outcome.packs[start : start + _PACKS_AT_ONCE]
        tables.append(
            _groups(
                [group for pack in packs for group in pack.groups],
                [facts for pack in packs for facts in pack.pack.facts],
                packed_rows.best(packs),
            )
        )
    return pa.concat_tables(tables) if tables else _groups([], [], pa.array([], pa.int32()))


def _groups(every: Sequence[Group], facts: Sequence[GroupFacts | None], best: Any) -> Any:
    """Return the rows by column; ``best`` are the numbers of the best configs."""
    keys = [group.keys for group in every]
    offsets = np.concatenate([[0], np.cumsum([len(key) for key in keys])]).astype(np.int32)
    columns = {
        "group_id": pa.array([group.id for group in every], pa.int32()),
        "level": pa.array([group.level for group in every], pa.int32()),
        "keys": pa.ListArray.from_arrays(offsets, pa.array([*itertools.chain.from_iterable(keys)], pa.string())),
        "n_rows": pa.array([group.n_rows for group in every], pa.int64()),
        "best": best,
        "n_train": pa.array([each and each.n_train for each in facts], pa.int64()),
        "n_valid": pa.array([each and each.n_valid for each in facts], pa.int64()),
        "n_skipped": pa.array([each and each.n_skipped for each in facts], pa.int64()),
        "classes": pa.array([each.classes if each and each.fitted else None for each in facts], _INTEGERS),
    }
    encoders = _encoders(facts)
    return pa.table(columns | {name: encoders.column(name) for name in encoders.column_names})


def _encoders(every: Sequence[GroupFacts | None]) -> Any:
    """Return the columns of the fitted items; groups that share items share their conversion."""
    fitted = [() if facts is None else facts.fitted for facts in every]
    numbers = [*map(id, fitted)]
    distinct = dict(zip(numbers, fitted, strict=True))
    place = {key: number for number, key in enumerate(distinct)}
    rows = (encoder_columns(items) if items else (None,) * 6 for items in distinct.values())
    table = columns_of(
        rows,
        features=_TEXTS,
        starts=_INTEGERS,
        fills=_NUMBERS,
        centers=_NUMBERS,
        scales=_NUMBERS,
        categories=pa.list_(_TEXTS),
    )
    return table.take(pa.array([place[key] for key in numbers], pa.int64()))


def encoder_columns(fitted: tuple[FittedItem, ...]) -> tuple[Any, ...]:
    """Return the encoder columns of a row of ``groups``, from ``features`` to ``categories``."""
    return (
        tuple(name for item in fitted if not item.encoder.wide for name in item.features),
        starts(fitted),
        [item.fill for item in fitted],
        [item.center for item in fitted],
        [item.scale for item in fitted],
        [item.categories for item in fitted],
    )


def starts(fitted: Iterable[FittedItem]) -> list[int]:
    """Return the 0-based index of each item's first feature column; wide items have none."""
    return [0, *itertools.accumulate(0 if item.encoder.wide else item.width for item in fitted)][:-1]


def trials(definition: ModelDefinition, outcome: RunOutcome) -> Any:
    """Return the rows of ``trials``."""
    rows = (
        (
            entry.group.id,
            trial.config,
            "kept" if entry.is_kept(trial) else trial.status,
            trial.reason,
            trial.epochs,
            trial.converged,
            round(trial.seconds, packed_rows.CLOCK_DIGITS),
            trial.config == entry.best,
            _metrics(definition, trial.train),
            _metrics(definition, trial.valid),
            None if definition.linear else trial.importance,
            entry.kept if entry.is_kept(trial) else None,
        )
        for entry, trial in _trials(outcome)
    )
    alone = columns_of(
        rows,
        group_id=pa.int32(),
        config=pa.int32(),
        status=pa.string(),
        error=pa.string(),
        epochs=pa.int32(),
        converged=pa.bool_(),
        seconds=pa.float64(),
        is_best=pa.bool_(),
        train=_NUMBERS,
        valid=_NUMBERS,
        importance=_NUMBERS,
        trained_at=pa.timestamp("us"),
    )
    return _with_packs(alone, outcome, lambda packs: packed_rows.trials(definition, packs))


def _with_packs(alone: Any, outcome: RunOutcome, of_packs: Callable[[Sequence[PackedOutcome]], Any]) -> Any:
    """Return the rows of groups that trained alone followed by those that trained side by side."""
    tables = [alone]
    for start in range(0, len(outcome.packs), _PACKS_AT_ONCE):
        look()
        table = of_packs(outcome.packs[start : start + _PACKS_AT_ONCE])
        tables.append(table.select(alone.column_names).cast(alone.schema))
    return pa.concat_tables(tables)


def _trials(outcome: RunOutcome) -> Iterator[tuple[GroupOutcome, TrialResult]]:
    return ((entry, trial) for entry in watched(outcome.groups) for trial in entry.trials)


def _metrics(definition: ModelDefinition, values: Mapping[str, float]) -> list[float | None]:
    # DuckDB sorts NaN above every number, so that an undefined metric would look best.
    known = (values.get(name, math.nan) for name in definition.metrics) if values else ()
    return [None if math.isnan(value) else float(value) for value in known]


def curves(outcome: RunOutcome, metric_name: str) -> Any:
    """Return the rows of ``curves``."""
    drawn = [(entry.group.id, trial.config, trial.curve) for entry, trial in _trials(outcome) if trial.curve]
    lengths = [len(curve) for *_, curve in drawn]

    def per_trial(place: int) -> Any:
        return pa.array(np.repeat(np.array([row[place] for row in drawn], dtype=np.int32), lengths))

    def per_point(value: Callable[[CurvePoint], float]) -> npt.NDArray[np.float64]:
        return np.fromiter((value(point) for *_, curve in drawn for point in curve), np.float64, sum(lengths))

    loss, metric = per_point(lambda point: point.train_loss), per_point(lambda point: point.valid_metric)
    alone = pa.table(
        {
            "group_id": per_trial(0),
            "config": per_trial(1),
            "epoch": pa.array(per_point(lambda point: point.epoch).astype(np.int32)),
            "train_loss": pa.array(loss, mask=np.isnan(loss)),
            "valid_metric": pa.array(metric, mask=np.isnan(metric)),
        }
    )
    return _with_packs(alone, outcome, lambda packs: packed_rows.curves(packs, metric_name))


def parts_of(outcome: RunOutcome) -> Iterator[RunOutcome]:
    """Yield the outcome in parts of some groups: texts of trees may take half of the memory, and rows are a copy of them."""
    part: list[GroupOutcome] = []
    size = 0
    for entry in outcome.groups:
        own = sum(_bytes_of(trial.artifact) for trial in entry.trials if trial.artifact is not None)
        if part and size + own > _MODEL_BYTES:
            yield replace(outcome, groups=tuple(part), packs=())
            part, size = [], 0
        part.append(entry)
        size += own
    packs: list[PackedOutcome] = []
    for trained in outcome.packs:
        own = sum(models.nbytes for models in trained.pack.models)
        if (part or packs) and size + own > _MODEL_BYTES:
            yield replace(outcome, groups=tuple(part), packs=tuple(packs))
            part, packs, size = [], [], 0
        packs.append(trained)
        size += own
    yield replace(outcome, groups=tuple(part), packs=tuple(packs))


def _bytes_of(artifact: Artifact) -> int:
    return len(artifact.text) + sum(tensor.nbytes for tensor in artifact.tensors.values())


def artifacts(definition: ModelDefinition, outcome: RunOutcome) -> Any:
    """Return the rows of ``artifacts``: of every trial that has a model, or of the ``keep_best`` best of each group."""
    kept = [
        (entry.group.id, trial.config, store(trial.artifact, definition.linear, entry.facts.fitted))
        for entry in watched(outcome.groups)
        for trial in kept_trials(definition, entry)
        if trial.artifact is not None and entry.facts is not None
    ]
    stored = [artifact for _, _, artifact in kept]
    alone = pa.table(
        {
            "group_id": pa.array([group for group, _, _ in kept], pa.int32()),
            "config": pa.array([config for _, config, _ in kept], pa.int32()),
            **packed_rows.stored_columns(stored),
        }
    )
    return _with_packs(alone, outcome, lambda packs: packed_rows.artifacts(definition, packs))


def kept_trials(definition: ModelDefinition, entry: GroupOutcome) -> list[TrialResult]:
    """Return the trials of a group whose artifact is kept, best first."""
    done = [trial for trial in entry.trials if trial.usable]
    ranked = sorted(done, key=lambda trial: (trial.config != entry.best, _badness(definition, trial), trial.config))
    return ranked[: definition.keep_best]


def _badness(definition: ModelDefinition, trial: TrialResult) -> float:
    value = (trial.valid or trial.train).get(definition.metric, math.nan)
    if math.isnan(value):
        return math.inf
    return -value if definition.greater_is_better else value


def errors(outcome: RunOutcome) -> Any:
    """Return the rows of ``errors``: one per failed trial, or one for the group when all failed for one reason."""
    rows: list[tuple[int, int | None, str]] = []
    for entry in watched(outcome.groups):
        failed = [
            (trial.config, trial.reason or "failed")
            for trial in entry.trials
            if trial.status == "failed" or entry.is_kept(trial)
        ]
        reasons = {reason for _, reason in failed}
        if len(reasons) == 1 and len(failed) == len(entry.trials):
            rows.append((entry.group.id, None, reasons.pop()))
        else:
            rows.extend((entry.group.id, config, reason) for config, reason in failed)
    rows += [row for pack in outcome.packs for row in packed_rows.errors(pack)]
    return columns_of(rows, group_id=pa.int32(), config=pa.int32(), reason=pa.string())
