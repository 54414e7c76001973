"""How models of a group's partitions are averaged: the options of WITH, and as schedules and steps need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from grouplearn import sqltext
from grouplearn.failures import WrongValue
from grouplearn.messages import did_you_mean
from grouplearn.schedule.options import MOST, MOST_WORKERS, OneOf, OperatorOption, whole

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

    @classmethod
    def of(cls, options: Mapping[str, Any], partitions: int) -> Averages:
        """Return what the options say; ``partitions`` is the number where they say none."""
        return cls(
            partitions=options["partitions"] or partitions,
            reduce=options["reduce"],
            send=options["send"],
            batches=options["sync"] if isinstance(options["sync"], int) else 0,
            momentum=options["outer_momentum"],
            staleness=options["staleness"],
        )

    @property
    def from_before(self) -> bool:
        """Whether the next model depends on the previous one, not only on what partitions send."""
        return self.of_gradients or self.momentum > 0

    @property
    def of_gradients(self) -> bool:
        """Whether partitions send gradients, and not models."""
        return self.send == "gradient"

    @property
    def in_turns(self) -> bool:
        """Whether partitions push when they are ready, and wait for no mean."""
        return self.staleness > 0


def _synchronised(value: Any) -> str | int:
    """Return the checked interval between two averages: 'epoch', or a number of batches."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST:
        return value
    said = value.lower() if isinstance(value, str) else None
    if said in ("epoch", "batch"):
        return "epoch" if said == "epoch" else 1
    hint = did_you_mean(value, ["epoch", "batch"]) if isinstance(value, str) else None
    raise WrongValue(f"must be 'epoch', 'batch' or a number of batches from 1 on, got {sqltext.shown(value)}", hint)


def _momentum(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not 0 <= value < 1:
        raise ValueError(f"must be a number from 0 to less than 1, got {sqltext.shown(value)}")
    return float(value)


PARTITIONS = OperatorOption(
    "partitions",
    "parts of a group's rows that train side by side; by default one for each worker",
    whole(1, MOST_WORKERS),
)
SEND = OperatorOption(
    "send",
    "what partitions send: their 'model', or the 'gradient' at the common model",
    OneOf(*SENT),
    "model",
    needs_batches=True,
)
SYNC = OperatorOption(
    "sync",
    "when they send it: after every 'epoch', every 'batch', or a number of batches",
    _synchronised,
    "epoch",
    needs_batches=True,
)
OUTER_MOMENTUM = OperatorOption(
    "outer_momentum",
    "momentum: the share of a round's move that the next round repeats, below 1; by default 0",
    _momentum,
    0.0,
    needs_batches=True,
)
REDUCE = OperatorOption(
    "reduce",
    "who computes the mean: 'scatter' (each worker for its part), 'tree' or 'star'",
    OneOf(*REDUCTIONS),
    "scatter",
)
STALENESS = OperatorOption(
    "staleness",
    "how many more times than the slowest a partition may have pushed; by default 1; 0: all wait",
    whole(0),
    1,
)
