"""Packs and units: which configs of a group train together, and which small groups train side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from grouplearn.bind.bound import BoundTrain
from grouplearn.data.encoders import DENSE_COLUMNS, needs_no_fit
from grouplearn.extract.counts.statistics import Statistics
from grouplearn.interrupting import with_checks
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import has_moments, trains_stacks
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import GatheringLearner
from grouplearn.models.label import Label
from grouplearn.plan.cost import durations as cost

#: Most groups trained side by side in one unit, and most values of their padded rows.
MAX_GATHERED, MAX_GATHERED_VALUES = 512, 1 << 21
#: Most configs trained in one pack: bounds the memory of scores and of solver history.
MAX_PACK = 64
#: Share of a given memory limit that the state and the sums of a pack may take.
PACK_SHARE = 0.1
#: Units to aim for where groups are few: enough for the cores of a usual machine, and the same for any number of workers.
WANTED_UNITS = 8
#: Feature values that a unit of small groups should have at least: the unit itself takes some milliseconds.
LEAST_GATHERED_VALUES = 4_096
#: Values over all boosting rounds of a group above which it is a unit of its own: they take tens of milliseconds, and
#: Python's work between two groups a few.
MOST_BOOSTED_VALUES = 1 << 19


def most_packed(bound: BoundTrain, stats: Statistics, label: Label, width: int) -> int:
    """Return the most configs per pack: as many as a given memory limit has room for, whatever the machine has."""
    if bound.options.placement.memory_limit is None or not bound.configs:
        return MAX_PACK
    outputs = label.n_scores(len(stats.classes))
    largest = max(
        cost.state_bytes(bound.learner, (config,), width, outputs)
        + cost.sums_bytes(bound.learner, (config,), width, outputs)
        for config in bound.configs
    )
    return max(1, min(MAX_PACK, int(PACK_SHARE * bound.options.placement.memory_limit / largest)))


def pack_configs(
    learner: Learner, configs: Sequence[Config], n_groups: int, most: int = MAX_PACK
) -> tuple[tuple[int, ...], ...]:
    """Return configs that may share a state, in order, at most ``most`` together.

    One pass over the rows serves a whole pack. Learners that train configs one after the other gain little from that: where
    groups are few, their packs are cut into about ``WANTED_UNITS`` units for workers to share.
    Before: 12 configs that differ in l1. After: ``((0, 1, ..., 11),)``.
    """
    cut = math.ceil(n_groups * len(configs) / WANTED_UNITS) if learner.access.one_by_one else MAX_PACK
    most = min(most, max(1, cut))
    by_key: dict[object, list[int]] = {}
    for number, config in enumerate(configs):
        by_key.setdefault(learner.pack_key(config), []).append(number)
    return tuple(
        tuple(members[start : start + most]) for members in by_key.values() for start in range(0, len(members), most)
    )


def solves(bound: BoundTrain, label: Label) -> bool:
    """Whether small groups train in batched solves, where no epoch of a trial is looked at on its own.

    Each group decides by its own columns and classes, of which others may have more: it then trains as it would alone.
    """
    if looks_at_epochs(bound) or not trains_stacks(bound.learner):
        return False
    return cast(GatheringLearner, bound.learner).gathers(Problem(label.within_group, 1), bound.configs)


def looks_at_epochs(bound: BoundTrain) -> bool:
    """Whether the epochs of a trial are looked at one by one, so that its group trains alone, not in a batched solve."""
    training = bound.options.training
    return training.early_stopping is not None or training.within is not None or bound.search is not None


def gather_small_groups(
    bound: BoundTrain, stats: Statistics, label: Label, width: int, longest_block: int
) -> tuple[tuple[int, ...], ...]:
    """Return the groups of each unit: large ones alone, small ones of similar size side by side.

    Sizes within a factor of two are together, so that padding at most doubles the rows. The rule depends on the groups
    alone, never on workers. Before: 96 groups of 500 rows. After: ``((0, ..., 11), ..., (84, ..., 95))``.
    """
    if not solves(bound, label):
        return tuple((number,) for number in with_checks(range(len(stats.groups))))
    by_size: dict[int, list[int]] = {}
    large: list[tuple[int, ...]] = []
    row_values = _row_values(bound, width)
    is_small = are_small(bound, np.array(stats.rows, np.int64), width, longest_block)
    for number, (n_rows, small) in enumerate(with_checks(zip(stats.rows, is_small.tolist(), strict=True))):
        if not small:
            large.append((number,))
        else:
            by_size.setdefault(n_rows.bit_length(), []).append(number)
    share = math.ceil(sum(map(len, by_size.values())) / WANTED_UNITS)
    gathered = [
        tuple(members[start : start + most])
        for size, members in sorted(by_size.items())
        for values in [row_values << size]
        for wanted in [max(share, LEAST_GATHERED_VALUES // values)]
        for most in [max(1, min(MAX_GATHERED, wanted, MAX_GATHERED_VALUES // values))]
        for start in range(0, len(members), most)
    ]
    return tuple(sorted([*large, *gathered]))


def _row_values(bound: BoundTrain, width: int) -> int:
    """Return the values per row that a unit reads: its columns; for boosting times rounds and configs."""
    if not bound.learner.access.in_one_go:
        return width
    rounds = sorted(bound.learner.cost.passes(config, 1) for config in bound.configs)
    return width * max(1, sum(rounds[-MAX_PACK:]))


def are_small(
    bound: BoundTrain, n_rows: npt.NDArray[np.int64], width: int, longest_block: int
) -> npt.NDArray[np.bool_]:
    """Return which groups train side by side: those of one block whose rounds take at most some milliseconds."""
    small: npt.NDArray[np.bool_] = n_rows <= longest_block
    if bound.learner.access.in_one_go:
        small &= n_rows * _row_values(bound, width) <= MOST_BOOSTED_VALUES
    return small


def folds_in_one_pass(bound: BoundTrain, width: int) -> bool:
    """Whether all folds of a group share one unit: the learner solves from moments, and the moments of a fold's training
    rows are those of all rows less its own. Not with an encoder fitted on a group's training rows, which makes other
    columns for every fold."""
    fixed = all(item.scope == "all" or needs_no_fit(item) for item in bound.stored_items)
    exact = has_moments(bound.learner) and not looks_at_epochs(bound)
    return fixed and width <= DENSE_COLUMNS and exact
