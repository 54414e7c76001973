"""What groups that trained side by side produced, as Arrow tables: the columns of ``rows``, without an object per trial."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.catalog.records import ModelDefinition, PackedOutcome
from grouplearn.data.dataset import FloatArray, Group
from grouplearn.runtime.job import GroupFacts

Places = npt.NDArray[np.intp]


def groups(outcome: PackedOutcome) -> Iterator[tuple[Group, GroupFacts | None, int | None]]:
    """Yield every group with what is known of it and the number of its best config."""
    configs = outcome.pack.configs
    for group, facts, best in zip(outcome.groups, outcome.pack.facts, outcome.best.tolist(), strict=True):
        yield group, facts, configs[best] if best >= 0 else None


def trials(definition: ModelDefinition, outcome: PackedOutcome) -> Iterator[Any]:
    """Yield the rows of ``trials``: of the groups of each stack, then of the groups without models."""
    modelled = np.zeros(len(outcome.groups), dtype=bool)
    for models in outcome.pack.models:
        modelled[models.members] = True
        yield _trials(definition, outcome, models.members, modelled=True)
    if not modelled.all():
        yield _trials(definition, outcome, np.flatnonzero(~modelled), modelled=False)


def _trials(definition: ModelDefinition, outcome: PackedOutcome, members: Places, modelled: bool) -> Any:
    pack = outcome.pack
    n_configs = len(pack.configs)
    done = pack.done()[members].ravel() & modelled
    texts = {**pack.notes, **pack.reasons}
    reasons = [texts.get((group, place)) for group in members.tolist() for place in range(n_configs)]
    best = np.arange(n_configs) == outcome.best[members, None]
    return pa.table(
        {
            **_numbers(outcome, members),
            "status": pa.array(np.where(done, "done", "failed")),
            "error": pa.array(reasons, pa.string()) if texts else pa.nulls(done.size, pa.string()),
            "epochs": pa.array(np.where(done, pack.epochs[members].ravel(), 0), pa.int32()),
            "converged": pa.array(pack.converged[members].ravel(), mask=~done),
            "seconds": pa.array(np.full(done.size, pack.seconds)),
            "is_best": pa.array(best.ravel()),
            "train": _metrics(definition, pack.train, members, done),
            "valid": _metrics(definition, pack.valid, members, done),
            "importance": pa.nulls(done.size, pa.list_(pa.float64())),
        }
    )


def _numbers(outcome: PackedOutcome, members: Places) -> dict[str, Any]:
    numbers = np.array([outcome.groups[place].id for place in members.tolist()], dtype=np.int32)
    configs = np.array(outcome.pack.configs, dtype=np.int32)
    return {
        "group_id": pa.array(np.repeat(numbers, configs.size)),
        "config": pa.array(np.tile(configs, numbers.size)),
    }


def _metrics(
    definition: ModelDefinition, values: Mapping[str, FloatArray], members: Places, done: npt.NDArray[np.bool_]
) -> Any:
    """Return a list column; of a failed trial, and where there are no rows to measure on, it is empty."""
    missing = np.full(done.size, np.nan)
    known = np.stack(
        [values[name][members].ravel() if name in values else missing for name in definition.metrics], axis=1
    )
    shown = done & ~np.isnan(known).all(axis=1)
    offsets = np.concatenate([[0], np.cumsum(shown) * known.shape[1]]).astype(np.int32)
    items = known[shown].ravel()
    return pa.ListArray.from_arrays(offsets, pa.array(items, mask=np.isnan(items)))


def _lists(values: FloatArray, kept: npt.NDArray[np.bool_]) -> Any:
    """Return a list column whose row i is ``values[i]``, or NULL where it is not kept."""
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
    return pa.ListArray.from_arrays(offsets, pa.array(values.ravel()), mask=pa.array(~kept))


def curves(outcome: PackedOutcome, metric: str) -> Any:
    """Return the rows of ``curves``; the metric is known after the last epoch."""
    pack = outcome.pack
    lengths = pack.curves.lengths.ravel()
    numbers = _numbers(outcome, np.arange(len(outcome.groups)))
    ends = np.cumsum(lengths)
    losses = pack.curves.losses
    last = np.full(losses.size, np.nan)
    if metric in pack.valid:
        drawn = lengths > 0
        last[ends[drawn] - 1] = pack.valid[metric].ravel()[drawn]
    return pa.table(
        {
            **{name: pa.array(np.repeat(np.asarray(column), lengths)) for name, column in numbers.items()},
            "epoch": pa.array((np.arange(losses.size) - np.repeat(ends - lengths, lengths) + 1).astype(np.int32)),
            "train_loss": pa.array(losses, mask=np.isnan(losses)),
            "valid_metric": pa.array(last, mask=np.isnan(last)),
        }
    )


def artifacts(definition: ModelDefinition, outcome: PackedOutcome) -> Iterator[Any]:
    """Yield the rows of ``artifacts``: of every trial that is done, or of the ``keep_best`` best of each group."""
    kept = _kept(definition, outcome)
    for models in outcome.pack.models:
        chosen = kept[models.members].ravel()
        weights, intercept = (
            np.ascontiguousarray(values.reshape(chosen.size, -1)[chosen], dtype="<f8")
            for values in (models.weights, models.intercept)
        )
        numbers = _numbers(outcome, models.members)
        count = int(chosen.sum())
        yield pa.table(
            {
                **{name: column.filter(pa.array(chosen)) for name, column in numbers.items()},
                "format": pa.array(np.full(count, "linear")),
                "weights": _lists(weights, np.ones(count, dtype=bool)),
                "intercept": _lists(intercept, np.ones(count, dtype=bool)),
                "content": pa.nulls(count, pa.binary()),
                "sha256": pa.array([hashlib.sha256(row).hexdigest() for row in np.hstack([weights, intercept])]),
            }
        )


def _kept(definition: ModelDefinition, outcome: PackedOutcome) -> npt.NDArray[np.bool_]:
    """Return which trials (G, C) keep their artifact: the best first, then by their metric."""
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
