"""The models of a run as rows of ``artifacts``, without an object per model where their form allows it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.catalog.records import ModelDefinition, Outcome
from grouplearn.catalog.rows.artifacts import StoredArtifact, store_weights
from grouplearn.data.tensors import tensor_bytes
from grouplearn.interrupting import with_checks
from grouplearn.kernels import digests
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.standard_errors import ERRORS, REASONS
from grouplearn.models.forms.forms import form_of
from grouplearn.models.state import TEXT
from grouplearn.train.results.outcome import judged_values
from grouplearn.train.results.trials import BoolArray, Models

#: Bytes of models whose rows are made together.
_MODEL_BYTES = 1 << 24


def artifacts(definition: ModelDefinition, outcome: Outcome, wanted: BoolArray | None = None) -> Iterator[Any]:
    """Yield the rows of ``artifacts`` of the ``wanted`` trials (T,), all that are kept unless given.

    They come in parts: texts of trees may take half of the memory, and rows are a copy of them.
    """
    wanted = kept(definition, outcome) if wanted is None else wanted
    part: list[Models] = []
    size = 0
    for models in with_checks(outcome.trials.models):
        if part and size + models.nbytes > _MODEL_BYTES:
            yield _rows(definition, outcome, part)
            part, size = [], 0
        chosen = wanted[models.places]
        if chosen.any():
            part.append(models.take(chosen, models.places[chosen]))
            size += models.nbytes
    yield _rows(definition, outcome, part)


def kept(definition: ModelDefinition, outcome: Outcome) -> BoolArray:
    """Return which trials (T,) keep their model: all that are usable, or the ``keep_best`` best of each group."""
    trials, place = outcome.trials, outcome.place
    usable = trials.usable
    if definition.keep_best is None:
        return usable
    values = judged_values(outcome, usable, definition.choosing)  # NaN is last
    chosen = np.flatnonzero(usable)
    order = chosen[np.lexsort((trials.config[chosen], values[chosen], ~outcome.is_best[chosen], place[chosen]))]
    counts = np.bincount(place[order], minlength=len(outcome.groups))
    rank = np.arange(order.size) - (np.cumsum(counts) - counts)[place[order]]
    found = np.zeros(len(trials), np.bool_)
    found[order[rank < definition.keep_best]] = True
    return found


def _rows(definition: ModelDefinition, outcome: Outcome, part: Sequence[Models]) -> Any:
    places = np.concatenate([np.empty(0, np.intp), *(each.places for each in part)])
    of_form = _linear if form_of(definition).has_one_weight_per_column else _tensors
    columns = stored_columns(_wide(outcome, part)) if definition.is_wide else of_form(part)
    numbers = (pa.array(each[places]) for each in (outcome.trials.group, outcome.trials.config))
    return pa.table({**dict(zip(("group_id", "config"), numbers, strict=True)), **columns, **_errors(part)})


def _errors(part: Sequence[Models]) -> dict[str, Any]:
    """Return the columns of standard errors, none if no model has any; see ``standard_errors.packed``."""
    if not any(ERRORS in each.tensors for each in part):
        return {}
    nothing = (Ragged.of_sizes(np.empty(0), np.zeros(len(each.places), np.int64)) for each in part)
    kept = Ragged.joined([each.tensors.get(ERRORS, none) for each, none in zip(part, nothing, strict=True)])
    last = kept.start[1:] - 1
    some = kept.sizes > 1
    size = np.where(some, (kept.sizes - 2) // 2, 0)
    reason = np.where(kept.sizes > 0, kept.values[np.maximum(last, 0)], 0.0).astype(np.int64)
    critical = kept.values[np.maximum(last - 1, 0)]
    return {
        "standard_errors": _known_lists(kept, kept.start[:-1], size, some),
        "p_values": _known_lists(kept, kept.start[:-1] + size, size, some),
        "critical": pa.array(critical, mask=~some | ~np.isfinite(critical)),
        "without_errors": pa.array(REASONS).take(pa.array(reason, mask=reason == 0)),
    }


def _known_lists(kept: Ragged, first: npt.NDArray[Any], size: npt.NDArray[Any], some: BoolArray) -> Any:
    """Return runs of values as lists whose NaN are NULL, NULL where there is not ``some`` list."""
    start = Ragged.of_sizes(np.empty(int(size.sum())), size).start
    values = kept.values[np.repeat(first - start[:-1], size) + np.arange(int(size.sum()))]
    ends = pa.array(start, mask=np.append(~some, False))
    return pa.LargeListArray.from_arrays(ends, pa.array(values, mask=np.isnan(values)))


def _wide(outcome: Outcome, part: Sequence[Models]) -> list[StoredArtifact]:
    """Return linear models with wide items; zero weights of these are not stored."""
    place, found = outcome.place, []
    for models in part:
        for at, trial in enumerate(models.places.tolist()):
            facts = outcome.facts[place[trial]]
            found.append(store_weights(models.artifact(at), () if facts is None else facts.fitted))
    return found


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


def _linear(part: Sequence[Models]) -> dict[str, Any]:
    """Return the columns of linear models, without an object per model."""
    nothing = Ragged.of_sizes(np.empty(0), ())
    numbers = [
        Ragged.joined([each.tensors[name].flat() for each in part]) if part else nothing
        for name in ("weights", "intercept")
    ]
    return {
        "format": pa.array(["linear"]).take(pa.array(np.zeros(len(numbers[0]), np.int8))),
        **{name: _lists(each) for name, each in zip(("weights", "intercept"), numbers, strict=True)},
        "content": pa.nulls(len(numbers[0]), pa.binary()),
        "sha256": _texts(digests.of_rows(*numbers)),
        **_no_items(len(numbers[0])),
    }


def _tensors(part: Sequence[Models]) -> dict[str, Any]:
    """Return the columns of models that are kept as bytes."""
    formats, contents = [], []
    for models in part:
        is_text = TEXT in models.tensors
        for at in range(len(models.places)):
            artifact = models.artifact(at)
            contents.append(artifact.text if is_text else tensor_bytes(artifact.tensors))
        formats += ["lightgbm" if is_text else "tensors"] * len(models.places)
    return {
        "format": pa.array(formats, pa.string()),
        **{name: pa.nulls(len(contents), pa.large_list(pa.float64())) for name in ("weights", "intercept")},
        "content": pa.array(contents, pa.binary()),
        "sha256": pa.array([hashlib.sha256(content).hexdigest() for content in contents], pa.string()),
        **_no_items(len(contents)),
    }


def _lists(rows: Ragged) -> Any:
    return pa.LargeListArray.from_arrays(rows.start, pa.array(rows.values))


def _texts(ascii_codes: npt.NDArray[np.uint8]) -> Any:
    """Return texts (n, length) of equal length as an array, without an object per text."""
    count, length = ascii_codes.shape
    ends = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(ascii_codes)])
