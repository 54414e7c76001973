"""The results of groups trained side by side as Arrow tables: as in ``rows``, without an object per trial.

A table covers several packs: for one pack of a hundred groups Arrow's own calls would take most of the time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.catalog.artifacts import StoredArtifact, store
from grouplearn.catalog.records import ModelDefinition, PackedOutcome
from grouplearn.data.dataset import FloatArray
from grouplearn.data.tensors import tensor_bytes
from grouplearn.kernels import digests
from grouplearn.layout.ragged import Ragged
from grouplearn.train.results.packed import TEXT, Packed

#: Times of trials are kept to a microsecond: more is noise, which people would have to read.
CLOCK_DIGITS = 6

Packs = Sequence[PackedOutcome]
Flags = npt.NDArray[np.bool_]


def best(packs: Packs) -> Any:
    """Return the number of the best config of every group."""
    found = [np.append(np.array(outcome.pack.configs, np.int32), -1)[outcome.best] for outcome in packs]
    numbers = np.concatenate(found)
    return pa.array(numbers, pa.int32(), mask=numbers < 0)


def trials(definition: ModelDefinition, packs: Packs) -> Any:
    """Return the rows of ``trials``."""
    done = np.concatenate([_modelled(outcome).ravel() for outcome in packs])
    shapes = [outcome.pack.shape for outcome in packs]
    best = [np.arange(configs) == outcome.best[:, None] for outcome, (_, configs) in zip(packs, shapes, strict=True)]
    epochs = np.concatenate([outcome.pack.epochs.ravel() for outcome in packs])
    seconds = np.repeat([outcome.pack.seconds for outcome in packs], [rows * configs for rows, configs in shapes])
    return pa.table(
        {
            **_numbers(packs),
            "status": pa.array(["failed", "done"]).take(pa.array(done.astype(np.int8))),
            "error": _reasons(packs, done.size),
            "epochs": pa.array(np.where(done, epochs, 0), pa.int32()),
            "converged": _converged(packs, done),
            "seconds": pa.array(seconds.round(CLOCK_DIGITS)),
            "is_best": pa.array(np.concatenate([each.ravel() for each in best])),
            "train": _metrics(definition, [each.pack.train for each in packs], shapes, done),
            "valid": _metrics(definition, [each.pack.valid for each in packs], shapes, done),
            "importance": _importance(packs, done),
            "trained_at": pa.nulls(done.size, pa.timestamp("us")),
        }
    )


def _converged(packs: Packs, done: Flags) -> Any:
    """Return which models converged, NULL if the learner does not say."""
    known = [each.pack.converged for each in packs]
    values = [
        np.zeros(each.pack.shape, np.bool_) if own is None else own for each, own in zip(packs, known, strict=True)
    ]
    told = np.repeat([own is not None for own in known], [each.size for each in values])
    return pa.array(np.concatenate([each.ravel() for each in values]), mask=~(done & told))


def _importance(packs: Packs, done: Flags) -> Any:
    """Return a list column with a number per feature column, NULL without a model or importances."""
    begun, chosen, found = 0, [], []
    for outcome in packs:
        places = np.arange(math.prod(outcome.pack.shape)).reshape(outcome.pack.shape) + begun
        begun += places.size
        for models in outcome.pack.models:
            if models.importance is not None:
                chosen.append(places[models.members].ravel())
                found.append(models.importance)
    if not found:
        return pa.nulls(done.size, pa.list_(pa.float64()))
    order = np.argsort(np.concatenate(chosen), kind="stable")
    told, rows = np.concatenate(chosen)[order], Ragged.joined(found).take(order)
    sizes, known = np.zeros(done.size, np.int64), np.zeros(done.size, np.bool_)
    sizes[told], known[told] = rows.sizes, done[told] & (rows.sizes > 0)
    ends = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32), mask=np.append(~known, False))
    return pa.ListArray.from_arrays(ends, pa.array(rows.values))


def _modelled(outcome: PackedOutcome) -> Flags:
    """Return which trials (G, C) are done and have a model."""
    modelled = np.zeros(len(outcome.groups), dtype=bool)
    for models in outcome.pack.models:
        modelled[models.members] = True
    return outcome.pack.done() & modelled[:, None]


def _reasons(packs: Packs, size: int) -> Any:
    """Return why trials failed, and notes on others."""
    texts = np.full(size, None, dtype=object)
    begun, found = 0, False
    for outcome in packs:
        pack = outcome.pack
        for (group, place), text in {**pack.notes, **pack.reasons}.items():
            texts[begun + group * len(pack.configs) + place] = text
            found = True
        begun += pack.shape[0] * pack.shape[1]
    return pa.array(texts, pa.string()) if found else pa.nulls(size, pa.string())


def _numbers(packs: Packs) -> dict[str, Any]:
    """Return group and config of every trial of packs."""
    numbers, configs = [], []
    for outcome in packs:
        own = np.fromiter((group.id for group in outcome.groups), np.int32, len(outcome.groups))
        numbers.append(np.repeat(own, len(outcome.pack.configs)))
        configs.append(np.tile(np.array(outcome.pack.configs, dtype=np.int32), own.size))
    return {"group_id": pa.array(np.concatenate(numbers)), "config": pa.array(np.concatenate(configs))}


def _metrics(
    definition: ModelDefinition,
    values: Iterable[Mapping[str, FloatArray]],
    shapes: Iterable[tuple[int, int]],
    done: Flags,
) -> Any:
    """Return a list column, empty for failed trials and where there are no rows to measure on."""
    parts = [
        np.stack([each[name] if name in each else np.full(shape, np.nan) for name in definition.metrics], axis=-1)
        for each, shape in zip(values, shapes, strict=True)
    ]
    known = np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])
    shown = done & ~np.isnan(known).all(axis=1)
    offsets = np.concatenate([[0], np.cumsum(shown) * known.shape[1]]).astype(np.int32)
    items = known[shown].ravel()
    return pa.ListArray.from_arrays(offsets, pa.array(items, mask=np.isnan(items)))


def curves(packs: Packs, metric: str) -> Any:
    """Return the rows of ``curves``."""
    lengths = np.concatenate([outcome.pack.curves.lengths.ravel() for outcome in packs])
    losses = np.concatenate([outcome.pack.curves.losses for outcome in packs])
    ends = np.cumsum(lengths)
    judged = np.concatenate([_judged(outcome.pack, metric) for outcome in packs])
    return pa.table(
        {
            **{name: pa.array(np.repeat(np.asarray(column), lengths)) for name, column in _numbers(packs).items()},
            "epoch": pa.array((np.arange(losses.size) - np.repeat(ends - lengths, lengths) + 1).astype(np.int32)),
            "train_loss": pa.array(losses, mask=np.isnan(losses)),
            "valid_metric": pa.array(judged, mask=np.isnan(judged)),
        }
    )


def _judged(pack: Packed, metric: str) -> FloatArray:
    """Return the metric of every point of curves; if it was not computed in training, only of the last epoch."""
    if pack.curves.metrics is not None:
        return pack.curves.metrics
    lengths, judged = pack.curves.lengths.ravel(), np.full(pack.curves.losses.size, np.nan)
    values, drawn = pack.valid.get(metric, np.full(pack.shape, np.nan)).ravel(), lengths > 0
    judged[np.cumsum(lengths)[drawn] - 1] = values[drawn]
    return judged


def artifacts(definition: ModelDefinition, packs: Packs) -> Any:
    """Return the rows of ``artifacts``: of every trial that is done, or of the ``keep_best`` best of each group."""
    chosen, found = [], []
    begun = 0
    for outcome in packs:
        kept = _kept(definition, outcome)
        places = np.arange(kept.size).reshape(kept.shape) + begun
        begun += kept.size
        for models in outcome.pack.models:
            of_stack = np.flatnonzero(kept[models.members])
            chosen.append(places[models.members].ravel()[of_stack])
            found.append({name: each.take(of_stack) for name, each in models.tensors.items()})
    rows = pa.array(np.concatenate(chosen) if chosen else np.empty(0, np.int64))
    return pa.table(
        {
            **{name: column.take(rows) for name, column in _numbers(packs).items()},
            **(_wide(packs, rows) if definition.is_wide else _linear(found) if definition.linear else _tensors(found)),
        }
    )


def _wide(packs: Packs, rows: Any) -> dict[str, Any]:
    """Return the columns of linear models with wide items; ``rows`` counts all trials."""
    every = []
    for outcome in packs:
        own: list[StoredArtifact | None] = [None for _ in range(math.prod(outcome.pack.shape))]
        of_group, configs = outcome.pack.facts, outcome.pack.shape[1]
        for models in outcome.pack.models:
            for at, (group, config) in enumerate(np.ndindex(len(models.members), configs)):
                member = int(models.members[group])
                facts = of_group[member]
                if facts is not None:
                    own[member * configs + config] = store(models.artifact(at), linear=True, fitted=facts.fitted)
        every += own
    return stored_columns([artifact for number in rows.to_pylist() if (artifact := every[number]) is not None])


def stored_columns(stored: Sequence[StoredArtifact]) -> dict[str, Any]:
    """Return models as columns without an object per number."""
    return {
        "format": pa.array([each.format for each in stored], pa.string()),
        "weights": _lists_of([each.weights for each in stored]),
        "intercept": _lists_of([each.intercept for each in stored]),
        "content": pa.array([each.content for each in stored], pa.binary()),
        "sha256": pa.array([each.sha256 for each in stored], pa.string()),
        "places": _lists_of_items([each.places for each in stored], np.int64),
        "nonzeros": _lists_of_items([each.nonzeros for each in stored], np.float64),
    }


def _lists_of(values: Sequence[npt.NDArray[Any] | None], kind: npt.DTypeLike = np.float64) -> Any:
    """Return a list column in which all rows are NULL or none is."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return pa.nulls(len(values), pa.large_list(pa.from_numpy_dtype(kind)))
    offsets = np.cumsum([0, *(value.size for value in known)], dtype=np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(known)))


