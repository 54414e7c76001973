"""Commands by which other connections of this process control a running search; it reads them at barriers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grouplearn.data.files.plain_values import NotPlain, from_bytes, to_bytes
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.hyperparameter_values import are_declared
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import conflict
from grouplearn.search.procedures import SearchPlan
from grouplearn.train.results import ledger

#: A database (its file, or a placeholder for one in memory), a schema and a model, in lower case.
Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class AddCommand:
    """Begin a further trial that continues a copy of the state of trial ``parent``."""

    config: Config
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class StopCommand:
    """Stop a trial in all groups."""

    trial: int


Command = StopCommand | AddCommand


@dataclass(frozen=True, slots=True)
class TrialStanding:
    """A configuration at the last barrier: the number of groups in which it continues, and its most epochs."""

    trial: int
    config: Config
    going_on: int
    epochs: int


@dataclass(frozen=True, slots=True)
class _Polled:
    """The range of commands, [first, last), that a barrier took."""

    barrier: int
    first: int
    last: int


class Journal:
    """The commands of a durable search on disk, written before the user gets an answer, and before a barrier carries them out.

    They are files in the run's directory, written atomically. Raises TrainingError if the disk is full.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def commands(self) -> tuple[Command, ...]:
        """Return all commands, in order."""
        return tuple(self._read("command-*.noted", (AddCommand, StopCommand)))

    def polled(self) -> tuple[_Polled, ...]:
        """Return the commands that each barrier took."""
        return tuple(self._read("barrier-*.noted", (_Polled,)))

    def note(self, number: int, command: Command) -> None:
        """Store a command."""
        ledger.write(self._directory / f"command-{number:06d}.noted", to_bytes(command))

    def note_polled(self, polled: _Polled) -> None:
        """Store which commands a barrier takes."""
        ledger.write(self._directory / f"barrier-{polled.barrier:06d}.noted", to_bytes(polled))

    def _read(self, pattern: str, kinds: tuple[type, ...]) -> Iterator[Any]:
        """Yield the contents of our files in order; damaged and foreign files are ignored."""
        for path in sorted(self._directory.glob(pattern)):
            content = ledger.checked(path)
            with suppress(NotPlain):
                found = None if content is None else from_bytes(content, kinds)
                if isinstance(found, kinds):
                    yield found


class TrialControl:
    """The control of a model in training: its trials, and commands. ``plan`` is None if it accepts none.

    With a ``journal`` commands are kept on disk: a resumed search takes at each barrier the commands that it took before.
    """

    def __init__(self, learner: Learner, plan: SearchPlan | None, journal: Journal | None = None) -> None:
        self.learner, self.plan, self._journal = learner, plan, journal
        self._standings: tuple[TrialStanding, ...] = ()
        self._lock = threading.Lock()
        self._commands: list[Command] = [
            each for each in (journal.commands() if journal else ()) if self._is_possible(each)
        ]
        self._polled = {each.barrier: each for each in journal.polled()} if journal else {}

    def _is_possible(self, command: Command) -> bool:
        """Return whether ALTER MODEL could have given a stored command, as far as that is known before the search resumes."""
        if isinstance(command, StopCommand):
            return True
        declared = {each.name for each in self.learner.declaration.hyperparameters}
        known = set(command.config) == declared and are_declared(
            self.learner.declaration.hyperparameters, command.config
        )
        return (
            known and (command.parent is None or command.parent >= 0) and conflict(self.learner, command.config) is None
        )

    def report(self, standings: tuple[TrialStanding, ...]) -> None:
        """Report the current trials."""
        with self._lock:
            self._standings = standings

    def standings(self) -> tuple[TrialStanding, ...]:
        """Return the trials at the last barrier."""
        with self._lock:
            return self._standings

    def send(self, command: Command) -> None:
        """Send a command for the next barrier."""
        with self._lock:
            if self._journal is not None:
                self._journal.note(len(self._commands), command)
            self._commands.append(command)

    def poll(self, barrier: int, *, passed: bool = False) -> tuple[Command, ...]:
        """Return a barrier's commands: those that it took before, or all that no barrier has taken.

        ``passed``: an earlier process passed the barrier, so it takes nothing new.
        """
        with self._lock:
            first = max((each.last for each in self._polled.values()), default=0)
            if barrier not in self._polled and (passed or first == len(self._commands)):
                return ()
            if barrier not in self._polled:
                polled = _Polled(barrier, first, len(self._commands))
                if self._journal is not None:
                    self._journal.note_polled(polled)
                self._polled[barrier] = polled
            found = self._polled[barrier]
            return tuple(self._commands[found.first : found.last])


class InTraining:
    """The models that this process is training, shared by all its connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[Place, TrialControl] = {}

    @contextmanager
    def entered(self, place: Place, control: TrialControl) -> Iterator[TrialControl]:
        """Register a model in training at ``place`` in the block."""
        with self._lock:
            self._models[place] = control
        try:
            yield control
        finally:
            with self._lock:
                if self._models.get(place) is control:
                    del self._models[place]

    def find(self, place: Place) -> TrialControl | None:
        """Return the control of a model in training, None if this process trains no such model."""
        with self._lock:
            return self._models.get(place)


IN_TRAINING = InTraining()
