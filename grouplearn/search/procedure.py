"""What a search procedure is: results of a round in, the trials of the next round out.

The template is Cerebro's (Nakandala et al. 2020, 4.2): all trials of a round train up to a barrier, the procedure sees how
they do there, and says which go on, which begin and which continue from a copy of another's state. What it leaves out has
stopped. A procedure has no clock and does no input or output; for one seed and the same results it says the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from grouplearn.learners.base import Config

#: What a trial without a model (failed, stopped by the user) is worth.
WORST = -math.inf


@dataclass(frozen=True, slots=True)
class Go:
    """A trial of the next round: it trains until it has had ``epochs`` epochs, all its rounds together.

    A new trial begins from nothing, or from a copy of the state that its ``parent`` has reached.
    """

    trial: int
    config: Config
    epochs: int
    parent: int | None = None


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


def ranked(values: Mapping[int, float]) -> list[int]:
    """Return the trials that have a model, best first, ties by trial."""
    return sorted((trial for trial in values if values[trial] > WORST), key=lambda trial: (-values[trial], trial))
