"""Turns of units under WITHIN: a pack trains for a share of the time, and goes on in its next turn with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from grouplearn.schedule.messages import Unit
from grouplearn.train.job import TrainingLimits
from grouplearn.train.pack import Pack, Training
from grouplearn.train.results.checkpoints import bytes_of, training_of


@dataclass
class TurnEnd:
    """When a pack's turn is over: at the end of its share, but not before its first epoch, or when the time is up.

    ``reached`` is then what the pack continues from, as bytes.
    """

    limits: TrainingLimits
    share: TrainingLimits
    kept: Callable[[Callable[[], Training]], None]
    latest: Callable[[], Training] | None = None
    reached: bytes | None = None

    def keep(self, progress: Callable[[], Training]) -> None:
        """Remember where the progress can be had, after an epoch, and write a checkpoint if one is due."""
        self.latest = progress
        self.kept(progress)

    def expired(self) -> bool:
        """Whether no epoch may begin."""
        if self.limits.expired():
            return True
        if self.latest is None or not self.share.expired():
            return False
        if self.reached is None:  # now, as what is asked for the progress goes on to change it
            self.reached = _bytes_of(self.latest())
        return True


def in_turn(pack: Pack, unit: Unit, limits: TrainingLimits) -> tuple[Pack, TurnEnd]:
    """Return a pack of a unit as its turn, which begins now, trains it, and the turn's end."""
    end = TurnEnd(limits, limits.share_of(unit), pack.keep)
    return replace(pack, start=_start(pack, unit, limits), expired=end.expired, keep=end.keep), end


def _bytes_of(training: Training) -> bytes | None:
    """Return a training as bytes, None within an epoch or if nothing of it is of use later."""
    is_between = training.visited == 0 and training.ended is None
    return bytes_of(training) if is_between and training.state.tensors else None


def _start(pack: Pack, unit: Unit, limits: TrainingLimits) -> Training | None:
    """Return what a pack with all of a unit's configs had reached; a later checkpoint counts."""
    content = None if limits.turn is None else limits.turn.reached.get(unit.id)
    if content is None or len(pack.configs) < len(unit.configs):
        return pack.start
    reached = training_of(content, len(pack.configs))
    if reached is None or not pack.learner.resumes(pack.prepared.problem, pack.configs, reached.state):
        return pack.start
    return pack.start if pack.start is not None and pack.start.epochs > reached.epochs else reached
