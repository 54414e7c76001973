"""How other connections of this process act on a search that trains: they leave a wish, the search hears it at a barrier."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grouplearn.data.files.plain import NotPlain, from_bytes, to_bytes
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.hyperparameter_values import are_declared
from grouplearn.learners.contract.learner import Learner
from grouplearn.search.procedures import SearchPlan
from grouplearn.train.results import ledger

#: A database (its file, or what stands for one in memory), a schema and a model, all in lower case.
Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Addition:
    """A wish for a further trial, which continues a copy of what the trial ``parent`` has reached."""

    config: Config
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """A wish that a trial stops in all groups."""

    trial: int


Wish = Halt | Addition


@dataclass(frozen=True, slots=True)
class Standing:
    """A configuration at the last barrier: in how many groups it goes on, and the most epochs it has had."""

    trial: int
    config: Config
    going_on: int
    epochs: int


@dataclass(frozen=True, slots=True)
class _Heard:
    """The wishes that were heard at a barrier: those from ``first`` to before ``last``."""

    barrier: int
    first: int
    last: int


class Journal:
    """The wishes of a durable search on disk: a wish before its user is told, what a barrier heard before it is acted on.

    Files in the run's directory, each there as a whole or not at all. Writing raises TrainingError when the disk is full.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def wishes(self) -> tuple[Wish, ...]:
        """Return all wishes, in order."""
        return tuple(self._read("wish-*.noted", (Addition, Halt)))

    def heard(self) -> tuple[_Heard, ...]:
        """Return what barriers heard."""
        return tuple(self._read("barrier-*.noted", (_Heard,)))

    def note(self, number: int, wish: Wish) -> None:
        """Keep a wish."""
        ledger.write(self._directory / f"wish-{number:06d}.noted", to_bytes(wish))

    def note_heard(self, heard: _Heard) -> None:
        """Keep what a barrier hears."""
        ledger.write(self._directory / f"barrier-{heard.barrier:06d}.noted", to_bytes(heard))

    def _read(self, pattern: str, kinds: tuple[type, ...]) -> Iterator[Any]:
        """Yield what is in files of ours, in order; what is damaged, or something else, counts as not there."""
        for path in sorted(self._directory.glob(pattern)):
            content = ledger.checked(path)
            with suppress(NotPlain):
                found = None if content is None else from_bytes(content, kinds)
                if isinstance(found, kinds):
                    yield found


class TrialControl:
    """What is known of a model in training, and what is wished for it. ``plan`` is None where nothing can be.

    With a ``journal`` wishes outlive the process: a search that goes on hears at each barrier what was heard there before.
    """

    def __init__(self, learner: Learner, plan: SearchPlan | None, journal: Journal | None = None) -> None:
        self.learner, self.plan, self._journal = learner, plan, journal
        self._standings: tuple[Standing, ...] = ()
        self._lock = threading.Lock()
        self._wishes: list[Wish] = [each for each in (journal.wishes() if journal else ()) if self._could(each)]
        self._heard = {each.barrier: each for each in journal.heard()} if journal else {}

    def _could(self, wish: Wish) -> bool:
        """Return whether a wish that is read is one that ALTER MODEL takes, as far as is known before the search goes on."""
        if isinstance(wish, Halt):
            return True
        declared = {each.name for each in self.learner.hyperparameters}
        known = set(wish.config) == declared and are_declared(self.learner.hyperparameters, wish.config)
        return known and (wish.parent is None or wish.parent >= 0) and self.learner.conflict(wish.config) is None

    def report(self, standings: tuple[Standing, ...]) -> None:
        """Say how the trials stand."""
        with self._lock:
            self._standings = standings

    def standings(self) -> tuple[Standing, ...]:
        """Return how the trials stood at the last barrier."""
        with self._lock:
            return self._standings

    def wish(self, wish: Wish) -> None:
        """Wish something of the next barrier."""
        with self._lock:
            if self._journal is not None:
                self._journal.note(len(self._wishes), wish)
            self._wishes.append(wish)

    def hear(self, barrier: int, *, passed: bool = False) -> tuple[Wish, ...]:
        """Return the wishes that a barrier hears: what it heard before, or all that no barrier has heard.

        ``passed``: the barrier was passed before, so that it hears nothing new.
        """
        with self._lock:
            first = max((each.last for each in self._heard.values()), default=0)
            if barrier not in self._heard and (passed or first == len(self._wishes)):
                return ()
            if barrier not in self._heard:
                heard = _Heard(barrier, first, len(self._wishes))
                if self._journal is not None:
                    self._journal.note_heard(heard)
                self._heard[barrier] = heard
            found = self._heard[barrier]
            return tuple(self._wishes[found.first : found.last])


class InTraining:
    """The models that this process trains at present. Connections know nothing of each other, so there is one of these."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[Place, TrialControl] = {}

    @contextmanager
    def entered(self, place: Place, steering: TrialControl) -> Iterator[TrialControl]:
        """Have a model in training found at ``place`` meanwhile."""
        with self._lock:
            self._models[place] = steering
        try:
            yield steering
        finally:
            with self._lock:
                if self._models.get(place) is steering:
                    del self._models[place]

    def find(self, place: Place) -> TrialControl | None:
        """Return how to act on a model in training, None when this process trains no such model."""
        with self._lock:
            return self._models.get(place)


IN_TRAINING = InTraining()
