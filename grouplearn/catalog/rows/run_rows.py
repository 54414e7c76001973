"""Arrow tables made from what a run produced, one per catalog table."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from grouplearn.catalog.records import ModelDefinition, Outcome, RunOutcome
from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.registry import encoder_of, features_of
from grouplearn.interrupting import checked_chunks, with_checks
from grouplearn.layout.ragged import Ragged
from grouplearn.models.forms.forms import form_of
from grouplearn.train.job import GroupFacts
from grouplearn.train.results.trials import FAILED, KEPT, STATUSES, BoolArray, Trials

_TEXTS = pa.list_(pa.string())
_NUMBERS = pa.list_(pa.float64())
_INTEGERS = pa.list_(pa.int32())
#: Times of trials are kept to a microsecond: more is noise, which people would have to read.
_CLOCK_DIGITS = 6


def columns_of(rows: Iterable[tuple[Any, ...]], **types: Any) -> Any:
    """Return a table from rows, built in pieces; ``types`` name and type the columns in order."""
    schema = pa.schema(list(types.items()))
    tables = [
        pa.table(
            [pa.array(column, kind) for column, kind in zip(zip(*piece, strict=True), schema.types, strict=True)],
            schema,
        )
        for piece in checked_chunks(rows)
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
    keys, series, held_out = (
        None if each is None else [{"name": key.name, "sql": key.sql, "type": key.type} for key in each]
        for each in (definition.keys, definition.series, definition.held_out)
    )
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
        "statement": (definition.statement, text),
        "target_name": (definition.target_name, text),
        "target_sql": (definition.target_sql, text),
        "label_type": (definition.label_type, text),
        "classes": (definition.classes, _TEXTS),
        "keys": (keys, _struct(name=text, sql=text, type=text)),
        "series": (series, _struct(name=text, sql=text, type=text)),
        "held_out": (held_out, _struct(name=text, sql=text, type=text)),
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
        "calibrate": (definition.calibrate, text),
        "greater_is_better": (definition.greater_is_better, pa.bool_()),
        "metrics": (definition.metrics, _TEXTS),
        "missing_group": (definition.missing_group, text),
        "seed": (definition.seed, pa.int64()),
        "keep_best": (definition.keep_best, integer),
        "keep_versions": (definition.keep_versions, integer),
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


def groups(outcome: Outcome) -> Any:
    """Return the rows of ``groups``."""
    every, facts = outcome.groups, outcome.facts
    keys = [group.keys for group in with_checks(every)]
    offsets = np.concatenate([[0], np.cumsum([len(key) for key in keys])]).astype(np.int32)
    columns = {
        "group_id": pa.array(outcome.ids),
        "level": pa.array([group.level for group in every], pa.int32()),
        "keys": pa.ListArray.from_arrays(offsets, pa.array([*itertools.chain.from_iterable(keys)], pa.string())),
        "n_rows": pa.array(
            [group.n_rows - (each.n_ahead if each else 0) for group, each in zip(every, facts, strict=True)], pa.int64()
        ),
        "best": pa.array(outcome.best, mask=outcome.best < 0),
        "n_train": pa.array([each and each.n_train for each in facts], pa.int64()),
        "n_valid": pa.array([each and each.n_valid for each in facts], pa.int64()),
        "n_skipped": pa.array([each and each.n_skipped for each in facts], pa.int64()),
        "checksum": pa.array([group.checksum for group in every], pa.uint64()),
        "classes": pa.array([each.classes if each and each.fitted else None for each in facts], _INTEGERS),
        "calibration": pa.array([each and each.calibration for each in facts], pa.list_(_NUMBERS)),
    }
    encoders = _encoders(facts)
    return pa.table(columns | {name: encoders.column(name) for name in encoders.column_names})


def _encoders(every: Sequence[GroupFacts | None]) -> Any:
    """Return the columns of the fitted items; groups that share items share their conversion."""
    fitted = [() if facts is None else facts.fitted for facts in every]
    numbers = [*map(id, fitted)]
    distinct = dict(zip(numbers, fitted, strict=True))
    place = {key: number for number, key in enumerate(distinct)}
    rows = (encoder_columns(items) if items else (None,) * 7 for items in distinct.values())
    table = columns_of(
        rows,
        features=_TEXTS,
        starts=_INTEGERS,
        fills=_NUMBERS,
        centers=_NUMBERS,
        scales=_NUMBERS,
        categories=pa.list_(_TEXTS),
        category_values=pa.list_(_NUMBERS),
    )
    return table.take(pa.array([place[key] for key in numbers], pa.int64()))


def encoder_columns(fitted: tuple[FittedItem, ...]) -> tuple[Any, ...]:
    """Return the encoder columns of a row of ``groups``, from ``features`` to ``category_values``."""
    return (
        tuple(features_of(item for item in fitted if not encoder_of(item.item).wide)),
        starts(fitted),
        [item.fill for item in fitted],
        [item.center for item in fitted],
        [item.scale for item in fitted],
        [item.categories for item in fitted],
        [np.frombuffer(item.values) if item.values else [] for item in fitted],
    )


def starts(fitted: Iterable[FittedItem]) -> list[int]:
    """Return the 0-based index of each item's first feature column; wide items have none."""
    return [
        0,
        *itertools.accumulate(encoder_of(item.item).stored_width(item.item, len(item.categories)) for item in fitted),
    ][:-1]


