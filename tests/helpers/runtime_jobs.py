"""Small jobs, observers and comparisons for the tests of runtimes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.data.split import Split
from grouplearn.learners.contract.config import Config
from grouplearn.models.label import NUMBER, TWO_CLASSES, Label
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import Job, RowRules, SearchRound, TrainingLimits, TrainingTarget, UnitResult

_PARTS = {"target": TrainingTarget, "split": Split, "rules": RowRules, "training": TrainingLimits, "round": SearchRound}


class Watcher:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.units: list[int] = []
        self.lost: list[int] = []
        self.epochs = 0

    def unit_done(self, result: UnitResult) -> None:
        self.units.append(result.unit.id)

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        self.epochs += epochs

    def units_lost(self, units: tuple[Unit, ...]) -> None:
        self.lost += [unit.id for unit in units]


def dataset(x: Any, y: Any, **parts: Any) -> Dataset:
    """Return a dataset of numeric columns ``x`` (n, p) and labels ``y``; other parts by name."""
    numeric, label = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    rows = label.size
    return Dataset(
        numeric=numeric,
        codes=np.asarray(parts.get("codes", np.empty((rows, 0))), dtype=np.int32),
        y=label,
        weight=np.asarray(parts.get("weight", np.ones(rows)), dtype=np.float64),
        split=np.asarray(parts.get("split", np.zeros(rows)), dtype=np.int16),
        dictionaries=parts.get("dictionaries", ()),
        classes=parts.get("classes", ()),
    )


def job_with(**values: Any) -> Job:
    """Return a job of these values, each of which finds its place in the parts of the job."""
    parts = {name: part(**_own(part, values)) for name, part in _PARTS.items()}
    return Job(**values, **parts)


def changed(a_job: Job, **values: Any) -> Job:
    """Return the job with other values, each of which finds its place in the parts of the job."""
    parts = {name: replace(getattr(a_job, name), **_own(part, values)) for name, part in _PARTS.items()}
    return replace(a_job, **values, **parts)


def _own(part: type, values: dict[str, Any]) -> dict[str, Any]:
    return {field.name: values.pop(field.name) for field in fields(part) if field.name in values}


def job(
    learner: str = "logistic_regression",
    configs: tuple[Config, ...] = ({"l2": 0.1}, {"l2": 10.0}),
    groups: int = 4,
    rows: int = 60,
    epochs: int = 20,
    **options: Any,
) -> Job:
    """Return a binary job of equal groups; a third of the rows is held out."""
    rng = np.random.default_rng(11)
    x = rng.normal(size=(groups * rows, 3))
    y = (x[:, 0] + rng.normal(size=groups * rows) > 0).astype(float)
    split = np.arange(groups * rows) % 3 == 0
    return job_with(
        learner=learner,
        label=TWO_CLASSES,
        configs=configs,
        items=tuple(Item(f"x{column}", "numeric", column, "zscore") for column in range(3)),
        groups=tuple(Group(g, 0, (f"g{g}",), ((g * rows, (g + 1) * rows),)) for g in range(groups)),
        dataset=dataset(x, y, split=split, classes=("false", "true")),
        metric="log_loss",
        epochs=epochs,
        seed=3,
        **options,
    )


def one_group(data: Dataset, label: Label = NUMBER, **options: Any) -> Job:
    """Return a job of one group with all rows of ``data``."""
    items = tuple(Item(f"x{column}", "numeric", column) for column in range(data.numeric.shape[1]))
    defaults: dict[str, Any] = {
        "learner": "linear_regression" if label == NUMBER else "logistic_regression",
        "configs": ({"l2": 1.0},),
        "items": items,
        "groups": (Group(0, 0, ("a",), ((0, data.n_rows),)),),
        "metric": "rmse" if label == NUMBER else "log_loss",
        "epochs": 50,
    }
    return job_with(label=label, dataset=data, **defaults | options)


def units(a_job: Job, per_config: bool = False) -> list[Unit]:
    """Return one unit per group, or per group and config; larger numbers cost more."""
    numbers = range(len(a_job.configs))
    packs = [(number,) for number in numbers] if per_config else [tuple(numbers)]
    pairs = [(group.id, pack) for group in a_job.groups for pack in packs]
    return [Unit(number, group, pack, cost=float(number)) for number, (group, pack) in enumerate(pairs)]


def models(results: tuple[UnitResult, ...]) -> list[Any]:
    """Return all that must not depend on the runtime, in a form in which equality is equality of bits."""
    timeless = [replace(trial, seconds=0.0) for result in results for trial in result.trials]
    return [
        (
            result_trial.config,
            result_trial.status,
            result_trial.reason,
            result_trial.epochs,
            sorted((name, float(value).hex()) for name, value in result_trial.train.items()),
            sorted((name, float(value).hex()) for name, value in result_trial.valid.items()),
            [(point.epoch, point.train_loss.hex(), point.valid_metric.hex()) for point in result_trial.curve],
            result_trial.importance,
            result_trial.artifact and result_trial.artifact.text,
            {name: value.tobytes() for name, value in result_trial.artifact.tensors.items()}
            if result_trial.artifact
            else None,
        )
        for result_trial in timeless
    ]
