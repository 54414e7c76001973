"""How models of a group's partitions are averaged: the options, as schedules and steps need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Who averages models (Zhang et al. 2019, figure 2).
Reduction = Literal["scatter", "tree", "star"]
REDUCTIONS: tuple[Reduction, ...] = ("scatter", "tree", "star")
#: What partitions send (Zhang et al. 2019, algorithm 2).
Sent = Literal["model", "gradient"]
SENT: tuple[Sent, ...] = ("model", "gradient")


@dataclass(frozen=True, slots=True)
class Averages:
    """How models are averaged: the number of partitions of a group's rows, and where the mean is computed.

    ``scatter``: every worker averages one part; ``tree``: some workers average their neighbours and one of them the rest;
    ``star``: one worker averages everything.

    Partitions ``send`` the model after their pass, or the gradient at the common model. In a round the partition with most
    rows processes this many ``batches`` and the others an equal share of theirs; 0 means an epoch. If the mean moved a
    parameter by Δ, the next one is w + v with ``v ← momentum·v + Δ``.

    With a ``staleness`` partitions do not wait for a mean: each pushes its changes, and continues unless it is more rounds
    than that ahead of the slowest.
    """

    partitions: int = 1
    reduce: Reduction = "scatter"
    send: Sent = "model"
    batches: int = 0
    momentum: float = 0.0
    staleness: int = 0

    @property
    def from_before(self) -> bool:
        """Whether the next model depends on the previous one, not only on what partitions send."""
        return self.send == "gradient" or self.momentum > 0
