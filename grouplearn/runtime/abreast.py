"""Groups of a sequential learner side by side: each trains as it would alone, several in the same steps."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from grouplearn.learners.base import Interrupted, SequentialLearner, SideBySideLearner, State
from grouplearn.runtime.evaluation import conclude, evaluate
from grouplearn.runtime.fit import Pack, Training, begin, end_epoch, has_more, judged_now
from grouplearn.runtime.job import Job, UnitResult
from grouplearn.runtime.prepare import FINAL, GroupFailed, Prepared, prepare
from grouplearn.runtime.states import Keeper
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
            keeper = Keeper.of(job.states, alike[0][0], alike[0][0].configs, together=len(alike))
            results = _results([unit for unit, _ in alike], packs, keeper)
    except Interrupted:
        raise
    except Exception:
        results = [train_unit(job, unit, prepared, report, cancelled) for unit, prepared in alike]
    else:
        seconds = (time.perf_counter() - began) / (len(packs) * len(packs[0].configs))
        results = [_timed(result, seconds) for result in results]
    return {result.unit.group: result for result in results}


def _results(units: Sequence[Unit], packs: Sequence[Pack], keeper: Keeper) -> list[UnitResult]:
    found = []
    reached = keeper.read()
    start = reached if reached is not None and len(reached) == len(packs) else None
    for unit, pack, training in zip(units, packs, fit_side_by_side(packs, start, keeper.keep), strict=True):
        keep = unit.fold == FINAL
        trials = conclude(pack, unit.configs, training, evaluate(pack, training, keep), keep, 0.0)
        found.append(UnitResult(unit, trials, pack.prepared.facts))
    return found


def _timed(result: UnitResult, seconds: float) -> UnitResult:
    return replace(result, trials=tuple(replace(trial, seconds=seconds) for trial in result.trials))


def fit_side_by_side(
    packs: Sequence[Pack],
    start: Sequence[Training] | None = None,
    keep: Callable[[Callable[[], Sequence[Training]]], None] = lambda _: None,
) -> list[Training]:
    """Train packs of the same configs on a whole group each, epoch by epoch together; as ``fit_pack`` for each.

    ``start`` is what they have reached together, if anything; ``keep`` is that of all.
    """
    learner = cast(SideBySideLearner, packs[0].learner)
    trainings = [begin(pack) for pack in packs] if start is None else list(start)
    while going := [at for at, pack in enumerate(packs) if has_more(pack, trainings[at])]:
        packs[0].check()
        states = learner.train_stack(
            [packs[at].prepared.problem for at in going],
            packs[0].configs,
            [trainings[at].state for at in going],
            [packs[at].prepared.train.read() for at in going],
            trainings[going[0]].epochs,
        )
        for at, state in zip(going, states, strict=True):
            trainings[at] = _after_epoch(packs[at], trainings[at], state)
        keep(lambda: trainings)
    return trainings


def _after_epoch(pack: Pack, training: Training, state: State) -> Training:
    """Return the training of a whole group at the end of an epoch whose state is given, judged if there is a metric."""
    active = np.flatnonzero(~training.state.done).tolist()
    learner = cast(SequentialLearner, pack.learner)
    return judged_now(pack, end_epoch(pack, replace(training, state=state), active, learner.losses(state)))
