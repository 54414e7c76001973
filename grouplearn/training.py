"""TRAIN after binding: choose how to run, make the job, run it, merge what came back."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

from grouplearn.catalog.records import RunOutcome
from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.errors import Cancelled, did_you_mean
from grouplearn.learners.metrics import METRICS
from grouplearn.plan import explain
from grouplearn.plan.bound import BoundTrain
from grouplearn.plan.extract import Statistics
from grouplearn.plan.judge import Judge
from grouplearn.plan.options import OPERATORS
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.runtime.choose import runtime
from grouplearn.runtime.job import Job, Progress, RunSummary
from grouplearn.runtime.outcome import merge
from grouplearn.runtime.simulated import simulate
from grouplearn.schedule.task_parallel import operator


def choose(physical: PhysicalPlan, cancelled: Callable[[], bool]) -> explain.Choice:
    """Run every operator's schedule on the simulated runtime and choose among them; raises Cancelled."""

    def load_seconds(group: int) -> float:
        # Called for every load of every simulated worker: with 100,000 groups, the place to look up now and then.
        if cancelled():
            raise Cancelled("planning was interrupted; nothing was stored")
        return physical.load_seconds(group)

    candidates = []
    for name in OPERATORS[1:]:
        timeline = simulate(operator(name, physical.units), physical.workers, load_seconds)
        candidates.append(
            explain.Candidate(name, len(physical.units), timeline.loads, timeline.makespan, timeline.idle_share)
        )
    return explain.choose(physical, candidates, importlib.util.find_spec("ray") is not None)


def job_of(physical: PhysicalPlan, dataset: Dataset, groups: tuple[Group, ...], judge: Judge) -> Job:
    """Return everything a worker needs, with the encoders of ``scope := 'all'`` fitted."""
    bound = physical.bound
    items = tuple(item.stored.item for item in bound.items)
    return Job(
        learner=bound.learner.name,
        task=physical.task,
        configs=bound.configs,
        items=items,
        groups=groups,
        dataset=dataset,
        metric=physical.metric,
        seed=bound.options.seed,
        epochs=physical.epochs,
        patience=bound.options.early_stopping,
        folds=bound.holdout.folds,
        min_rows=bound.options.min_rows,
        class_weight=_class_weights(bound, physical.stats, judge),
        fitted=fit_on_all_rows(items, dataset, folds=bound.holdout.folds),
    )


def run(
    physical: PhysicalPlan, choice: explain.Choice, job: Job, progress: Progress | None, cancelled: Callable[[], bool]
) -> RunOutcome:
    """Train every unit of the chosen operator on the chosen runtime; raises Cancelled when ``cancelled()`` became true."""
    units = physical.units
    greater_is_better = METRICS[physical.metric].greater_is_better
    watching = progress or _Silent()
    watching.started(
        RunSummary(
            model=physical.bound.name,
            groups=len(job.groups),
            trials=len(job.groups) * len(job.configs),
            epochs=sum(physical.epochs * len(unit.configs) for unit in units),
            metric=physical.metric,
            greater_is_better=greater_is_better,
            operator=choice.operator,
            executor=choice.executor,
            workers=choice.workers,
        )
    )
    began = time.perf_counter()
    try:
        scheduled = operator(choice.operator, units)
        results = runtime(choice.executor).run(job, scheduled, choice.workers, watching, cancelled)
    finally:
        watching.ended()
    seconds = time.perf_counter() - began
    alone, packs = merge(job, results, greater_is_better)
    return RunOutcome(alone, results, choice.operator, choice.executor, choice.workers, seconds, packs)


def fit_on_all_rows(items: tuple[Item, ...], dataset: Dataset, folds: int) -> dict[int, FittedItem]:
    """Return the items with ``scope := 'all'`` fitted on the training rows of every group.

    Under VALIDATE FOLDS all rows train the model that is kept, so all rows fit the encoder.
    """
    rows = slice(None) if folds else dataset.split == 0
    fitted: dict[int, FittedItem] = {}
    for number, item in enumerate(items):
        if item.scope == "all":
            column = (dataset.numeric if item.kind == "numeric" else dataset.codes)[rows, item.column]
            texts = () if item.kind == "numeric" else dataset.dictionaries[item.column]
            fitted[number] = encoders.fit(item, column, texts)
    return fitted


def _class_weights(bound: BoundTrain, stats: Statistics, judge: Judge) -> Any:
    """Return class weights by class number."""
    given = bound.options.class_weight
    if given is None or given == "balanced":
        return given
    span = next(
        option.value.span for option in bound.statement.options if option.name.value.casefold() == "class_weight"
    )
    unknown = [name for name in given if name not in stats.classes]
    if unknown:
        message = (
            f'class_weight names "{unknown[0]}", which is no class of the label\nClasses: {", ".join(stats.classes)}'
        )
        raise judge.error(message, span, did_you_mean(unknown[0], stats.classes))
    return {number: given.get(name, 1.0) for number, name in enumerate(stats.classes)}


class _Silent:
    """Progress that nobody watches."""

    def started(self, summary: RunSummary) -> None: ...

    def unit_done(self, result: Any) -> None: ...

    def epochs_done(self, unit: Any, epochs: int) -> None: ...

    def ended(self) -> None: ...
