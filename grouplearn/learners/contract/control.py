"""How a training ends early, and the processes that share one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from socket import socket

from grouplearn.learners.contract.state import State


class Diverged(ArithmeticError):
    """Raised by a learner when no config of the pack can go on; the message tells the user why.

    ``column`` is the index of the feature column that a message is about: it says ``feature column <index + 1>``.
    """

    def __init__(self, message: str, column: int | None = None) -> None:
        super().__init__(message)
        self.column = column

    def about(self, features: Sequence[str]) -> str:
        """Return the message with the name of the feature column in place of its number, if ``features`` has it."""
        if self.column is None or self.column >= len(features):
            return str(self)
        return str(self).replace(f"feature column {self.column + 1}", f'feature "{features[self.column]}"')


class Interrupted(Exception):
    """Raised inside a unit when the user cancelled the statement."""


@dataclass
class Sent:
    """Counts the bytes that a member of a gang gives to the others, each of them once however many others there are."""

    n_bytes: int = 0

    def add(self, n_bytes: int) -> None:
        """Count more."""
        self.n_bytes += n_bytes


@dataclass(frozen=True, slots=True)
class Gang:
    """Processes of this machine that train one model together: this one is ``rank`` of ``size``.

    ``directory`` is one that all of them can write and nobody else can enter. Nobody waits longer than ``seconds`` for another
    to come. ``sent`` counts this member's gradients, ``links`` are the sockets to the others while they are joined.
    """

    rank: int
    size: int
    directory: str
    seconds: float
    sent: Sent = field(default_factory=Sent, compare=False)
    links: Mapping[int, socket] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Stop:
    """How a run ends early: after ``patience`` epochs without a better validation ``metric`` (None: never).

    ``cancelled`` is polled between rounds; when it returns True the learner raises ``Interrupted``. When ``expired`` does,
    no further round begins, and configs that have had fewer than theirs are not ``done``. ``keep`` is told between rounds
    how to make a state that ``boost`` can go on from; it does so when it is time.
    """

    metric: str
    patience: int | None = None
    cancelled: Callable[[], bool] = lambda: False
    expired: Callable[[], bool] = lambda: False
    keep: Callable[[Callable[[], State]], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Boosted:
    """Per config: rounds kept, and the validation metric after each round (empty without a validation shard)."""

    rounds: tuple[int, ...]
    curves: tuple[tuple[float, ...], ...]
