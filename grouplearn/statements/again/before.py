"""The metric of a model of before on the rows that judge its successor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import duckdb
import numpy as np

from grouplearn.catalog.records import StoredModel
from grouplearn.data.shard import FloatArray, Matrix, Shard, StoredShard
from grouplearn.data.split import FINAL
from grouplearn.interrupting import with_checks
from grouplearn.models.forms.form import GroupModel
from grouplearn.models.metrics import metrics
from grouplearn.prediction.group_models import load_groups
from grouplearn.train.job import Earlier, Job, group_of
from grouplearn.train.pack import Pack, measure
from grouplearn.train.rows.prepare import Prepared, prepare
from grouplearn.train.rows.used import GroupFailed


def metrics_before(
    con: duckdb.DuckDBPyConnection,
    model: StoredModel,
    job: Job,
    numbers: Mapping[int, int],
    *,
    only_ahead: bool = False,
) -> dict[int, float]:
    """Return the optimized metric of a model's groups on the held-out rows of a job, for groups that have such rows; of models
    without a label on all rows if none are held out. ``only_ahead``: only series that end before the first of these rows. NaN
    where a series is not forecast as far as these rows.

    ``numbers`` are the groups' numbers in the catalog by those in the job.
    """
    fold = 0 if job.split.folds else FINAL
    is_given = job.target.label.is_given
    judged = {number: own for number, own in numbers.items() if not is_given or _has_held_out(job, number, fold)}
    if not judged:
        return {}
    models = {each.id: each for each in load_groups(con, model, only=judged.values())}
    found = {}
    for number, own in with_checks(judged.items()):
        if own in models and (value := _metric(job, number, fold, models[own], only_ahead)) is not None:
            found[number] = value
    return found


def _has_held_out(job: Job, number: int, fold: int) -> bool:
    """Return whether rows of a group may judge it."""
    split = job.dataset.split
    return any(job.split.judges(split[start:stop], fold).any() for start, stop in group_of(job, number).ranges)


def _metric(job: Job, number: int, fold: int, model: GroupModel, only_ahead: bool) -> float | None:
    """Return the metric of one group's model; None if its rows cannot be judged by it."""
    earlier = {number: Earlier(model.fitted, model.classes, b"")}
    try:
        with np.errstate(all="ignore"):
            prepared = prepare(replace(job, earlier=earlier), group_of(job, number), fold)
            ahead = None if prepared.valid is None else _steps_ahead(prepared.valid, model)
            if only_ahead and (ahead is None or ahead.min() < 0):
                return None
            if ahead is not None and ahead.max() >= model.artifact.tensors["mean"].size:
                return math.nan
            return _measured(job, prepared, model)
    except GroupFailed:
        return None


def _steps_ahead(rows: Shard | StoredShard, model: GroupModel) -> FloatArray | None:
    """Return how many steps after the end of a model's only series rows are, 0 for the next one; None for other models."""
    first, size = (model.artifact.tensors.get(name, np.zeros(0)) for name in ("first", "size"))
    if first.size != 1 or "mean" not in model.artifact.tensors:
        return None
    ahead: FloatArray = np.asarray(rows.read().x)[:, 0] - first[0] - size[0]
    return ahead


def _measured(job: Job, prepared: Prepared, model: GroupModel) -> float | None:
    rows = prepared.valid
    if rows is None and job.target.label.is_given:
        return None
    rows = prepared.judged if rows is None else rows
    label, metric = prepared.problem.label, job.target.metric
    pack = Pack(
        job.trainer, (job.configs[0],), prepared, metric, None, lambda _: None, lambda: False, metrics=(metric,)
    )

    def scores(x: Matrix) -> FloatArray:
        # If a group has only two of the label's classes, its stored model gives a score for each of them.
        found = job.trainer.score(job.target.label if prepared.problem.among_more else label, model.artifact, x)
        return (found[:, 1:] if prepared.problem.among_more else found)[:, None, :]

    total = measure(pack, rows, scores).total(prepared.n_blocks, metrics.merge)
    value = math.nan if total is None else float(pack.family.finish(total, metric)[metric][0])
    return None if math.isnan(value) else value
