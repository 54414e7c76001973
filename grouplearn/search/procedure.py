"""What a search procedure is: results of a round in, the trials of the next round out.

The template is Cerebro's (Nakandala et al. 2020, 4.2): all trials of a round train up to a barrier, the procedure sees how
they do there, and says which go on, which begin and which continue from a copy of another's state. What it leaves out has
stopped, unless it says that it waits. A budget is epochs, or parts of the training rows. A procedure has no clock and does no
input or output; for one seed and the same results it says the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from grouplearn.learners.contract.config import Config

#: What a trial without a model (failed, stopped by the user) is worth.
WORST = -math.inf


@dataclass(frozen=True, slots=True)
class Go:
    """A trial of the next round: it trains until it has had ``budget``, all its rounds together.

    A new trial begins from nothing, or from a copy of the state that its ``parent`` has reached.
    """

    trial: int
    config: Config
    budget: int
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Judgment:
    """What a rung says of a trial for good: it ``passed``, also the last one, or it lost to others."""

    trial: int
    rung: int
    passed: bool


class Procedure(Protocol):
    """Decides about the trials of one group, or of all groups together."""

    def begin(self) -> tuple[Go, ...]:
        """Return the trials of the first round."""
        ...

    def on(self, values: Mapping[int, float]) -> tuple[Go, ...]:
        """Take the value of every trial of the round at its barrier, greater is better, and return the next round.

        Nothing is returned when the search is over. ``WORST`` is never continued nor copied.
        """
        ...

    @property
    def waiting(self) -> frozenset[int]:
        """The trials that are not in the next round and may be in a later one: what they have reached must be kept."""
        ...

    @property
    def judged(self) -> tuple[Judgment, ...]:
        """What the last barrier said of trials for good; nothing where there are no rungs."""
        ...


class WithoutRungs:
    """Of procedures whose trials go on at once or never."""

    @property
    def waiting(self) -> frozenset[int]:
        """No trial waits."""
        return frozenset()

    @property
    def judged(self) -> tuple[Judgment, ...]:
        """There are no rungs."""
        return ()


def ranked(values: Mapping[int, float], seed: int) -> list[int]:
    """Return the trials that have a model, best first; ties by lot, as numbers say nothing about trials."""
    models = (trial for trial in values if values[trial] > WORST)
    return sorted(models, key=lambda trial: (-values[trial], _lot(seed, trial), trial))


def _lot(seed: int, trial: int) -> int:
    """Return 64 bits that differ from trial to trial (SplitMix64)."""
    mixed = (seed + (trial + 1) * 0x9E3779B97F4A7C15) % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)
