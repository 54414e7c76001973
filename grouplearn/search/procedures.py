"""All search procedures by name, and what a statement says about one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grouplearn.learners.base import Config
from grouplearn.search import asha, hyperband, space
from grouplearn.search.asha import Asha
from grouplearn.search.hyperband import Hyperband
from grouplearn.search.pbt import Pbt
from grouplearn.search.procedure import Procedure
from grouplearn.search.space import Choices, Dimension
from grouplearn.search.tpe import Tpe

#: What OVER may be followed by: searches that list all configurations first, and procedures that learn from results.
ONE_SHOT = ("grid", "random")
PROCEDURES = ("hyperband", "asha", "pbt", "tpe")
METHODS = (*ONE_SHOT, *PROCEDURES)

#: Trials of a search that does not say; Hyperband's follow from its brackets.
DEFAULT_TRIALS = {"random": 10, "asha": 27, "pbt": 10, "tpe": 30}


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A search procedure with its numbers: ``epochs`` is the most that a trial may have, ``trials`` the most there are.

    ``factor`` is η; ``least`` the epochs of ASHA's first rung and ``slots`` how many of its trials train at a time;
    ``interval`` the epochs between two barriers of PBT. ``shared``: one decision for all groups instead of one per group.
    """

    method: str
    dimensions: tuple[Dimension, ...]
    base: Config
    trials: int
    epochs: int
    seed: int
    factor: int = 3
    least: int = 1
    slots: int = 9
    interval: int = 1
    shared: bool = False

    @property
    def searched(self) -> tuple[str, ...]:
        """The hyperparameters that are searched."""
        return tuple(
            name for each in self.dimensions for name in (each.names if isinstance(each, Choices) else (each.name,))
        )

    @property
    def continues(self) -> bool:
        """Whether trials go on from one round to the next; otherwise each trains to its end in one."""
        return self.method != "tpe"

    @property
    def prunes(self) -> bool:
        """Whether trials that lose stop for good."""
        return self.method in ("hyperband", "asha")

    def first_configs(self) -> tuple[Config, ...]:
        """Return the configurations that are known before any result, in random order."""
        if self.method == "tpe":
            return tuple(go.config for go in self.procedure((), lambda *_: True).begin())
        configs = space.random(self.dimensions, self.base, self.trials, self.seed)
        order = np.random.Generator(np.random.PCG64(self.seed)).permutation(len(configs))
        return tuple(configs[place] for place in order)

    def procedure(self, configs: Sequence[Config], alike: Callable[[Config, Config], bool]) -> Procedure:
        """Return a fresh state machine that begins with ``configs``; ``alike``: whether a state fits both of two configs."""
        match self.method:
            case "hyperband":
                return Hyperband(configs, self.epochs, self.factor)
            case "asha":
                return Asha(configs, self.epochs, self.factor, self.least, self.slots)
            case "pbt":
                return Pbt(configs, self.dimensions, self.epochs, self.interval, self.seed, alike)
            case "tpe":
                return Tpe(self.dimensions, self.base, self.trials, self.epochs, self.seed)
        raise ValueError(f"there is no search procedure {self.method}")

    def most_epochs(self, configs: int) -> int:
        """Return about how many epochs a group takes, summed over its trials; ``configs`` are known at first."""
        match self.method:
            case "hyperband":
                return hyperband.most_epochs(configs, self.epochs, self.factor)
            case "asha":
                return asha.most_epochs(configs, self.epochs, self.factor, self.least)
            case "pbt":
                return configs * self.epochs
            case _:
                return self.trials * self.epochs

    def most_trials(self, configs: int) -> int:
        """Return about how many trials a group has."""
        if self.method == "pbt":
            barriers = -(-self.epochs // self.interval) - 1
            return configs + (max(1, configs // 5) * barriers if configs > 1 else 0)
        return self.trials if self.method == "tpe" else configs
