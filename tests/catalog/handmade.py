"""Hand-made models for the tests of the catalog: definitions and outcomes with random numbers, nothing trained."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from grouplearn.catalog.records import (
    HyperparameterColumn,
    ItemColumn,
    KeyColumn,
    ModelDefinition,
    Outcome,
    RunOutcome,
)
from grouplearn.data.dataset import Group, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.registry import features_of
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.state import Artifact
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import GroupFacts, UnitResult
from grouplearn.train.results.trials import CurvePoint, TrialResult, Trials


@dataclass(frozen=True)
class GroupOutcome:
    """A group's trials, and the number of its best config."""

    group: Group
    trials: tuple[TrialResult, ...]
    facts: GroupFacts | None
    best: int | None


LEARNERS = {
    NUMBER: "linear_regression",
    TWO_CLASSES: "logistic_regression",
    SEVERAL_CLASSES: "logistic_regression",
}
METRICS = {
    NUMBER: ("rmse", "mae", "r2"),
    TWO_CLASSES: ("log_loss", "auc", "accuracy", "f1"),
    SEVERAL_CLASSES: ("log_loss", "auc", "accuracy", "f1"),
}
CLASSES = {NUMBER: (), TWO_CLASSES: ("false", "true"), SEVERAL_CLASSES: ("high", "low", "mid")}
TYPES = {NUMBER: "DOUBLE", TWO_CLASSES: "BOOLEAN", SEVERAL_CLASSES: "VARCHAR"}
TARGETS = {
    NUMBER: "y",
    TWO_CLASSES: "y > 0",
    SEVERAL_CLASSES: "CASE WHEN y IS NULL THEN NULL WHEN y < -1 THEN 'low' WHEN y > 1 THEN 'high' ELSE 'mid' END",
}

#: One item of every encoder.
ITEMS = (
    ItemColumn(Item("x1", "numeric", 0, "none"), "CAST(x1 AS DOUBLE)", "DOUBLE"),
    ItemColumn(Item("x2", "numeric", 1, "zscore", impute="mean"), "CAST(x2 * 2 AS DOUBLE) -- doubled", "DOUBLE"),
    ItemColumn(Item("color", "category", 0, "onehot"), "CAST(color AS VARCHAR)", "VARCHAR"),
    ItemColumn(Item("size", "category", 1, "ordinal"), "size", "VARCHAR"),
    ItemColumn(Item("tail", "hash", 2, "hash", buckets=4), "CAST(hash(tail) % 4 AS INTEGER)", "VARCHAR"),
    ItemColumn(Item("x3", "numeric", 2, "minmax"), "CAST(x3 AS DOUBLE)", "DOUBLE"),
)
FITTED = (
    {},
    {"fill": 1.5, "center": 0.7, "scale": 2.0},
    {"categories": ("blue", 'it\'s; "q"', "red")},
    {"categories": ("L", "M", "S")},
    {},
    {"center": -1.0, "scale": 4.0},
)
KEYS = (KeyColumn("carrier", "carrier", "VARCHAR"), KeyColumn("dest", "dest", "BIGINT"))
ROLLUP = ((0, 1), (0,), ())
CONFIGS = ({"l1": 0.0, "l2": 1.0}, {"l1": 0.5, "l2": 1.0})


def definition(label: Label = NUMBER, **changes: object) -> ModelDefinition:
    values: dict[str, object] = {
        "catalog": None,
        "schema": "main",
        "name": "m",
        "learner": LEARNERS[label],
        "label": label,
        "statement": "TRAIN MODEL m ...",
        "search_path": ((None, "main"),),
        "target_name": "label",
        "target_sql": TARGETS[label],
        "label_type": TYPES[label],
        "classes": CLASSES[label],
        "keys": KEYS,
        "sets": ROLLUP,
        "items": ITEMS,
        "hyperparameters": (HyperparameterColumn("l1", "DOUBLE"), HyperparameterColumn("l2", "DOUBLE")),
        "configs": CONFIGS,
        "metric": METRICS[label][0],
        "greater_is_better": False,
        "metrics": METRICS[label],
    }
    return ModelDefinition(**{**values, **changes})  # type: ignore[arg-type]


def fitted(model: ModelDefinition, shift: float = 0.0) -> tuple[FittedItem, ...]:
    entries = []
    for entry, values in zip(model.items, FITTED, strict=False):
        given = dict(values)
        if "center" in given:
            given["center"] += shift
        entries.append(FittedItem(entry.item, **given))  # type: ignore[arg-type]
    return tuple(entries)


def linear_artifact(rng: np.random.Generator, outputs: int, width: int) -> Artifact:
    return Artifact("tensors", {"weights": rng.normal(size=(outputs, width)), "intercept": rng.normal(size=outputs)})


