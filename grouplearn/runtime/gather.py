"""Small groups side by side: one batched solve for all of them instead of one small solve each."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from grouplearn.data.shard import FloatArray, Stack
from grouplearn.learners import registry
from grouplearn.learners.base import AlgebraicLearner, Config, Interrupted, State
from grouplearn.runtime.fit import Fit, Pack
from grouplearn.runtime.job import CurvePoint, Job, TrialResult, UnitResult
from grouplearn.runtime.prepare import FINAL, GroupFailed, Prepared, prepare
from grouplearn.runtime.unit import failed_unit, finish_pack, group_of, reason_of, train_unit
from grouplearn.schedule.messages import Unit


def train_gathered(job: Job, unit: Unit, report: Callable[[int], None], cancelled: Callable[[], bool]) -> UnitResult:
    """Train a unit of several groups: those of one shape in one stack, the others one by one.

    Which groups stand together depends on the plan and the data alone, so the models are the same on any worker. Raises
    Interrupted and nothing else.
    """
    found: dict[int, UnitResult] = {}
    ready: dict[tuple[int, int], list[tuple[int, Prepared]]] = defaultdict(list)
    for group in unit.groups:
        if cancelled():
            raise Interrupted
        prepared = _prepared(job, unit, group)
        if isinstance(prepared, GroupFailed):
            found[group] = failed_unit(unit.of(group), str(prepared))
        else:
            problem = prepared.problem
            ready[problem.n_features, problem.n_classes].append((group, prepared))
    for members in ready.values():
        found.update(_train_alike(job, unit, members, report, cancelled))
    return UnitResult(unit, (), members=tuple(found[group] for group in unit.groups))


def _prepared(job: Job, unit: Unit, group: int) -> Prepared | GroupFailed:
    try:
        with np.errstate(all="ignore"):
            return prepare(job, group_of(job, group), unit.fold)
    except GroupFailed as error:
        return error
    except Interrupted:
        raise
    except Exception as error:
        return GroupFailed(reason_of(error))


def _train_alike(
    job: Job,
    unit: Unit,
    members: Sequence[tuple[int, Prepared]],
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> dict[int, UnitResult]:
    learner = cast(AlgebraicLearner, registry.learner(job.learner))
    configs = tuple(job.configs[number] for number in unit.configs)
    dense = all(isinstance(prepared.train.x, np.ndarray) for _, prepared in members)
    if len(members) > 1 and dense and learner.gathers(members[0][1].problem, configs):
        try:
            with np.errstate(all="ignore"):
                return _train_stack(job, unit, members, configs, report, cancelled)
        except Interrupted:
            raise
        except Exception:  # noqa: S110  (one group broke the stack: alone, each tells its own reason)
            pass
    return {group: train_unit(job, unit.of(group), prepared, report, cancelled) for group, prepared in members}


def _train_stack(
    job: Job,
    unit: Unit,
    members: Sequence[tuple[int, Prepared]],
    configs: tuple[Config, ...],
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> dict[int, UnitResult]:
    learner = cast(AlgebraicLearner, registry.learner(job.learner))
    problem = members[0][1].problem
    everyone = configs * len(members)
    stack = Stack.of([prepared.train for _, prepared in members])
    started = time.perf_counter()
    state = learner.init(problem, everyone)
    fits = tuple(Fit() for _ in everyone)
    for epoch in range(1, problem.epochs + 1):
        active = np.flatnonzero(~state.done).tolist()
        if not active:
            break
        if cancelled():
            raise Interrupted
        state = learner.step(problem, everyone, state, learner.accumulate(problem, everyone, state, stack))
        _record(fits, active, epoch, learner.losses(state))
        report(len(active))
    # Seconds are shared equally: everything took place at once.
    elapsed = (time.perf_counter() - started) / len(members)
    results = {}
    for place, (group, prepared) in enumerate(members):
        rows = slice(place * len(configs), (place + 1) * len(configs))
        pack = Pack(learner, configs, prepared, job.metric, None, report, cancelled)
        own = State({name: value[rows] for name, value in state.tensors.items()}, state.done[rows])
        began = time.perf_counter() - elapsed
        trials = finish_pack(pack, unit.configs, own, fits[rows], unit.fold == FINAL, began)
        results[group] = UnitResult(unit.of(group), tuple(_curve_ended(job, trial) for trial in trials), prepared.facts)
    return results


def _record(fits: Sequence[Fit], active: Sequence[int], epoch: int, losses: FloatArray) -> None:
    for index in active:
        loss = float(losses[index])
        fits[index].epochs = epoch
        fits[index].curve.append(CurvePoint(epoch, loss, math.nan))
        fits[index].diverged |= not math.isfinite(loss)


def _curve_ended(job: Job, trial: TrialResult) -> TrialResult:
    """Put the validation metric on the last point of the curve: in a stack it is measured at the end only."""
    value = trial.valid.get(job.metric, math.nan)
    if not trial.curve or math.isnan(value):
        return trial
    return replace(trial, curve=(*trial.curve[:-1], replace(trial.curve[-1], valid_metric=value)))
