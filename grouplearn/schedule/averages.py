"""How a group's models are averaged: the options of rounds, as schedules and steps know them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Who takes the mean of models (Zhang et al. 2019, figure 2).
Reduction = Literal["scatter", "tree", "star"]
REDUCTIONS: tuple[Reduction, ...] = ("scatter", "tree", "star")
#: What partitions hand over (Zhang et al. 2019, algorithm 2).
Sent = Literal["model", "gradient"]
SENT: tuple[Sent, ...] = ("model", "gradient")


@dataclass(frozen=True, slots=True)
class Averages:
    """How models are averaged: the partitions of a group's rows, and who takes the mean: every worker of a part of it
    (``scatter``), some workers of what is near them and one of these (``tree``), or one of all (``star``).

    Partitions ``send`` the model after their pass, or the gradient at the model that all have. In a round the partition of most
    rows goes through so many ``batches`` and the others through as large a share of theirs; 0: through an epoch. With Δ what the
    mean moved a parameter by, the next one is w + v with ``v ← momentum·v + Δ``.

    With a ``staleness`` partitions do not wait for a mean: each pushes its changes, and goes on unless it is more rounds than
    that ahead of the slowest.
    """

    partitions: int = 1
    reduce: Reduction = "scatter"
    send: Sent = "model"
    batches: int = 0
    momentum: float = 0.0
    staleness: int = 0

    @property
    def from_before(self) -> bool:
        """Whether the next model is made of the one before, and not of what partitions hand over alone."""
        return self.send == "gradient" or self.momentum > 0
