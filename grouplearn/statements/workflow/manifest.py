"""What a durable run needs to continue, and whether a statement could have made it, as a file may contain anything.

A run continues as its manifest says, without its statement. Values that TRAIN refuses could cause an endless epoch here, or
an error in the middle of the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grouplearn.bind.clauses.search import may_run
from grouplearn.bind.run import compatibility
from grouplearn.bind.run.options import RUN_OPTIONS
from grouplearn.data.dataset import Dataset, DatasetFiles, Group
from grouplearn.data.encoders import FittedItem
from grouplearn.data.files.checksums import Damaged, FileSums
from grouplearn.data.lists import Lists
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.hyperparameter_values import are_declared
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import HasObjectives, conflict, stops_between_batches
from grouplearn.learners.contract.refreshing import Continuation
from grouplearn.learners.contract.standard_errors import ErrorOptions
from grouplearn.models.definition import HyperparameterColumn, ItemColumn, KeyColumn, ModelDefinition, Watermark
from grouplearn.models.label import Label, label_length
from grouplearn.models.state import Artifact
from grouplearn.schedule.averages import Averages
from grouplearn.schedule.messages import Unit, is_possible_order
from grouplearn.schedule.operators import OPERATORS
from grouplearn.schedule.workload import Hops, Workload
from grouplearn.search.procedures import PROCEDURES, SearchPlan
from grouplearn.search.space import Choices, Dimension, Range
from grouplearn.store.refreshing import KnownGroup, Refreshed, RefreshRun
from grouplearn.train.job import Earlier, Job, UnitTurns
from grouplearn.train.results import ledger

#: The format of manifests; runs of other versions are refused.
FORMAT = 15
#: Limits of the catalog and of arrays: numbers of units and rows of a block, and bytes.
_MOST, _MOST_BYTES = 2**31 - 1, 2**63 - 1
#: The most folds that VALIDATE FOLDS takes.
_MOST_FOLDS = 1000


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a run needs to continue; ``job`` is without its rows, which are in files.

    ``workload`` is for the number of workers with which the run began. ``replaces`` and ``validated`` come from the
    statement: OR REPLACE, and whether rows are held out; ``within`` is the number of seconds of WITHIN. ``replaced`` is the
    identity of the model that was there at the beginning, the only one that may be replaced. ``began`` is a
    ``time.time()``. ``sums`` are the checksums of the files of rows. A search in rounds has its plan in ``search`` and no
    ``units``, as these follow from results; ``stored`` and ``outputs`` are used to estimate them. ``refresh`` says how the
    results of a REFRESH are stored, and ``watermark`` are the latest times of the rows of a TRAIN.
    """

    definition: ModelDefinition
    job: Job
    rows: DatasetFiles
    units: tuple[Unit, ...]
    workload: Workload
    operator: str
    executor: str
    replaces: bool
    replaced: str | None
    validated: bool
    within: float | None
    began: float
    search: SearchPlan | None
    sums: tuple[FileSums, ...]
    stored: int
    outputs: int
    watermark: Watermark | None = None
    refresh: RefreshRun | None = None
    format: int = FORMAT

    def job_with_rows(self, directory: Path) -> Job:
        """Return the job with its rows, which are in ``directory`` now.

        Raises DataError if its learner is not registered, and Damaged if the rows cannot be those of the job.
        """
        dataset = replace(self.rows, directory=str(directory)).open()
        flaw = dataset.validation_error(self.job.items)
        if flaw is not None:
            raise Damaged(directory, flaw)
        return replace(self.job, dataset=dataset, own=registry.other(self.job.learner, self.job.configs))


KINDS = (
    *ledger.RESULT_KINDS, Artifact, Averages, Choices, Continuation, Dataset, DatasetFiles, Earlier, ErrorOptions, FileSums,
    Group, Hops, HyperparameterColumn, ItemColumn, Job, KeyColumn, KnownGroup, Lists, Manifest, ModelDefinition, Range,
    Refreshed, RefreshRun, SearchPlan, Label, UnitTurns, Watermark, Workload,
)  # fmt: skip


