"""All search procedures by name, and a statement's search plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Resource
from grouplearn.search import asha, hyperband, space
from grouplearn.search.asha import Asha
from grouplearn.search.hyperband import Bracket, Hyperband
from grouplearn.search.pbt import Pbt
from grouplearn.search.procedure import Procedure
from grouplearn.search.space import Choices, Dimension
from grouplearn.search.tpe import Tpe

#: The searches of OVER that learn from results; GRID and RANDOM list all configurations first.
PROCEDURES = ("hyperband", "asha", "pbt", "tpe")
#: Most parts into which rows are cut: a rung trains on one or more.
MOST_PARTS = 27

#: Default number of trials; Hyperband's follows from its brackets.
DEFAULT_TRIALS = {"random": 10, "asha": 27, "pbt": 10, "tpe": 30}


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A search procedure with its parameters: ``budget`` is the most of a trial, ``trials`` the most trials.

    Rungs are at parts of the budget. If its ``resource`` is ``epochs`` or ``iterations`` of boosting, a trial continues from one
    rung to the next; if it is ``rows``, it trains to its end at each rung on so many of ``budget`` parts of the training rows,
    as epochs of a solver tell configurations apart only after convergence (Li et al. 2018, 4.3).

    ``factor`` is η; ``least`` the budget of ASHA's first rung and ``slots`` the number of its trials in training;
    ``interval`` the epochs between two barriers of PBT. ``shared``: one decision for all groups instead of one per group.
    ``anew``: some trials train from the beginning at each rung.
    """

    method: str
    dimensions: tuple[Dimension, ...]
    base: Config
    trials: int
    budget: int
    seed: int
    factor: int = 3
    least: int = 1
    slots: int = 9
    interval: int = 1
    shared: bool = False
    resource: Resource = "epochs"
    anew: bool = False

    @property
    def searched(self) -> tuple[str, ...]:
        """The hyperparameters that are searched."""
        return tuple(
            name for each in self.dimensions for name in (each.names if isinstance(each, Choices) else (each.name,))
        )

    @property
    def continues(self) -> bool:
        """Whether trials continue from one round to the next; otherwise each trains to its end in one."""
        return self.method != "tpe" and self.resource != "rows"

    @property
    def prunes(self) -> bool:
        """Whether losing trials stop for good."""
        return self.method in ("hyperband", "asha")

    def first_configs(self) -> tuple[Config, ...]:
        """Return the configurations that are known before any result, in random order."""
        if self.method == "tpe":
            return tuple(go.config for go in self.procedure((), lambda *_: True).begin())
        configs = space.random(self.dimensions, self.base, self.trials, self.seed)
        order = np.random.Generator(np.random.PCG64(self.seed)).permutation(len(configs))
        return tuple(configs[place] for place in order)

    def procedure(
        self, configs: Sequence[Config], alike: Callable[[Config, Config], bool], seed: int | None = None
    ) -> Procedure:
        """Return a new state machine that begins with ``configs``.

        ``alike``: whether a state fits both of two configs. ``seed`` breaks ties.
        """
        lots = self.seed if seed is None else seed
        match self.method:
            case "hyperband":
                return Hyperband(configs, self.budget, self.factor, lots)
            case "asha":
                return Asha(configs, self._rungs, self.factor, self.slots, lots, whole=self.resource == "rows")
            case "pbt":
                return Pbt(configs, self.dimensions, self.budget, self.interval, self.seed, alike)
            case "tpe":
                return Tpe(self.dimensions, self.base, self.trials, self.budget, self.seed)
        raise ValueError(f"there is no search procedure {self.method}")

    @property
    def _rungs(self) -> tuple[int, ...]:
        return asha.rungs(self.budget, self.factor, self.least)

    def most_budget(self, configs: int) -> int:
        """Return about what a group takes, summed over its trials; ``configs`` are the first ones."""
        match self.method:
            case "hyperband":
                return hyperband.most_budget(configs, self.budget, self.factor, self.anew)
            case "asha":
                return asha.most_budget(configs, self._rungs, self.factor, self.anew)
            case "pbt":
                return configs * self.budget
            case _:
                return self.trials * self.budget

    def most_trainings(self, configs: int) -> int:
        """Return about how many times a group's trials train, each to its end, if rungs are parts of the rows."""
        if self.method == "hyperband":
            return hyperband.most_trainings(configs, self.budget, self.factor)
        return asha.most_trainings(configs, self._rungs, self.factor)

    def brackets(self, configs: int) -> tuple[Bracket, ...]:
        """Return the rungs at which a group's trials are judged; ASHA has one bracket, about as in synchronous halving."""
        if self.method == "hyperband":
            return hyperband.brackets_of(configs, self.budget, self.factor)
        return (asha.bracket(configs, self._rungs, self.factor),)

    def most_trials(self, configs: int) -> int:
        """Return about how many trials a group has."""
        if self.method == "pbt":
            barriers = -(-self.budget // self.interval) - 1
            return configs + (max(1, configs // 5) * barriers if configs > 1 else 0)
        return self.trials if self.method == "tpe" else configs


def parts(factor: int) -> int:
    """Return the number of parts of the rows if they are the resource: the largest power of η up to ``MOST_PARTS``."""
    power = factor
    while power * factor <= MOST_PARTS:
        power *= factor
    return power
