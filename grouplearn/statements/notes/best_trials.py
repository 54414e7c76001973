"""Numbers of the best trials of a run, by group, as arrays: there may be a hundred thousand groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from grouplearn.catalog.records import Outcome
from grouplearn.data.dataset import Group
from grouplearn.data.shard import FloatArray
from grouplearn.train.job import GroupFacts
from grouplearn.train.results.trials import Trials

Part = Literal["train", "valid"]


@dataclass(frozen=True, slots=True)
class BestTrials:
    """The groups that have a model, and the numbers of their best trials in the same order."""

    groups: tuple[Group, ...]
    configs: npt.NDArray[np.int32]
    _trials: Trials
    _facts: tuple[GroupFacts | None, ...]

    @classmethod
    def of(cls, outcome: Outcome) -> BestTrials:
        """Return those of a run."""
        own = outcome.only(outcome.best >= 0)
        return cls(own.groups, own.best, own.trials.take(np.flatnonzero(own.is_best)), own.facts)

    @property
    def first(self) -> Group:
        """The first group that an answer shows."""
        return self.groups[0]

    def metric(self, name: str, part: Part) -> FloatArray:
        """Return a metric of each best trial on the rows that it learned from, or on held-out rows; NaN if there is none."""
        return self._trials.metric(part, name)

    def skipping(self) -> list[tuple[Group, GroupFacts]]:
        """Return the groups with skipped rows, and what is known of them."""
        return [
            (group, facts) for group, facts in zip(self.groups, self._facts, strict=True) if facts and facts.n_skipped
        ]