def _lists_of_items(values: Sequence[Sequence[npt.NDArray[Any]] | None], kind: npt.DTypeLike) -> Any:
    """Return a column with a list per item in which all rows are NULL or none is."""
    known = [value for value in values if value is not None]
    inside = _lists_of([each for value in known for each in value], kind)
    if len(known) < len(values) or not known:
        return pa.nulls(len(values), pa.large_list(inside.type))
    offsets = np.cumsum([0, *map(len, known)], dtype=np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), inside)


def _no_items(count: int) -> dict[str, Any]:
    """Return the wide items' columns for models without any."""
    return {
        "places": _lists_of_items([None] * count, np.int64),
        "nonzeros": _lists_of_items([None] * count, np.float64),
    }


def _linear(found: Sequence[Mapping[str, Ragged]]) -> dict[str, Any]:
    """Return the columns of linear models, without an object per model."""
    numbers = [_joined([each[name].flat() for each in found]) for name in ("weights", "intercept")]
    return {
        "format": pa.array(["linear"]).take(pa.array(np.zeros(len(numbers[0]), np.int8))),
        **{name: _lists(each) for name, each in zip(("weights", "intercept"), numbers, strict=True)},
        "content": pa.nulls(len(numbers[0]), pa.binary()),
        "sha256": _texts(digests.of_rows(*numbers)),
        **_no_items(len(numbers[0])),
    }