def has_possible_numbers(manifest: Manifest) -> bool:
    """Return whether TRAIN could have written the manifest's numbers."""
    job, search = manifest.job, manifest.search
    return (
        _has_possible_job(job, manifest.definition.label_type)
        and _has_possible_configs(job)
        and _has_possible_units(manifest)
        and _has_possible_workload(manifest)
        and (search is None or (not manifest.units and _has_possible_search(job, search)))
        and sorted(each.name for each in manifest.sums) == sorted(f"{name}.npy" for name in manifest.rows.array_names)
    )


def _takes(**values: Any) -> bool:
    """Return whether WITH accepts these values of options."""
    for name, value in values.items():
        try:
            RUN_OPTIONS[name].check(value)
        except ValueError:
            return False
    return True


def _has_possible_job(job: Job, label_type: str | None) -> bool:
    weights = job.rules.class_weight if isinstance(job.rules.class_weight, Mapping) else {}
    classes = range(len(job.dataset.classes)) if job.target.label.has_classes else range(0)
    untouched = not (job.round.starts or job.round.goals or job.round.carries or job.training.states) and (
        job.round.share,
        job.training.deadline,
        job.training.turn,
    ) == (1.0, None, None)
    return (
        untouched
        and _takes(seed=job.training.seed, epochs=job.training.epochs, min_rows=job.rules.min_rows)
        and (job.training.patience is None or _takes(early_stopping=job.training.patience))
        and 0 <= job.split.folds <= _MOST_FOLDS
        and job.dataset.label_length == max(1, label_length(label_type or ""))
        and (len(classes) == 2 or not job.target.mirrored)
        and all(number in classes and 0 < weight < math.inf for number, weight in weights.items())
        and _has_possible_fits(job)
    )


def _has_possible_fits(job: Job) -> bool:
    """Return whether the fitted items are exactly those that are fitted on all rows."""
    shared = {number: item for number, item in enumerate(job.items) if item.scope == "all"}
    return {number: each.item for number, each in job.fitted.items()} == shared and all(
        map(is_finite, job.fitted.values())
    )


def is_finite(fitted: FittedItem) -> bool:
    """Return whether a fitted item's parameters are finite."""
    return all(map(math.isfinite, (fitted.fill or 0.0, fitted.center, fitted.scale))) and fitted.scale != 0


def _has_possible_configs(job: Job) -> bool:
    """Return whether OVER and WITH accept each configuration; assumed for learners that are not registered."""
    if not registry.is_known(job.learner):
        return True
    learner, of_classes = registry.way(job.learner, job.configs), job.target.label.has_classes
    known = {id(config): config for config in job.configs}.values()
    fits = all(_is_declared(learner, config) for config in known) and len(job.configs) > 0
    if not fits or not isinstance(learner, HasObjectives):
        return fits
    return not any(learner.label_conflict(config, of_classes) for config in known)


def _is_declared(learner: Learner, config: Config) -> bool:
    declared = {each.name for each in learner.declaration.hyperparameters}
    return (
        set(config) == declared
        and are_declared(learner.declaration.hyperparameters, config)
        and conflict(learner, config) is None
    )


def _has_possible_units(manifest: Manifest) -> bool:
    """Return whether units have distinct numbers, and together train each trial and each of its folds once."""
    units, job = manifest.units, manifest.job
    if not all(_is_possible_unit(unit, job.split.folds) for unit in units) or len({unit.id for unit in units}) != len(
        units
    ):
        return False
    trials = len(job.groups) * len(job.configs)
    whole = _distinct(unit for unit in units if unit.is_final)
    return manifest.search is not None or whole == trials


def _distinct(units: Iterable[Unit]) -> int:
    """Return the number of distinct trials in units, -1 if two units have the same one."""
    trials = [(group, config) for unit in units for group in unit.groups for config in unit.configs]
    return len(trials) if len(set(trials)) == len(trials) else -1


def _is_possible_unit(unit: Unit, folds: int) -> bool:
    return (
        0 <= unit.id <= _MOST
        and (unit.is_final or 0 <= unit.fold < folds)
        and unit.folds in (0, folds)
        and 0 <= unit.cost < math.inf
        and len(unit.configs) > 0
    )


