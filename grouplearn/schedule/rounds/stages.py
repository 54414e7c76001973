"""The stages of a round, and their steps: which products of earlier stages each takes, and which are still to do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from grouplearn.schedule.averages import Averages, Reduction
from grouplearn.schedule.messages import EPOCH, BlockRange, Part, StepKind
from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep, UnitProgress


@dataclass(frozen=True, slots=True)
class Shares:
    """A group's rows in rounds: the place of each partition, and approximately its blocks."""

    places: tuple[int, ...]
    blocks: tuple[BlockRange, ...]

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True, slots=True)
class RoundTask:
    """A step of a stage. ``inputs`` are the tasks of the previous stage whose products it takes, None for all of them.

    ``from_before``: it also takes its part of the model as it is at the beginning of the round.
    """

    kind: StepKind
    place: int
    blocks: BlockRange | None = None
    inputs: tuple[int, ...] | None = None
    partition: Part | None = None
    piece: Part | None = None
    pieces: int = 1
    stretch: Part = EPOCH
    from_before: bool = False

    def ready(self, progress: UnitProgress, epoch: int, number: int, stage: int = 0) -> ReadyStep:
        """Return the step of an epoch, ready to begin, identified in ``progress`` by its ``stage`` and ``number``."""
        return ReadyStep(
            progress,
            progress.generation,
            self.place,
            self.kind,
            epoch,
            self.blocks,
            self.kind not in ("work", "evaluate"),
            partition=self.partition,
            piece=self.piece,
            pieces=self.pieces,
            stretch=self.stretch,
            stage=stage,
            number=number,
        )


@dataclass
class Stage:
    """Tasks that may run concurrently, by number: those to do, those running (by step), and the steps that made products."""

    tasks: tuple[RoundTask, ...]
    todo: dict[int, None] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.todo = dict.fromkeys(range(len(self.tasks)))

    @property
    def kind(self) -> StepKind:
        """The kind of its tasks."""
        return self.tasks[0].kind

    @property
    def complete(self) -> bool:
        """Whether all tasks are done."""
        return not self.todo and not self.running

    @property
    def products(self) -> tuple[int, ...]:
        """The steps that made the products of all its tasks, in order."""
        return tuple(self.made[number] for number in range(len(self.tasks)))

    def want(self, numbers: Iterable[int]) -> None:
        """Repeat tasks, except those that run or whose product exists."""
        there = {*self.made, *self.running.values()}
        self.todo.update(dict.fromkeys(number for number in numbers if number not in there))

    def inputs_of(self, number: int, before: Stage) -> Iterable[int]:
        """Return the tasks of the stage ``before`` whose products a task takes."""
        inputs = self.tasks[number].inputs
        return range(len(before.tasks)) if inputs is None else inputs


def work(shares: Shares, pieces: int, light: bool, stretch: Part = EPOCH) -> Stage:
    """Return the stage of every partition's pass, or of some batches of it.

    ``light``: of an update's product tasks take only the first piece, without the models that are kept.
    """
    count = len(shares)
    piece = Part(0, 2) if light else None
    tasks = (
        RoundTask("work", place, blocks, None, Part(number, count), piece, pieces, stretch)
        for number, (place, blocks) in enumerate(zip(shares.places, shares.blocks, strict=True))
    )
    return Stage(tuple(tasks))


def evaluations(kind: StepKind, shares: Shares) -> Stage:
    """Return the stage of every partition's evaluation of one model."""
    parts = enumerate(zip(shares.places, shares.blocks, strict=True))
    return Stage(
        tuple(RoundTask(kind, place, blocks, None, Part(number, len(shares))) for number, (place, blocks) in parts)
    )


def pieces_of(reduction: Reduction, partitions: int) -> int:
    """Return the number of pieces in which partitions send their models."""
    return partitions if reduction == "scatter" else 1


def neighbours(count: int) -> Sequence[tuple[int, ...]]:
    """Return which of ``count`` models are combined first, in runs of about √count.

    Every mean is the mean of these means, so that it is the same in a tree, a star and by parts.
    """
    size = max(1, math.isqrt(count - 1) + 1) if count > 1 else 1
    return tuple(tuple(range(first, min(count, first + size))) for first in range(0, count, size))


def reduce(shares: Shares, averages: Averages, centre: int, stretch: Part = EPOCH) -> list[Stage]:
    """Return the stages that make one model from those of all partitions.

    Scatter: the place of partition j takes piece j of all. Star: the place of partition ``centre`` takes all pieces of all.
    Tree: one place of each run of neighbours takes their products, and the centre takes the results.
    """
    count, middle = len(shares), shares.places[centre % len(shares)]

    def made(place: int, piece: Part | None) -> RoundTask:
        return RoundTask("reduce", place, piece=piece, stretch=stretch, from_before=averages.from_before)

    match averages.reduce:
        case "scatter":
            return [Stage(tuple(made(shares.places[part], Part(part, count)) for part in range(count)))]
        case "star":
            return [Stage((made(middle, None),))]
        case "tree":
            runs = (
                RoundTask("combine", shares.places[run[0]], inputs=run, stretch=stretch) for run in neighbours(count)
            )
            return [Stage(tuple(runs)), Stage((made(middle, None),))]
