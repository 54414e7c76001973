"""Checkpoints of units in training: a durable run that dies during a long unit resumes from there.

Each pack in training has a file in the run's directory: its progress, and the state after some epoch or, where epochs have
rounds, after some round. It is rewritten atomically, at most every ``SAVE_SECONDS``, and removed when the unit's result is
in the ledger. Training resumed from it ends with the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grouplearn.data.files.plain_values import NotPlain, from_bytes, to_bytes
from grouplearn.data.tensors import NotTensors
from grouplearn.failures import TrainingFailed
from grouplearn.models.state import Artifact, State
from grouplearn.schedule.messages import Unit
from grouplearn.train.pack import Fit, Training
from grouplearn.train.results import ledger
from grouplearn.train.results.trials import CurvePoint

#: Least seconds between two checkpoints of a pack: the most that dying inside a unit costs.
SAVE_SECONDS = 10.0
#: Least training time per second of writing, so that checkpoints of large states take at most a twentieth of the time.
_WORTH = 20.0


@dataclass(frozen=True, slots=True)
class _FitProgress:
    epochs: int
    curve: tuple[CurvePoint, ...]
    artifact: Artifact | None
    diverged: bool
    best: float


@dataclass(frozen=True, slots=True)
class _PackProgress:
    """A training as bytes and numbers."""

    state: bytes
    fits: tuple[_FitProgress, ...]
    epochs: int
    waiting: tuple[int, ...]


KINDS = (Artifact, CurvePoint, _FitProgress, _PackProgress)


@dataclass
class Timer:
    """When the next checkpoint of a pack is due; seconds of ``time.monotonic``."""

    next: float = field(default_factory=lambda: time.monotonic() + SAVE_SECONDS)

    def due(self) -> bool:
        """Whether a checkpoint is due."""
        return time.monotonic() >= self.next

    def kept(self, began: float) -> None:
        """Record that writing, which began at ``began``, has ended."""
        now = time.monotonic()
        self.next = now + max(SAVE_SECONDS, _WORTH * (now - began))


@dataclass(frozen=True, slots=True)
class Checkpointer:
    """Reads and writes the checkpoint of a pack; with ``directory`` None it does nothing.

    ``number`` is the unit's; ``group``, ``fold`` and ``configs`` tell apart what a unit trains in sequence.
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
        """Return the checkpoint, None if there is none or it is damaged."""
        content = ledger.checked(self._path) if self.directory else None
        return None if content is None else training_of(content, len(self.configs))

    def keep(self, reached: Callable[[], Training]) -> None:
        """Write what ``reached`` returns if a checkpoint is due; if writing fails, training continues without."""
        if self.directory is None or not self.clock.due():
            return
        began = time.monotonic()
        training = reached()
        if training.visited == 0 and training.ended is None:
            try:
                ledger.write(self._path, bytes_of(training))
            except TrainingFailed:
                self.clock.next = math.inf  # if the disk is full the ledger reports it
                return
            self.clock.kept(began)


def bytes_of(training: Training) -> bytes:
    """Return a training between two epochs as bytes."""
    return to_bytes(_plain(training))


def training_of(content: bytes, configs: int) -> Training | None:
    """Return the training of so many configs from its bytes, None if they are damaged."""
    try:
        found = from_bytes(content, KINDS)
        training = _training(found) if isinstance(found, _PackProgress) else None
    except (NotPlain, NotTensors):
        return None
    return training if training is not None and _is_sound(training, configs) else None


def _is_sound(training: Training, configs: int) -> bool:
    """Whether a training can belong to so many configs, as far as the learner is not needed to tell."""
    same = len(training.state.done) == len(training.fits) == configs
    return same and training.epochs >= 0 and all(0 <= each < configs for each in training.waiting)


def _plain(training: Training) -> _PackProgress:
    fits = tuple(
        _FitProgress(fit.epochs, tuple(fit.curve), fit.artifact, fit.diverged, fit.best) for fit in training.fits
    )
    return _PackProgress(training.state.to_bytes(), fits, training.epochs, training.waiting)


def _training(reached: _PackProgress) -> Training:
    fits = tuple(Fit(fit.epochs, list(fit.curve), fit.artifact, fit.diverged, fit.best) for fit in reached.fits)
    return Training(State.from_bytes(reached.state), fits, reached.epochs, reached.waiting)
