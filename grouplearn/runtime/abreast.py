"""Groups of a sequential learner side by side: each trains as it would alone, several in the same steps."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from grouplearn.learners.base import Interrupted, SideBySideLearner
from grouplearn.runtime.evaluation import conclude, evaluate
from grouplearn.runtime.fit import Pack, fit_side_by_side
from grouplearn.runtime.job import Job, UnitResult
from grouplearn.runtime.prepare import FINAL, GroupFailed, Prepared, prepare
from grouplearn.runtime.unit import failed_unit, group_of, or_failed, pack_of, train_unit
from grouplearn.schedule.messages import Unit


def train_abreast(job: Job, unit: Unit, report: Callable[[int], None], cancelled: Callable[[], bool]) -> UnitResult:
    """Train a unit of several groups, those of one shape side by side; every group has a result of its own.

    Which groups stand together depends on the plan and the data alone: those with about as many rows. Raises Interrupted
    and nothing else.
    """
    learner = cast(SideBySideLearner, job.trainer)
    parts: dict[int, UnitResult] = {}
    waiting: dict[tuple[int, int], list[tuple[Unit, Prepared]]] = defaultdict(list)
    for single in _longest_first(job, unit):
        if cancelled():
            raise Interrupted
        prepared = or_failed(functools.partial(prepare, job, group_of(job, single.group), unit.fold))
        if isinstance(prepared, GroupFailed):
            parts[single.group] = failed_unit(single, str(prepared))
        elif not isinstance(prepared.train.read().x, np.ndarray):
            parts[single.group] = train_unit(job, single, prepared, report, cancelled)
        else:
            problem = prepared.problem
            alike = waiting[problem.n_features, problem.n_classes]
            alike.append((single, prepared))
            configs = [job.configs[number] for number in unit.configs]
            if len(alike) == learner.abreast(problem, configs):
                parts |= _train(job, alike, report, cancelled)
                alike.clear()
    for alike in waiting.values():
        parts |= _train(job, alike, report, cancelled)
    return UnitResult(unit, (), parts=tuple(parts[group] for group in unit.groups))


def _longest_first(job: Job, unit: Unit) -> Iterator[Unit]:
    """Yield the unit as each of its groups sees it: those of one length have no empty steps beside each other."""
    rows = {group: group_of(job, group).n_rows for group in unit.groups}
    return (unit.of(group) for group in sorted(unit.groups, key=lambda group: (-rows[group], group)))


def _train(
    job: Job, alike: Sequence[tuple[Unit, Prepared]], report: Callable[[int], None], cancelled: Callable[[], bool]
) -> dict[int, UnitResult]:
    """Return the results of groups of one shape; what breaks the stack tells its own reason when it trains alone."""
    if not alike:
        return {}
    began = time.perf_counter()
    packs = [pack_of(job, unit, unit.configs, prepared, report, cancelled) for unit, prepared in alike]
    try:
        with np.errstate(all="ignore"):  # divergence is told by the numbers, not by warnings
            results = _results([unit for unit, _ in alike], packs)
    except Interrupted:
        raise
    except Exception:
        results = [train_unit(job, unit, prepared, report, cancelled) for unit, prepared in alike]
    else:
        seconds = (time.perf_counter() - began) / (len(packs) * len(packs[0].configs))
        results = [_timed(result, seconds) for result in results]
    return {result.unit.group: result for result in results}


def _results(units: Sequence[Unit], packs: Sequence[Pack]) -> list[UnitResult]:
    found = []
    for unit, pack, training in zip(units, packs, fit_side_by_side(packs), strict=True):
        keep = unit.fold == FINAL
        trials = conclude(pack, unit.configs, training, evaluate(pack, training, keep), keep, 0.0)
        found.append(UnitResult(unit, trials, pack.prepared.facts))
    return found


def _timed(result: UnitResult, seconds: float) -> UnitResult:
    return replace(result, trials=tuple(replace(trial, seconds=seconds) for trial in result.trials))
