"""A small operator for tests: a fixed list of steps for units of one split group, each batch after the last is done."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from typing import Literal

from grouplearn.learners.contract.access import BOOSTING, PASSES, SUMS
from grouplearn.schedule.messages import (
    BlockRange,
    Discard,
    Event,
    Finish,
    Instruction,
    Load,
    RunStep,
    Step,
    StepDone,
    Unit,
    WorkerLost,
    WorkerReady,
)
from grouplearn.train.job import Job

Batch = list[tuple[int, Step]]
Script = Generator[Batch, list[StepDone], None]


class Scripted:
    """Runs units one after another on all workers; after a loss it waits for a new worker and starts the unit again.

    ``chain``: partial sums move along the workers as kingpin 4.2 has it, beginning with the unit's own part; ``star``: all
    parts are summed at the same time, and the last worker puts them together.
    """

    name = "scripted"

    def __init__(
        self,
        job: Job,
        units: Sequence[Unit],
        parts: Sequence[BlockRange],
        shape: Literal["chain", "star", "gang"] = "chain",
    ) -> None:
        self.access = job.trainer.access
        self.units, self.parts, self.shape = list(units), list(parts), shape
        self.workers_needed = len(parts)
        self.workers: list[int] = []
        self.waiting: set[int] = set()
        self.done: list[StepDone] = []
        self.made: list[int] = []
        self.numbers = itertools.count()
        self.script: Script | None = None
        self.restarts = 0

    def on(self, event: Event) -> tuple[Instruction, ...]:
        match event:
            case WorkerReady(worker):
                self.workers.append(worker)
                if len(self.workers) == len(self.parts):
                    return (*self._loads(), *self._start())
            case WorkerLost(worker):
                self.workers.remove(worker)
                self.script, self.waiting, self.done = None, set(), []
                self.restarts += 1
            case StepDone(_, step, _, failed) if step.id in self.waiting:
                self.waiting.remove(step.id)
                self.done.append(event)
                if not self.waiting:
                    return self._unit_over() if failed else self._next(self.done)
        return ()

    def _loads(self) -> list[Instruction]:
        group = self.units[0].group
        return [Load(worker, group, blocks) for worker, blocks in zip(self.workers, self.parts, strict=True)]

    def _start(self) -> tuple[Instruction, ...]:
        assert self.script is None
        steps = {SUMS.name: self._algebraic, PASSES.name: self._sequential}
        unit = self.units[0]
        self.script = self._gang(unit) if self.shape == "gang" else steps[self.access.name](unit)
        return self._run(next(self.script))

    def _next(self, done: list[StepDone]) -> tuple[Instruction, ...]:
        assert self.script is not None
        self.done = []
        try:
            return self._run(self.script.send(done))
        except StopIteration:
            return self._unit_over()

    def _unit_over(self) -> tuple[Instruction, ...]:
        self.units.pop(0)
        self.script, self.done = None, []
        gone = Discard(tuple(self.made))
        self.made = []
        return (gone, *(self._start() if self.units else (Finish(),)))

    def _run(self, batch: Batch) -> tuple[Instruction, ...]:
        self.waiting = {step.id for _, step in batch}
        self.made += self.waiting
        return tuple(RunStep(worker, step) for worker, step in batch)

    def _step(
        self, unit: Unit, kind, epoch: int, blocks: BlockRange | None, takes: Sequence[int], **place: int
    ) -> Step:
        return Step(next(self.numbers), unit, kind, epoch, blocks, tuple(takes), **place)

    def _ring(self, unit: Unit) -> list[tuple[int, BlockRange]]:
        ring = list(zip(self.workers, self.parts, strict=True))
        first = unit.id % len(ring)
        return ring[first:] + ring[:first]

    def _algebraic(self, unit: Unit) -> Script:
        ring = self._ring(unit)
        last = ring[-1][0]
        state = self._step(unit, "init", 0, None, ())
        (done,) = yield [(last, state)]
        epoch = 0
        while done.more:
            sums = yield from self._pass(unit, "accumulate", epoch, ring, state)
            state = self._step(unit, "update", epoch, None, [state.id, *sums])
            (done,) = yield [(last, state)]
            epoch += 1
        yield from self._end(unit, epoch, ring, state)

    def _sequential(self, unit: Unit) -> Script:
        ring = list(zip(self.workers, self.parts, strict=True))
        state = self._step(unit, "init", 0, None, ())
        (done,) = yield [(ring[0][0], state)]
        epoch = 0
        while done.more:
            for worker, blocks in ring:
                state = self._step(unit, "train", epoch, blocks, [state.id])
                (done,) = yield [(worker, state)]
            epoch += 1
        yield from self._end(unit, epoch, ring, state)

    def _end(self, unit: Unit, epoch: int, ring: list[tuple[int, BlockRange]], state: Step) -> Script:
        sums = yield from self._pass(unit, "evaluate", epoch, ring, state)
        yield [(ring[-1][0], self._step(unit, "finish", epoch, None, [state.id, *sums]))]

    def _pass(self, unit: Unit, kind, epoch: int, ring: list[tuple[int, BlockRange]], state: Step):
        if self.shape == "star":
            batch = [(worker, self._step(unit, kind, epoch, blocks, [state.id])) for worker, blocks in ring]
            yield batch
            return [step.id for _, step in batch]
        sums: list[int] = []
        for worker, blocks in ring:
            step = self._step(unit, kind, epoch, blocks, [state.id, *sums])
            yield [(worker, step)]
            sums = [step.id]
        return sums

    def _gang(self, unit: Unit) -> Script:
        kind = "boost" if self.access.name == BOOSTING.name else "descend"
        size = len(self.parts)
        yield [
            (worker, self._step(unit, kind, 0, blocks, (), rank=rank, size=size))
            for rank, (worker, blocks) in enumerate(zip(self.workers, self.parts, strict=True))
        ]


def runs(n_blocks: int, n_parts: int) -> list[BlockRange]:
    """Return ``n_parts`` runs of nearly equal length."""
    ends = [part * n_blocks // n_parts for part in range(n_parts + 1)]
    return [BlockRange(first, last) for first, last in itertools.pairwise(ends)]
