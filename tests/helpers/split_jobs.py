"""Jobs of two groups, one of which is split between workers, by each learner whose groups can be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from grouplearn.data.dataset import Group, Item
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.neural.declared_hyperparameters import declaration
from grouplearn.learners.neural.network import Network
from grouplearn.models.label import LABELLED, NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import Job, UnitResult
from grouplearn.train.unit import train_unit
from helpers.runtime_jobs import dataset, job_with, models

ROWS, BLOCK = 700, 32


def split_job(learner: str, label: Label, configs: tuple[dict[str, Any], ...], **options: Any) -> Job:
    """Two groups with missing values, a category and weights; the second is the one that is split."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ROWS, 4)) * [1.0, 50.0, 0.1, 1.0] + [0.0, 500.0, 0.0, 0.0]
    score = x @ [1.0, 0.03, 8.0, 0.0] - 15 + rng.normal(size=ROWS)
    y = {NUMBER: score, TWO_CLASSES: score > 0.5, SEVERAL_CLASSES: np.digitize(score, [-0.7, 0.9])}[label]
    x[rng.random(ROWS) < 0.04, 1] = np.nan
    x[200:296, 2] = np.inf
    folds = options.get("folds", 0)
    data = dataset(
        x,
        y,
        codes=rng.integers(0, 3, size=(ROWS, 1)),
        dictionaries=(("p", "q", "r"),),
        weight=np.where(rng.random(ROWS) < 0.03, 0.0, rng.uniform(0.5, 2.0, ROWS)),
        split=rng.integers(0, folds, ROWS) if folds else rng.random(ROWS) < 0.2,
        classes=() if label == NUMBER else ("a", "b", "c")[: 3 if label == SEVERAL_CLASSES else 2],
    )
    items = (
        Item("x0", "numeric", 0, "zscore"),
        Item("x1", "numeric", 1, "minmax"),
        Item("x2", "numeric", 2, "zscore"),
        Item("x3", "numeric", 3),
        Item("kind", "category", 0, "onehot"),
    )
    defaults: dict[str, Any] = {
        "metric": "rmse" if label == NUMBER else "auc",
        "epochs": 12,
        "groups": (Group(0, 0, ("small",), ((0, 40),)), Group(1, 0, ("large",), ((40, 300), (320, ROWS)))),
    }
    return job_with(
        learner=learner,
        label=label,
        configs=configs,
        items=items,
        dataset=data,
        **{"seed": 3, "block_rows": BLOCK, **defaults, **options},
    )


LINEAR = ({"l2": 1.0}, {"l1": 2.0}, {"l2": 0.0, "fit_intercept": False})
LOGISTIC = ({"l2": 0.1}, {"l1": 1.0, "l2": 0.0}, {"l2": 100.0})
MLP = tuple(
    {"learning_rate": rate, "hidden_layers": (5,), "batch_size": 8, "dropout": 0.2} for rate in (0.3, 0.02, 0.001)
)
NETWORK: tuple[dict[str, Any], ...] = (
    {"learning_rate": 0.02, "batch_size": 24},  # ends elsewhere than blocks do
    {"learning_rate": 0.1, "batch_size": 24},
    {"optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.05, "width": 3},
)


def own_network(problem: Problem, config: Any) -> Any:
    """One layer and one more, with what has a state and what draws: a module for rows, and one for pictures of 3 x 2."""
    k, width = problem.n_outputs // problem.label_length, config["width"]
    if problem.label_length > 1:
        convolution = nn.Conv2d(2, width, 3, padding=1)
        return nn.Sequential(nn.Unflatten(1, (2, 3, 2)), convolution, nn.BatchNorm2d(width), nn.Conv2d(width, k, 1))
    first = nn.Linear(problem.n_features, width)
    return nn.Sequential(first, nn.BatchNorm1d(width), nn.Tanh(), nn.Dropout(0.2), nn.Linear(width, k))


METRICS = {NUMBER: "rmse", SEVERAL_CLASSES: "log_loss"}
OWN = Network(declaration("own", "of a test", LABELLED, {"width": 5}), own_network, None)


def pictures_job(label: Label, **options: Any) -> Job:
    """The job of ``split_job`` with pictures of 2 x 3 x 2 values, some of them missing, and labels of 3 x 2 values."""
    rng = np.random.default_rng(8)
    pictures = rng.normal(size=(ROWS, 12))
    mask = pictures[:, :6] + pictures[:, 6:]
    pictures[rng.random(ROWS) < 0.04] = np.nan
    job = split_job("own", label, NETWORK, own=OWN, **{"metric": METRICS[label], **options})
    y = mask if label == NUMBER else np.digitize(mask, [-0.5, 0.9]).astype(float)
    return replace(
        job,
        dataset=replace(job.dataset, numeric=pictures, codes=np.empty((ROWS, 0), np.int32), dictionaries=(), y=y),
        items=(Item("picture", "array", 0, "array", buckets=12),),
    )


CASES = {
    "linear": split_job("linear_regression", NUMBER, LINEAR),
    "linear, folds": split_job("linear_regression", NUMBER, LINEAR, folds=3),
    "binary": split_job("logistic_regression", TWO_CLASSES, LOGISTIC),
    "binary, patience": split_job("logistic_regression", TWO_CLASSES, LOGISTIC, patience=1, metric="log_loss"),
    "binary, balanced": split_job("logistic_regression", TWO_CLASSES, LOGISTIC, class_weight="balanced"),
    "binary, folds": split_job("logistic_regression", TWO_CLASSES, LOGISTIC, folds=2, class_weight={1: 3.0}),
    "multinomial": split_job("logistic_regression", SEVERAL_CLASSES, LOGISTIC, patience=3),
    "mlp, regression": split_job("mlp", NUMBER, MLP, epochs=4),
    "mlp, binary, patience": split_job("mlp", TWO_CLASSES, MLP, epochs=9, patience=1, metric="log_loss"),
    "mlp, multinomial, folds": split_job("mlp", SEVERAL_CLASSES, MLP, epochs=3, folds=2),
    "network, binary, patience": split_job(
        "own", TWO_CLASSES, NETWORK, epochs=6, patience=1, metric="log_loss", own=OWN
    ),
    "network, multinomial, folds": split_job("own", SEVERAL_CLASSES, NETWORK, epochs=2, folds=2, own=OWN),
    "network, arrays": pictures_job(NUMBER, epochs=2),
    "network, masks": pictures_job(SEVERAL_CLASSES, epochs=2, folds=2),
}


def n_blocks(a_job: Job) -> int:
    """As a schedule counts them: by rows, before any are left out."""
    return -(-a_job.groups[1].n_rows // BLOCK)


def plan(a_job: Job) -> list[Unit]:
    folds = range(-1, a_job.split.folds)
    numbers = tuple(range(len(a_job.configs)))
    packs = [numbers] if a_job.learner == "logistic_regression" else [numbers[:2], numbers[2:]]
    return [Unit(i, 1, pack, fold) for i, (fold, pack) in enumerate((f, p) for f in folds for p in packs)]


def whole(a_job: Job, units: list[Unit]) -> list[Any]:
    return [train_unit(a_job, unit, None, lambda _: None, lambda: False) for unit in units]


def assert_same(ours: list[UnitResult], theirs: list[UnitResult]) -> None:
    assert [result.facts for result in ours] == [result.facts for result in theirs]
    assert [result.unit for result in ours] == [result.unit for result in theirs]
    assert models(tuple(ours)) == models(tuple(theirs))
