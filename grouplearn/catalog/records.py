"""What the catalog stores about a model: its definition and the outcome of the run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from grouplearn.bind.definition import HyperparameterColumn, ItemColumn, KeyColumn, ModelDefinition
from grouplearn.data.dataset import Group
from grouplearn.learners.contract.config import Config
from grouplearn.train.job import UnitResult
from grouplearn.train.results.outcome import GroupOutcome, PackedOutcome

__all__ = [
    "GroupOutcome",
    "HyperparameterColumn",
    "ItemColumn",
    "KeyColumn",
    "ModelDefinition",
    "PackedOutcome",
    "RunOutcome",
]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A finished run: outcomes by group, the units as they ran, and how they were run.

    ``packs`` are outcomes of groups trained side by side, ``groups`` all others. ``configs`` are those that a search tried,
    None if the statement lists all.
    """

    groups: tuple[GroupOutcome, ...]
    units: tuple[UnitResult, ...]
    operator: str
    executor: str
    workers: int
    seconds: float
    packs: tuple[PackedOutcome, ...] = ()
    configs: tuple[Config, ...] | None = None

    @property
    def has_model(self) -> bool:
        """Whether any group has a model."""
        return any(each.best is not None for each in self.groups) or any((pack.best >= 0).any() for pack in self.packs)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.groups) + sum(len(pack.groups) for pack in self.packs)

    def failed_groups(self) -> list[Group]:
        """Return the groups without a model."""
        packed = (pack.groups[place] for pack in self.packs for place in np.flatnonzero(pack.best < 0).tolist())
        return [*(entry.group for entry in self.groups if entry.best is None), *packed]

    def apart(self, numbers: Collection[int], metric: str) -> RunOutcome:
        """Return the outcome with these groups among ``groups``, by number; ``metric`` is that of the curves."""
        alone, packs = list(self.groups), []
        for pack in self.packs:
            chosen = np.isin([group.id for group in pack.groups], list(numbers))
            if chosen.any():
                alone += pack.only(np.flatnonzero(chosen)).outcomes(metric)
            if not chosen.all():
                packs.append(pack.only(np.flatnonzero(~chosen)) if chosen.any() else pack)
        groups = tuple(sorted(alone, key=lambda outcome: outcome.group.id))
        return replace(self, groups=groups, packs=tuple(packs))

    def every_group(self, metric: str) -> list[GroupOutcome]:
        """Return the outcomes of all groups as objects, in order of number; ``metric`` is that of the curves."""
        unpacked = (outcome for pack in self.packs for outcome in pack.outcomes(metric))
        return sorted((*self.groups, *unpacked), key=lambda outcome: outcome.group.id)
