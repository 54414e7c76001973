"""From dataset rows to stacks: many small groups prepared at once, by array operations over all their rows."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from grouplearn.data import encoders
from grouplearn.data.dataset import Group
from grouplearn.data.shard import Stack
from grouplearn.data.split import FINAL
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import GatheringLearner
from grouplearn.train.job import Job
from grouplearn.train.rows.chosen import NOTHING_HELD_OUT
from grouplearn.train.rows.prepare import GroupFailed, Prepared, prepare
from grouplearn.train.rows.stack_rows import PreparedFolds, PreparedStack, StackRows, nothing_is_fitted, seeds_of
from grouplearn.train.unit import or_failed


@dataclass(frozen=True, slots=True)
class Preparation:
    """The prepared groups of a unit: stacks, groups that must train alone, and groups that cannot be trained."""

    stacks: tuple[PreparedStack, ...]
    alone: dict[int, Prepared]
    failed: dict[int, GroupFailed]


def prepare_stacks(
    job: Job, groups: Sequence[Group], fold: int = FINAL, configs: Sequence[Config] | None = None
) -> Preparation:
    """Return ``groups`` prepared for ``fold``, by the rules of ``prepare``, in as few stacks as their shapes allow; alone are
    those whose shape the learner does not stack for these ``configs``, all unless given."""
    configs = job.configs if configs is None else configs
    rows = StackRows.of_groups(job, groups, fold) if _is_quick(job) else None
    fitted = None if rows is None else rows.fit(job)
    if rows is None or fitted is None:
        return _one_by_one(job, groups, range(len(groups)), fold, configs)
    idle = (rows.n_held_out == 0) & job.split.only_judged(fold)
    stacks, others = rows.stacks(job, fitted, configs, ~idle)
    slow = _one_by_one(job, groups, np.flatnonzero(others & ~idle).tolist(), fold, configs)
    failed = {place: GroupFailed(NOTHING_HELD_OUT) for place in np.flatnonzero(idle).tolist()}
    return Preparation((*stacks, *slow.stacks), slow.alone, failed | slow.failed)


def prepare_folds(job: Job, groups: Sequence[Group]) -> tuple[PreparedFolds | None, tuple[int, ...]]:
    """Return the groups ready to train all folds in one pass, and the places of unusual ones."""
    if not (_is_quick(job) and nothing_is_fitted(job) and job.rules.class_weight is None):
        return None, tuple(range(len(groups)))
    rows = StackRows.of_groups(job, groups, FINAL)
    unusual = rows.unusual(job) | rows.lacks_a_fold(job) | rows.lacks_a_class()
    others = tuple(np.flatnonzero(unusual).tolist())
    return (None if unusual.all() else rows.folded(job, ~unusual)), others


def _is_quick(job: Job) -> bool:
    """Whether groups can be prepared at once: one label a row, and not too many columns."""
    width = sum(
        job.fitted[number].width if number in job.fitted else max(1, item.buckets)
        for number, item in enumerate(job.items)
        if number in job.fitted or encoders.needs_no_fit(item)
    )
    return job.dataset.y.ndim == 1 and width <= encoders.DENSE_COLUMNS


def _one_by_one(
    job: Job, groups: Sequence[Group], places: Sequence[int], fold: int, configs: Sequence[Config]
) -> Preparation:
    learner = cast(GatheringLearner, job.trainer)
    failed: dict[int, GroupFailed] = {}
    alone: dict[int, Prepared] = {}
    alike: dict[tuple[Problem, bool], list[tuple[int, Prepared]]] = defaultdict(list)
    for place in places:
        group = groups[place]
        prepared = or_failed(functools.partial(prepare, job, group, fold))
        if isinstance(prepared, GroupFailed):
            failed[place] = prepared
        elif not isinstance(prepared.train.read().x, np.ndarray) or not learner.gathers(prepared.problem, configs):
            alone[place] = prepared
        else:
            shape = replace(prepared.problem, seed=0, n_unseen=0)
            alike[shape, prepared.valid is None].append((place, prepared))
    return Preparation(tuple(_stack_of(job, groups, members) for members in alike.values()), alone, failed)


def _stack_of(job: Job, groups: Sequence[Group], members: Sequence[tuple[int, Prepared]]) -> PreparedStack:
    every = [prepared for _, prepared in members]
    train = Stack.of([prepared.train.read() for prepared in every])
    train = replace(train, seed=seeds_of(job, [groups[place] for place, _ in members]))
    weighed = [prepared.judged.read() for prepared in every]
    held_out = [prepared.valid.read() for prepared in every if prepared.valid is not None]
    return PreparedStack(
        members=tuple(place for place, _ in members),
        problem=replace(every[0].problem, n_unseen=max(prepared.problem.n_unseen for prepared in every)),
        train=train,
        row_weight=train.weight if _same_weights(every) else Stack.of(weighed).weight,
        valid=Stack.of(held_out) if held_out else None,
        facts=tuple(prepared.facts for prepared in every),
    )


def _same_weights(every: Sequence[Prepared]) -> bool:
    return all(prepared.judged is prepared.train for prepared in every)