def _has_possible_workload(manifest: Manifest) -> bool:
    """Return whether the input of a schedule matches this work: sizes, workers, how units hop."""
    work, job = manifest.workload, manifest.job
    rows = tuple(group.n_rows for group in sorted(job.groups, key=lambda each: each.id))
    overheads = (work.split_seconds, work.split_row_seconds, work.solving_seconds, work.takeover_rounds)
    seconds = (*overheads, manifest.within or 0.0)
    known = registry.way(job.learner, job.configs) if registry.is_known(job.learner) else None
    fits = known is None or (
        work.access == known.access.name
        and compatibility.runtimes(manifest.operator, known) != ()
        and may_run(manifest.search, known, manifest.operator)
    )
    return (
        fits
        and _takes(workers=work.workers, epochs=work.epochs, seed=work.hops.seed)
        and _has_possible_options(manifest, known)
        and all(
            each.accepts_workload(work, known is None or stops_between_batches(known)) for each in OPERATORS.values()
        )
        and all(1 <= rows <= _MOST for rows in work.batch_rows)
        and all(is_possible_order(pushes) for pushes in work.pushes.values())
        and work.rows == rows
        and work.training_rows in ((), rows)
        and max(work.block_rows, work.epoch_rounds, work.round_parts, work.work_items) <= _MOST
        and all(0 <= each < math.inf for each in seconds)
        and (manifest.within is None or manifest.within > 0)
        and all(0 <= each <= _MOST_BYTES for each in (manifest.stored, manifest.outputs))
        and _has_possible_visits(manifest)
    )


def _has_possible_options(manifest: Manifest, known: Learner | None) -> bool:
    """Return whether a statement could have given the operator's own options together; earlier runs name none of them."""
    patience = manifest.job.training.patience
    others = {} if patience is None else {"early_stopping": patience}
    return OPERATORS[manifest.operator].accepts_options(manifest.workload.options, others, known)


def _has_possible_visits(manifest: Manifest) -> bool:
    """Return whether the visits that a run repeats are visits of its units to their own blocks."""
    work = manifest.workload
    blocks = {unit.id: work.blocks_of(unit) for unit in manifest.units}
    return all(
        number in blocks and 0 <= each.first <= each.last <= blocks[number]
        for number, epochs in (work.hops.recorded or {}).items()
        for visits in epochs.values()
        for each in visits
    )


def _has_possible_search(job: Job, search: SearchPlan) -> bool:
    """Return whether a search is over its learner's hyperparameters, with numbers that WITH accepts."""
    taken = _takes(
        trials=search.trials, epochs=search.budget, seed=search.seed, reduction_factor=search.factor,
        min_epochs=search.least, parallel_trials=search.slots, interval=search.interval,
    )  # fmt: skip
    if not taken or search.method not in PROCEDURES or search.least > search.budget:
        return False
    if not registry.is_known(job.learner):
        return True
    learner = registry.way(job.learner, job.configs)
    unique = len(set(search.searched)) == len(search.searched) > 0
    return unique and _is_declared(learner, search.base) and all(_spans(learner, each) for each in search.dimensions)


def _spans(learner: Learner, dimension: Dimension) -> bool:
    """Return whether a dimension's hyperparameters accept all its values."""
    if isinstance(dimension, Choices):
        width = len(dimension.names)
        points = all(
            len(point) == width
            and are_declared(learner.declaration.hyperparameters, dict(zip(dimension.names, point, strict=True)))
            for point in dimension.points
        )
        return points and len(dimension.points) > 0
    kinds = {each.name: each.kind for each in learner.declaration.hyperparameters}
    kind = {"int": int, "float": float}.get(kinds.get(dimension.name, ""))
    ends = (dimension.low, dimension.high)
    if kind is None or dimension.integer != (kind is int) or not all(map(math.isfinite, ends)):
        return False
    within = all(are_declared(learner.declaration.hyperparameters, {dimension.name: kind(end)}) for end in ends)
    return within and dimension.low <= dimension.high and (dimension.low > 0 or not dimension.log)
