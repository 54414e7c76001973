"""How other connections of this process act on a search that trains: they leave a wish, the search hears it at a barrier."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from grouplearn.learners.base import Config, Learner
from grouplearn.search.procedures import SearchPlan

#: A database (its file, or what stands for one in memory), a schema and a model, all in lower case.
Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Addition:
    """A wish for a further trial, which continues a copy of what the trial ``parent`` has reached."""

    config: Config
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for since the last barrier."""

    stops: frozenset[int] = frozenset()
    additions: tuple[Addition, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """A configuration at the last barrier: in how many groups it goes on, and the most epochs it has had."""

    trial: int
    config: Config
    going_on: int
    epochs: int


@dataclass
class Steering:
    """What is known of a model in training, and what is wished for it. ``plan`` is None where nothing can be."""

    learner: Learner
    plan: SearchPlan | None
    _standings: tuple[Standing, ...] = ()
    _wishes: Wishes = field(default_factory=Wishes)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def report(self, standings: tuple[Standing, ...]) -> None:
        """Say how the trials stand."""
        with self._lock:
            self._standings = standings

    def standings(self) -> tuple[Standing, ...]:
        """Return how the trials stood at the last barrier."""
        with self._lock:
            return self._standings

    def stop(self, trial: int) -> None:
        """Wish that a trial stops in all groups."""
        with self._lock:
            self._wishes = Wishes(self._wishes.stops | {trial}, self._wishes.additions)

    def add(self, addition: Addition) -> None:
        """Wish for a further trial."""
        with self._lock:
            self._wishes = Wishes(self._wishes.stops, (*self._wishes.additions, addition))

    def take(self) -> Wishes:
        """Return the wishes, which are then forgotten."""
        with self._lock:
            wishes, self._wishes = self._wishes, Wishes()
            return wishes


class InTraining:
    """The models that this process trains at present. Connections know nothing of each other, so there is one of these."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[Place, Steering] = {}

    @contextmanager
    def entered(self, place: Place, steering: Steering) -> Iterator[Steering]:
        """Have a model in training found at ``place`` meanwhile."""
        with self._lock:
            self._models[place] = steering
        try:
            yield steering
        finally:
            with self._lock:
                if self._models.get(place) is steering:
                    del self._models[place]

    def find(self, place: Place) -> Steering | None:
        """Return how to act on a model in training, None when this process trains no such model."""
        with self._lock:
            return self._models.get(place)


IN_TRAINING = InTraining()