def trials(definition: ModelDefinition, outcome: Outcome) -> Any:
    """Return the rows of ``trials``."""
    every, best, usable = outcome.trials, outcome.is_best, outcome.trials.usable
    kept = [outcome.kept.get(group) for group in every.group.tolist()] if outcome.kept else [None] * len(every)
    is_kept, weights = every.status == KEPT, form_of(definition).has_one_weight_per_column
    return pa.table(
        {
            **_numbers(every),
            "status": pa.array(STATUSES).take(pa.array(every.status)),
            "error": _texts(every.texts, len(every)),
            "epochs": pa.array(every.epochs),
            "converged": pa.array(every.converged == 1, mask=every.converged < 0),
            "seconds": pa.array(every.seconds.round(_CLOCK_DIGITS)),
            "is_best": pa.array(best),
            "train": _metrics(definition, every, "train"),
            "valid": _metrics(definition, every, "valid"),
            "importance": pa.nulls(len(every), _NUMBERS) if weights else _importance(every, usable),
            "trained_at": pa.array(kept, pa.timestamp("us"), mask=~is_kept),
        }
    )


def _numbers(every: Trials) -> dict[str, Any]:
    return {"group_id": pa.array(every.group), "config": pa.array(every.config)}


def _texts(texts: Mapping[int, str], count: int) -> Any:
    """Return why trials failed, and notes on others."""
    if not texts:
        return pa.nulls(count, pa.string())
    found = np.full(count, None, dtype=object)
    found[[*texts]] = [*texts.values()]
    return pa.array(found, pa.string())


def _metrics(definition: ModelDefinition, every: Trials, part: str) -> Any:
    """Return a list column, empty where there are no rows to measure on."""
    known = np.stack([every.metric(part, name) for name in definition.metrics], axis=1)
    shown = ~np.isnan(known).all(axis=1)
    offsets = np.concatenate([[0], np.cumsum(shown) * known.shape[1]]).astype(np.int32)
    items = known[shown].ravel()
    # DuckDB sorts NaN above every number, so that an undefined metric would look best.
    return pa.ListArray.from_arrays(offsets, pa.array(items, mask=np.isnan(items)))


def _importance(every: Trials, usable: BoolArray) -> Any:
    """Return a list column with a number per feature column, NULL without a model or importances."""
    told = [each for each in every.models if each.importance is not None]
    if not told:
        return pa.nulls(len(every), _NUMBERS)
    places = np.concatenate([each.places for each in told])
    order = np.argsort(places, kind="stable")
    found = Ragged.joined([each.importance for each in told if each.importance is not None]).take(order)
    sizes, known = np.zeros(len(every), np.int64), np.zeros(len(every), np.bool_)
    sizes[places[order]] = found.sizes
    known[places[order]] = (found.sizes > 0) & usable[places[order]]
    ends = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32), mask=np.append(~known, False))
    return pa.ListArray.from_arrays(ends, pa.array(found.values))


def curves(outcome: Outcome) -> Any:
    """Return the rows of ``curves``."""
    drawn, lengths = outcome.trials.curves, outcome.trials.curves.lengths
    first = np.cumsum(lengths) - lengths
    return pa.table(
        {
            **{name: pa.array(np.repeat(np.asarray(each), lengths)) for name, each in _numbers(outcome.trials).items()},
            "epoch": pa.array((np.arange(drawn.losses.size) - np.repeat(first, lengths) + 1).astype(np.int32)),
            "train_loss": pa.array(drawn.losses, mask=np.isnan(drawn.losses)),
            "valid_metric": pa.array(drawn.judged, mask=np.isnan(drawn.judged)),
        }
    )


def errors(outcome: Outcome) -> Any:
    """Return the rows of ``errors``: one per failed trial, or one for the group when all failed for one reason."""
    every, failed = outcome.trials, np.isin(outcome.trials.status, (FAILED, KEPT))
    all_failed = np.ones(len(outcome.groups), np.bool_)
    all_failed[outcome.place[~failed]] = False
    reasons: dict[int, dict[int, str]] = {}
    for place, group in zip(np.flatnonzero(failed).tolist(), outcome.place[failed].tolist(), strict=True):
        reasons.setdefault(group, {})[int(every.config[place])] = every.texts.get(place, "failed")
    rows: list[tuple[int, int | None, str]] = []
    for group, own in reasons.items():
        number = outcome.groups[group].id
        if all_failed[group] and len(set(own.values())) == 1:
            rows.append((number, None, next(iter(own.values()))))
        else:
            rows += [(number, config, reason) for config, reason in own.items()]
    return columns_of(rows, group_id=pa.int32(), config=pa.int32(), reason=pa.string())