def _tensors(found: Sequence[Mapping[str, Ragged]]) -> dict[str, Any]:
    """Return the columns of models that are kept as bytes."""
    is_text = bool(found) and all(TEXT in each for each in found)
    if is_text:
        contents = [each[TEXT][place].tobytes() for each in found for place in range(len(each[TEXT]))]
    else:
        contents = [
            tensor_bytes({name: each[place] for name, each in tensors.items()})
            for tensors in found
            for place in range(len(next(iter(tensors.values()))))
        ]
    return {
        "format": pa.array(["lightgbm" if is_text else "tensors"] * len(contents), pa.string()),
        **{name: pa.nulls(len(contents), pa.large_list(pa.float64())) for name in ("weights", "intercept")},
        "content": pa.array(contents, pa.binary()),
        "sha256": pa.array([hashlib.sha256(content).hexdigest() for content in contents], pa.string()),
        **_no_items(len(contents)),
    }


def _joined(parts: Sequence[Ragged]) -> Ragged:
    return Ragged.joined(parts) if parts else Ragged.of_sizes(np.empty(0), ())


def _lists(rows: Ragged) -> Any:
    return pa.LargeListArray.from_arrays(rows.start, pa.array(rows.values))


def _texts(ascii_codes: npt.NDArray[np.uint8]) -> Any:
    """Return texts (n, length) of equal length as an array, without an object per text."""
    count, length = ascii_codes.shape
    ends = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(ascii_codes)])


def _kept(definition: ModelDefinition, outcome: PackedOutcome) -> Flags:
    """Return which trials (G, C) keep their artifact: the best by their metric."""
    pack = outcome.pack
    done = pack.done()
    if definition.keep_best is None:
        return done
    values = (pack.valid or pack.train).get(definition.metric, np.full(done.shape, np.nan))
    badness = np.where(np.isnan(values), np.inf, -values if definition.greater_is_better else values)
    badness[np.arange(len(done)), outcome.best] = -np.inf
    badness[~done] = np.nan  # sorts last
    rank = np.argsort(np.argsort(badness, axis=1, kind="stable"), axis=1)
    return done & (rank < definition.keep_best)


def errors(outcome: PackedOutcome) -> Iterator[tuple[int, int | None, str]]:
    """Yield the rows of ``errors``: one per failed trial, or one for the group when all failed for one reason."""
    pack = outcome.pack
    failed: dict[int, dict[int, str]] = {}
    for (group, place), reason in pack.reasons.items():
        failed.setdefault(group, {})[place] = reason
    for group, reasons in failed.items():
        number = outcome.groups[group].id
        if len(set(reasons.values())) == 1 and len(reasons) == len(pack.configs):
            yield number, None, next(iter(reasons.values()))
        else:
            yield from ((number, pack.configs[place], reason) for place, reason in sorted(reasons.items()))
