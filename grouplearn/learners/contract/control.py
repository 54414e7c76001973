"""How a training ends early, and gangs of processes that share one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from socket import socket

from grouplearn.models.state import State


class Diverged(ArithmeticError):
    """Raised by a learner when no config of the pack can continue; the message is for the user.

    ``column`` is the index of the feature column that a message is about: it says ``feature column <index + 1>``.
    """

    def __init__(self, message: str, column: int | None = None) -> None:
        super().__init__(message)
        self.column = column

    def about(self, features: Sequence[str]) -> str:
        """Return the message with the feature column's name in place of its number, if known."""
        if self.column is None or self.column >= len(features):
            return str(self)
        return str(self).replace(f"feature column {self.column + 1}", f'feature "{features[self.column]}"')


class Interrupted(Exception):
    """Raised inside a unit when the user cancelled the statement."""


@dataclass
class Sent:
    """Counts the bytes that a member of a gang sends, once for all receivers."""

    n_bytes: int = 0

    def add(self, n_bytes: int) -> None:
        """Count more."""
        self.n_bytes += n_bytes


@dataclass(frozen=True, slots=True)
class Gang:
    """Processes of this machine that train one model together: this one is ``rank`` of ``size``.

    All members can write to ``directory``, and no other user can enter it. Nobody waits longer than ``seconds`` for another
    member. ``sent`` counts this member's gradients, ``links`` are the sockets to the others while connected.
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

    ``cancelled`` is polled between rounds; if it returns True the learner raises ``Interrupted``. If ``expired`` does, no
    further round begins, and configs with fewer rounds than asked for are not ``done``. Between rounds ``keep`` is given a
    function that makes a state to resume ``boost`` from, and calls it when a checkpoint is due. ``carries``: a later call will
    train more rounds.
    """

    metric: str
    patience: int | None = None
    cancelled: Callable[[], bool] = lambda: False
    expired: Callable[[], bool] = lambda: False
    keep: Callable[[Callable[[], State]], None] = lambda _: None
    carries: bool = False


@dataclass(frozen=True, slots=True)
class Boosted:
    """Per config: the rounds kept, and the validation metric after each round (empty without validation rows)."""

    rounds: tuple[int, ...]
    curves: tuple[tuple[float, ...], ...]
