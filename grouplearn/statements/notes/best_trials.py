"""Numbers of the best trials of a run, by group, as arrays: there may be a hundred thousand groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from grouplearn.catalog.records import GroupOutcome, PackedOutcome, RunOutcome
from grouplearn.data.dataset import Group
from grouplearn.data.shard import FloatArray
from grouplearn.train.job import TrialResult

Part = Literal["train", "valid"]


@dataclass(frozen=True, slots=True)
class BestTrials:
    """The groups that have a model, and the numbers of their best trials in the same order."""

    groups: tuple[Group, ...]
    configs: npt.NDArray[np.intp]
    _alone: tuple[TrialResult, ...]
    _packs: tuple[PackedOutcome, ...]
    _skipped: tuple[int, ...]

    @classmethod
    def of(cls, outcome: RunOutcome) -> BestTrials:
        """Return those of a run."""
        alone = [(each, trial) for each in outcome.groups if (trial := _best(each)) is not None]
        groups = [each.group for each, _ in alone]
        skipped = [0 if each.facts is None else each.facts.n_skipped for each, _ in alone]
        configs = [np.array([trial.config for _, trial in alone], np.intp)]
        for pack in outcome.packs:
            has_model = np.flatnonzero(pack.best >= 0).tolist()
            groups += [pack.groups[place] for place in has_model]
            facts = (pack.pack.facts[place] for place in has_model)
            skipped += [0 if each is None else each.n_skipped for each in facts]
            configs.append(np.array(pack.pack.configs, np.intp)[pack.best[has_model]])
        trials = tuple(trial for _, trial in alone)
        return cls(tuple(groups), np.concatenate(configs), trials, outcome.packs, tuple(skipped))

    @property
    def first(self) -> Group:
        """The first group that an answer shows."""
        return min(self.groups, key=lambda group: group.id)

    def metric(self, name: str, part: Part) -> FloatArray:
        """Return a metric of each best trial on the rows that it learned from, or on held-out rows; NaN if there is none."""
        return np.concatenate(list(self._parts(name, part)))

    def _parts(self, name: str, part: Part) -> Iterator[FloatArray]:
        yield np.array([getattr(trial, part).get(name, np.nan) for trial in self._alone], np.float64)
        for pack in self._packs:
            has_model = np.flatnonzero(pack.best >= 0)
            values = getattr(pack.pack, part).get(name)
            nothing = np.full(has_model.size, np.nan)
            yield nothing if values is None else values[has_model, pack.best[has_model]]

    def skipping(self) -> list[tuple[Group, int]]:
        """Return the groups with skipped rows, and how many."""
        return [(group, count) for group, count in zip(self.groups, self._skipped, strict=True) if count]


def _best(outcome: GroupOutcome) -> TrialResult | None:
    return next((trial for trial in outcome.trials if trial.config == outcome.best), None)