def group_outcome(
    model: ModelDefinition, group: Group, seed: int, best: int = 1, classes: tuple[int, ...] | None = None
) -> GroupOutcome:
    """A group whose configs are all done, ``best`` best."""
    rng = np.random.default_rng(seed)
    items = fitted(model, shift=0.1 * seed)
    features = tuple(features_of(items))
    if classes is None:
        classes = tuple(range(len(model.classes)))
    outputs = len(classes) if model.label == SEVERAL_CLASSES else 1
    facts = GroupFacts(items, classes, n_train=80, n_valid=20, n_skipped=0)
    trials = tuple(
        TrialResult(
            config,
            "done",
            epochs=2,
            seconds=0.25,
            train=dict.fromkeys(model.metrics, 0.5 + 0.01 * config),
            valid={name: float("nan") if name == "auc" else 0.6 - 0.01 * (config == best) for name in model.metrics},
            curve=(CurvePoint(1, 0.9, 0.8), CurvePoint(2, 0.7, float("nan"))),
            artifact=linear_artifact(rng, outputs, len(features)),
            importance=tuple(range(len(features))),
        )
        for config in range(len(model.configs))
    )
    return GroupOutcome(group, trials, facts, best)


def failed_outcome(model: ModelDefinition, group: Group, reason: str) -> GroupOutcome:
    trials = tuple(TrialResult(config, "failed", reason) for config in range(len(model.configs)))
    return GroupOutcome(group, trials, None, None)


def outcome(groups: Sequence[GroupOutcome]) -> RunOutcome:
    names = tuple(dict.fromkeys(name for entry in groups for trial in entry.trials for name in trial.train))
    trials = [Trials.of(entry.group.id, entry.trials, names) for entry in groups]
    units = tuple(
        UnitResult(Unit(number, entry.group.id, tuple(trial.config for trial in entry.trials)), own)
        for number, (entry, own) in enumerate(zip(groups, trials, strict=True))
    )
    found = Outcome(
        tuple(entry.group for entry in groups),
        tuple(entry.facts for entry in groups),
        Trials.joined(trials),
        np.array([-1 if entry.best is None else entry.best for entry in groups], np.int32),
    )
    return RunOutcome(found, units, "group_task_parallel", "local", 1, 0.5)


def entries(run: RunOutcome) -> list[GroupOutcome]:
    """Return what a run found, group by group."""
    found = zip(run.found.groups, run.found.facts, run.found.best.tolist(), strict=True)
    return [
        GroupOutcome(group, tuple(run.found.trials.only(group.id)), facts, None if best < 0 else best)
        for group, facts, best in found
    ]


def rollup_groups() -> list[Group]:
    """Groups of ROLLUP (carrier, dest): ('AA', 1), ('NULL', 2), (NULL, NULL), then carriers, then all rows."""
    keys = [
        (0, ("AA", "1")),
        (0, ("NULL", "2")),
        (0, (None, None)),
        (1, ("AA", None)),
        (1, (None, None)),
        (2, (None, None)),
    ]
    return [Group(number, level, values, ((0, 100),)) for number, (level, values) in enumerate(keys)]


def rollup_outcome(model: ModelDefinition) -> RunOutcome:
    """The outcome of the rollup groups; a group of a multiclass model may lack a class."""
    entries = []
    for group in rollup_groups():
        few = model.label == SEVERAL_CLASSES and group.id in (1, 4)
        entries.append(group_outcome(model, group, group.id, classes=(0, 2) if few else None))
    return outcome(entries)


def create_source(con: duckdb.DuckDBPyConnection, n_rows: int = 400) -> None:
    """Create table ``t`` with every kind of value: NULL, NaN, infinity, unseen categories, unseen groups."""
    con.execute("SELECT setseed(0.5)")
    con.execute(
        f"""
        CREATE TABLE t AS SELECT i,
          ['AA', 'NULL', NULL, 'ZZ'][i % 4 + 1] AS carrier,
          [1, 2, NULL][i // 4 % 3 + 1]::BIGINT AS dest,
          CASE i % 17 WHEN 0 THEN NULL WHEN 1 THEN 'nan'::DOUBLE WHEN 2 THEN 'inf'::DOUBLE ELSE sin(i) END AS x1,
          CASE i % 7 WHEN 0 THEN NULL WHEN 1 THEN 'inf'::DOUBLE ELSE cos(i) * 3 END AS x2,
          i % 11 AS x3,
          ['red', 'blue', 'it''s; "q"', 'unseen', NULL][i % 5 + 1] AS color,
          CASE i % 19 WHEN 0 THEN 'XXL' WHEN 1 THEN NULL ELSE ['L', 'M', 'S'][i % 3 + 1] END AS size,
          CASE i % 13 WHEN 0 THEN NULL ELSE 'N' || i END AS tail,
          3 * sin(i * 7) AS y
        FROM range({n_rows}) AS r(i)
        """
    )
