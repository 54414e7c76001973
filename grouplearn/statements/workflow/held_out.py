"""The predictions of held-out rows: by the best configuration of each group, as it was before it learned from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from grouplearn.catalog.rows.held_out_rows import Predicted, held_out_rows
from grouplearn.data.dataset import FloatArray, Group
from grouplearn.data.encoding.registry import widths_of
from grouplearn.data.split import FINAL
from grouplearn.interrupting import with_checks
from grouplearn.learners import registry
from grouplearn.learners.contract.optional import predicting
from grouplearn.models.calibration import Calibration, fitted
from grouplearn.models.outputs.output import Output
from grouplearn.models.state import Artifact
from grouplearn.plan.retrying import cut
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import GroupFacts, Job, UnitResult, group_of
from grouplearn.train.results.outcome import Outcome
from grouplearn.train.rows.chosen import ChosenRows, keeps_zeros
from grouplearn.train.rows.used import GroupedRows, UsedRows

#: Groups whose rows are looked up together.
_TOGETHER = 1024


def of_folds(job: Job) -> Job:
    """Return the job that trains folds for their models."""
    return replace(job, keeps_folds=True, state_bytes=None)


def units_of_folds(job: Job, units: Sequence[Unit], found: Outcome) -> tuple[Unit, ...]:
    """Return the units that train each fold of the best configuration of each group, numbered after ``units``."""
    wanted = {group.id: (best,) for group, best in zip(found.groups, found.best.tolist(), strict=True) if best >= 0}
    final = [unit for unit in cut(units, wanted) if unit.is_final]
    folds = [replace(unit, fold=fold, folds=0) for fold in job.split.fits[:-1] for unit in final]
    first = 1 + max((unit.id for unit in units), default=-1)
    return tuple(replace(unit, id=number) for number, unit in enumerate(folds, first))


@dataclass(frozen=True, slots=True)
class HeldOutPredictions:
    """What predictions of held-out rows make: the rows of ``held_out``, None if they are not kept, and the calibrations of
    groups by number."""

    rows: Any = None
    calibrations: Mapping[int, Calibration] = field(default_factory=dict)

    def calibrated(self, found: Outcome) -> Outcome:
        """Return the outcome with these calibrations."""
        if not self.calibrations:
            return found
        facts = (
            None if each is None else replace(each, calibration=self.calibrations.get(group.id))
            for group, each in zip(found.groups, found.facts, strict=True)
        )
        return replace(found, facts=tuple(facts))


def held_out_predictions(job: Job, found: Outcome, folds: Sequence[UnitResult] | None = None) -> HeldOutPredictions:
    """Predict held-out rows by the best models, or by those of ``folds``, if that is wanted."""
    if not job.predicts_held_out:
        return HeldOutPredictions()
    predicted = list(_predicted(job, _of_best(found) if folds is None else _of_folds(job, folds)))
    rows = None if job.held_out is None else held_out_rows(job, predicted)
    return HeldOutPredictions(rows, _calibrations(job, job.calibrate, predicted) if job.calibrate else {})


def _calibrations(job: Job, kind: str, predicted: Sequence[Predicted]) -> dict[int, Calibration]:
    """Return the calibration of each group that has enough rows, of all folds together."""
    by_group: dict[int, list[Predicted]] = {}
    for each in predicted:
        by_group.setdefault(each.group, []).append(each)
    found = {}
    for group, parts in with_checks(list(by_group.items())):
        p, labels = (
            np.concatenate([part.outputs[:, 1] for part in parts]),
            np.concatenate([part.labels for part in parts]),
        )
        weight = job.dataset.weight[np.concatenate([part.numbers for part in parts])]
        calibration = fitted(kind, p, labels == 1, weight)
        if calibration is not None:
            found[group] = calibration
    return found


@dataclass(frozen=True, slots=True)
class _Judge:
    """A model of a group that did not learn from the rows of a fold, what is known of those that it learned from, and its
    config."""

    group: Group
    fold: int
    facts: GroupFacts
    artifact: Artifact
    config: int


def _of_best(found: Outcome) -> Iterator[_Judge]:
    best = dict(zip(found.ids.tolist(), found.best.tolist(), strict=True))
    for group, facts, artifact in found.best_models():
        yield _Judge(group, FINAL, facts, artifact, best[group.id])


def _of_folds(job: Job, results: Iterable[UnitResult]) -> Iterator[_Judge]:
    for result in results:
        trials = result.trials
        for models in trials.models:
            for at, place in enumerate(models.places.tolist()):
                group, config = int(trials.group[place]), int(trials.config[place])
                facts = result.facts[group]
                yield _Judge(group_of(job, group), result.unit.fold, facts, models.artifact(at), config)


def _predicted(job: Job, judges: Iterable[_Judge]) -> Iterator[Predicted]:
    """Yield the predictions of the held-out rows of each model."""
    label = job.target.label
    output = registry.output_class(job.trainer, label).of(job.dataset.classes, "")
    by_fold: dict[int, list[_Judge]] = {}
    for judge in judges:
        by_fold.setdefault(judge.fold, []).append(judge)
    for fold, every in sorted(by_fold.items()):
        every.sort(key=lambda judge: judge.group.id)
        for first in range(0, len(every), _TOGETHER):
            some = every[first : first + _TOGETHER]
            used = UsedRows.of(job, [judge.group for judge in some], fold)
            for place, judge in with_checks(list(enumerate(some))):
                numbers = used.valid.numbers[used.valid.start[place] : used.valid.start[place + 1]]
                if numbers.size:
                    yield _of_rows(job, judge, used, numbers, output)


def _of_rows(job: Job, judge: _Judge, used: UsedRows, numbers: Any, output: Output) -> Predicted:
    """Return the predictions of rows by number, without those that the learner cannot predict."""
    items = judge.facts.fitted
    dense_columns = sum(widths_of(items)) if keeps_zeros(job, items, judge.group.n_rows) else 0
    size = np.array([0, numbers.size])
    rows = GroupedRows(used.valid.dataset, numbers, size, np.zeros(1, np.int64))
    rows, x = ChosenRows(job.trainer, used, items, dense_columns, 1.0).encoded(rows)
    learner = predicting(job.trainer, job.configs[judge.config])
    with np.errstate(over="ignore", invalid="ignore"):
        score: FloatArray = learner.score(job.target.label, judge.artifact, x)
        outputs = output.outputs(score, judge.facts.classes)
    fold = None if judge.fold == FINAL else judge.fold
    return Predicted(judge.group.id, fold, rows.numbers, rows.y, outputs)
