"""The physical plan: packs, units and their estimated cost, ready for any operator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn.data.encoders import DENSE_COLUMNS
from grouplearn.learners.base import Config, Learner, Task
from grouplearn.learners.metrics import METRICS, default_metric, metrics_for
from grouplearn.plan import cost
from grouplearn.plan.bound import BoundTrain
from grouplearn.plan.definition import ModelDefinition
from grouplearn.plan.extract import Statistics
from grouplearn.schedule.messages import Unit

#: Most configs trained in one pack: bounds the memory of scores and of solver history.
MAX_PACK = 64

#: Estimated single-thread seconds from which starting Ray (2 to 4 s, 0.7 GB) is repaid.
RAY_REPAYS_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """What will run: the label's task, epochs, units per operator, and the number of workers."""

    bound: BoundTrain
    stats: Statistics
    task: Task
    metric: str
    epochs: int
    width: int
    workers: int
    grouped: tuple[Unit, ...]
    single: tuple[Unit, ...]

    def units(self, operator: str) -> tuple[Unit, ...]:
        """Return the units of an operator: model tasks train one configuration each, group tasks whole packs."""
        return self.single if operator == "model_task_parallel" else self.grouped

    def load_seconds(self, group: int) -> float:
        """Return the estimated time to make a group's rows ready on a worker."""
        return cost.load_seconds(self.stats.groups[group].n_rows, _stored(self.bound, self.width))

    @property
    def serial_seconds(self) -> float:
        """Estimated time on one worker."""
        return sum(unit.cost for unit in self.grouped)


def plan(bound: BoundTrain, stats: Statistics) -> PhysicalPlan:
    """Return the physical plan of a bound statement."""
    task = task_of(bound, stats)
    epochs = bound.options.epochs or bound.learner.default_epochs or 1
    width = _width(bound, stats)
    packs = pack_configs(bound.learner, bound.configs)
    return PhysicalPlan(
        bound=bound,
        stats=stats,
        task=task,
        metric=bound.metric or default_metric(task),
        epochs=epochs,
        width=width,
        workers=bound.options.workers or os.cpu_count() or 1,
        grouped=_units(bound, stats, task, packs, epochs, width),
        single=_units(bound, stats, task, tuple((number,) for number in range(len(bound.configs))), epochs, width),
    )


def task_of(bound: BoundTrain, stats: Statistics) -> Task:
    """Two classes (or fewer) are binary, more are multiclass, anything else is regression."""
    if not bound.target.classification:
        return Task.REGRESSION
    return Task.BINARY if len(stats.classes) <= 2 else Task.MULTICLASS


def pack_configs(learner: Learner, configs: Sequence[Config]) -> tuple[tuple[int, ...], ...]:
    """Return configs that may share a state, in order, at most ``MAX_PACK`` together.

    Before: 12 configs that differ in l1. After: ``((0, 1, ..., 11),)``.
    """
    by_key: dict[object, list[int]] = {}
    for number, config in enumerate(configs):
        by_key.setdefault(learner.pack_key(config), []).append(number)
    return tuple(
        tuple(members[start : start + MAX_PACK])
        for members in by_key.values()
        for start in range(0, len(members), MAX_PACK)
    )


def _width(bound: BoundTrain, stats: Statistics) -> int:
    """Return the number of feature columns, at most: a group may know fewer categories."""
    width = 0
    for item, categories in zip(bound.items, stats.categories, strict=True):
        encoder = item.stored.item.encoder
        width += categories if encoder == "onehot" else item.stored.item.buckets if encoder == "hash" else 1
    return max(1, width)


def _stored(bound: BoundTrain, width: int) -> int:
    """Return the values stored per row: every column of a dense row, one per item of a sparse one."""
    return width if width <= DENSE_COLUMNS else len(bound.items)


def _units(
    bound: BoundTrain, stats: Statistics, task: Task, packs: tuple[tuple[int, ...], ...], epochs: int, width: int
) -> tuple[Unit, ...]:
    outputs = len(stats.classes) if task is Task.MULTICLASS else 1
    folds = (*range(bound.holdout.folds), -1)
    stored = _stored(bound, width)
    units: list[Unit] = []
    for number, group in enumerate(stats.groups):
        for pack in packs:
            configs = tuple(bound.configs[config] for config in pack)
            seconds = cost.unit_seconds(bound.learner, configs, group.n_rows, stored, epochs, outputs)
            first = len(units)
            units.extend(Unit(first + place, number, pack, fold, seconds) for place, fold in enumerate(folds))
    return tuple(units)


def definition(physical: PhysicalPlan, statement: str) -> ModelDefinition:
    """Return what the catalog keeps of the statement."""
    bound = physical.bound
    return ModelDefinition(
        catalog=bound.catalog,
        schema=bound.schema,
        name=bound.name,
        learner=bound.learner.name,
        task=physical.task,
        linear=bound.learner.linear,
        statement=statement,
        target_name=bound.target.name,
        target_sql=bound.target.stored,
        label_type=bound.target.type if bound.target.classification else "DOUBLE",
        classes=physical.stats.classes,
        keys=tuple(key.stored for key in bound.keys),
        sets=bound.sets,
        items=tuple(item.stored for item in bound.items),
        hyperparameters=bound.hyperparameters,
        configs=bound.configs,
        metric=physical.metric,
        greater_is_better=METRICS[physical.metric].greater_is_better,
        metrics=metrics_for(physical.task),
        missing_group=bound.statement.missing_group or "parent",
        seed=bound.options.seed,
        keep_best=bound.keep_best,
    )
