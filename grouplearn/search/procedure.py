"""What a search procedure is: results of a round in, trials of the next round out.

The template is Cerebro's (Nakandala et al. 2020, 4.2): all trials of a round train up to a barrier; the procedure sees
their values and says which continue, which begin and which continue from a copy of another's state. Trials that it omits
are stopped, unless it says that they wait. A budget is in epochs, or parts of the training rows. A procedure has no clock
and no input or output; for one seed and equal results it decides the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from grouplearn.learners.contract.config import Config

#: The value of a trial without a model (failed, or stopped by the user).
WORST = -math.inf


@dataclass(frozen=True, slots=True)
class TrialBudget:
    """A trial of the next round: it trains until it has had ``budget``, counted over all rounds.

    A new trial begins from scratch, or from a copy of its ``parent``'s state.
    """

    trial: int
    config: Config
    budget: int
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Judgment:
    """A rung's final judgment of a trial: it ``passed`` (also the last rung), or lost to others."""

    trial: int
    rung: int
    passed: bool


class Procedure(Protocol):
    """Decides about the trials of one group, or of all groups together."""

    def begin(self) -> tuple[TrialBudget, ...]:
        """Return the trials of the first round."""
        ...

    def on(self, values: Mapping[int, float]) -> tuple[TrialBudget, ...]:
        """Take the value of every trial of the round at its barrier (greater is better), and return the next round.

        Nothing is returned when the search is over. Trials of value ``WORST`` are never continued or copied.
        """
        ...

    @property
    def waiting(self) -> frozenset[int]:
        """The trials that are not in the next round but may be in a later one, so that their state must be kept."""
        ...

    @property
    def judged(self) -> tuple[Judgment, ...]:
        """The last barrier's final judgments of trials; empty without rungs."""
        ...


class WithoutRungs:
    """Base of procedures whose trials continue at once or never."""

    @property
    def waiting(self) -> frozenset[int]:
        """No trial waits."""
        return frozenset()

    @property
    def judged(self) -> tuple[Judgment, ...]:
        """There are no rungs."""
        return ()


def ranked(values: Mapping[int, float], seed: int) -> list[int]:
    """Return the trials that have a model, best first; ties are broken at random, as numbers say nothing about trials."""
    models = (trial for trial in values if values[trial] > WORST)
    return sorted(models, key=lambda trial: (-values[trial], _lot(seed, trial), trial))


def _lot(seed: int, trial: int) -> int:
    """Return 64 pseudo-random bits per trial (SplitMix64)."""
    mixed = (seed + (trial + 1) * 0x9E3779B97F4A7C15) % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)
