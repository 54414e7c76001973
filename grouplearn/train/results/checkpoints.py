"""How far units in training have come, on disk: a durable run that dies in the middle of a long unit goes on from there.

There is a file for each pack in training, in the run's directory: the state after some epoch, and what the pack has reached
by then. It is written anew every ``SAVE_SECONDS`` at most, as a whole or not at all, and removed when the unit's result is in
the ledger. Training that goes on from it ends with the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grouplearn.data.files.plain import NotPlain, from_bytes, to_bytes
from grouplearn.data.tensors import NotTensors
from grouplearn.failures import TrainingFailed
from grouplearn.learners.contract.state import Artifact, State
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import CurvePoint
from grouplearn.train.pack import Fit, Training
from grouplearn.train.results import ledger

#: Least seconds of a pack's training between two times that it is kept: what dying inside a unit costs at most.
SAVE_SECONDS = 10.0
#: Least training time for each second of writing, so that keeping large states takes a twentieth of the time at most.
_WORTH = 20.0


@dataclass(frozen=True, slots=True)
class _FitReached:
    epochs: int
    curve: tuple[CurvePoint, ...]
    artifact: Artifact | None
    diverged: bool
    best: float


@dataclass(frozen=True, slots=True)
class _Reached:
    """A training between two epochs, as bytes and numbers."""

    state: bytes
    fits: tuple[_FitReached, ...]
    epochs: int
    waiting: tuple[int, ...]


KINDS = (Artifact, CurvePoint, _FitReached, _Reached)


@dataclass
class Timer:
    """When a pack is to be kept next; seconds as ``time.monotonic`` counts them."""

    next: float = field(default_factory=lambda: time.monotonic() + SAVE_SECONDS)

    def due(self) -> bool:
        """Whether it is time."""
        return time.monotonic() >= self.next

    def kept(self, began: float) -> None:
        """Note that writing, which began at ``began``, is over."""
        now = time.monotonic()
        self.next = now + max(SAVE_SECONDS, _WORTH * (now - began))


@dataclass(frozen=True, slots=True)
class Checkpointer:
    """Keeps what a pack has reached; ``directory`` None: it keeps nothing.

    ``number`` is the unit's; ``group``, ``fold`` and ``configs`` tell apart what one unit trains one after the other.
    """

    directory: str | None
    number: int
    group: int
    fold: int
    configs: tuple[int, ...]
    clock: Timer

    @classmethod
    def of(cls, directory: str | None, unit: Unit, configs: Sequence[int], clock: Timer | None = None) -> Checkpointer:
        """Return the checkpointer of some configs of a unit."""
        return cls(directory, unit.id, unit.group, unit.fold, tuple(configs), clock or Timer())

    @property
    def _path(self) -> Path:
        names = f"{self.group}.{self.fold}.{self.configs[0]}.{len(self.configs)}"
        return Path(self.directory or "", f"state-{self.number:06d}.{names}.part")

    def read(self) -> Training | None:
        """Return what was reached, None where nothing was kept or it is damaged."""
        content = ledger.checked(self._path) if self.directory else None
        try:
            found = None if content is None else from_bytes(content, KINDS)
            training = _training(found) if isinstance(found, _Reached) else None
        except (NotPlain, NotTensors):
            return None
        return training if training is not None and self._is_sound(training) else None

    def _is_sound(self, training: Training) -> bool:
        """Whether a training can be that of these configs, as far as is known without the learner."""
        configs, state = len(self.configs), training.state
        same = len(state.done) == len(training.fits) == configs
        return same and training.epochs >= 0 and all(0 <= each < configs for each in training.waiting)

    def keep(self, reached: Callable[[], Training]) -> None:
        """Keep what ``reached`` returns if it is time; where it cannot be written, training goes on without."""
        if self.directory is None or not self.clock.due():
            return
        began = time.monotonic()
        training = reached()
        if training.visited == 0 and training.ended is None:
            try:
                ledger.write(self._path, to_bytes(_plain(training)))
            except TrainingFailed:
                self.clock.next = math.inf  # the ledger tells of a full disk, where that matters
                return
            self.clock.kept(began)


def _plain(training: Training) -> _Reached:
    fits = tuple(
        _FitReached(fit.epochs, tuple(fit.curve), fit.artifact, fit.diverged, fit.best) for fit in training.fits
    )
    return _Reached(training.state.to_bytes(), fits, training.epochs, training.waiting)


def _training(reached: _Reached) -> Training:
    fits = tuple(Fit(fit.epochs, list(fit.curve), fit.artifact, fit.diverged, fit.best) for fit in reached.fits)
    return Training(State.from_bytes(reached.state), fits, reached.epochs, reached.waiting)
