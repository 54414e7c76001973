"""Sends instructions to workers on Ray, together with the inputs of their steps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any

from grouplearn.failures import TrainingFailed
from grouplearn.learners.contract.control import Gang
from grouplearn.runtime.ray.actors import Actors
from grouplearn.runtime.ray.gang import GANG_SECONDS, Gangs
from grouplearn.runtime.ray.products import Made, ProductStore
from grouplearn.runtime.ray.supervised.pipe import Begin
from grouplearn.runtime.ray.worker import Address, StepInputs
from grouplearn.runtime.worker import failed_step, outline_or_failed
from grouplearn.schedule.messages import Discard, Dismiss, Finish, Instruction, Load, Release, Run, RunStep, Step, Unit
from grouplearn.train.job import Job
from grouplearn.train.rows.used import GroupFailed
from grouplearn.train.sharded.steps import StepAnswer
from grouplearn.train.unit import failed_unit


class Dispatcher:
    """Sends a run's instructions together with the next Run or RunStep, so that a unit costs one call.

    ``job`` has its rows. ``products`` is where the products of steps are stored, None for Ray's store.
    """

    def __init__(self, ray: Any, begin: Begin, job: Job, products: ProductStore | None, actors: Actors) -> None:
        self._ray, self._begin, self._job, self._products, self._actors = ray, begin, job, products, actors
        self._outlines: dict[tuple[int, int], Any] = {}
        there = {} if products is None else begin.made
        self._made = {step: Made(step, worker) for step, worker in there.items()}
        self.gangs = Gangs()

    def dispatch(self, instructions: Iterable[Instruction]) -> list[StepAnswer]:
        """Send instructions; return an answer for each step that cannot start."""
        failed: list[StepAnswer] = []
        for instruction in instructions:
            match instruction:
                case Discard(steps):
                    self._discard(steps)
                case Run() | RunStep() | Load() | Release():
                    failed += self._order(instruction)
                case Dismiss(worker) if worker in self._actors.workers:
                    self._actors.end(worker)
                case Dismiss() | Finish():
                    pass  # it has just ended by itself; StopRun comes next
        return failed

    def note_made(self, step: Step, worker: int, product: Any) -> None:
        """Record who made a step's product, and its reference if it is in Ray's store."""
        self._made[step.id] = Made(step.id, worker, product)

    def _discard(self, steps: Iterable[int]) -> None:
        for step in steps:
            if self._made.pop(step, None) is not None and self._products is not None:
                self._products.discard(step)

    def _order(self, instruction: Run | RunStep | Load | Release) -> list[StepAnswer]:
        worker = self._actors.workers.get(instruction.worker)
        if worker is None:  # lost a moment ago; the schedule has been told
            return []
        worker.orders.append(instruction)
        match instruction:
            case Run(number):
                self._send(number)
            case RunStep(number, step):
                return self._run_step(number, step)
        return []

    def _run_step(self, number: int, step: Step) -> list[StepAnswer]:
        unit = step.unit
        outline = self._outline(unit)
        if isinstance(outline, GroupFailed):
            self._actors.workers[number].orders.pop()
            now = time.time() - self._begin.began
            return [failed_step(step, failed_unit(unit, str(outline), facts=outline.facts), number, now)]
        if step.size > 1:
            self._gather(number, step)
            return []
        lost = [taken for taken in step.inputs if taken not in self._made]
        if lost:
            raise TrainingFailed(f"step {step.id} takes products of steps {lost}, which are not there any more")
        piece = step.piece if step.round is None else None  # in rounds, the worker decides what is new to it
        takes = tuple(self._made[taken].taken(piece) for taken in step.inputs)
        self._send(number, StepInputs(outline, takes), step.pieces)
        return []

    def _send(self, number: int, supplies: StepInputs | None = None, pieces: int = 1) -> None:
        worker = self._actors.workers[number]
        orders, worker.orders = worker.orders, []
        if self._products is not None or supplies is None or supplies.gang is not None:
            self._actors.called(number, "follow", worker.actor.follow.remote(orders, supplies))
            return
        answer, *product = worker.actor.follow.options(num_returns=1 + pieces).remote(orders, supplies)
        self._actors.called(number, "follow", answer, tuple(product) if pieces > 1 else product[0])

    def _outline(self, unit: Unit) -> Any:
        """Return a reference to the outline of a unit's group, or why the group cannot be trained."""
        key = (unit.group, unit.fold)
        if key not in self._outlines:
            outline = outline_or_failed(self._job, unit)
            self._outlines[key] = outline if isinstance(outline, GroupFailed) else self._ray.put(outline)
        return self._outlines[key]

    def _gather(self, number: int, step: Step) -> None:
        """Record that a member of a gang has arrived; start the gang when all have."""
        gang = self.gangs.add(number, step)
        if not gang.gathered:
            return
        self._refuse_distance([self._actors.workers[member].address for member in gang.steps])
        directory = tempfile.mkdtemp(prefix="gang-", dir=self._begin.scratch)
        outline = self._outline(step.unit)
        for member, own in gang.steps.items():
            place = Gang(own.rank, own.size, directory, GANG_SECONDS)
            self._send(member, StepInputs(outline, gang=place))

    def _refuse_distance(self, addresses: Sequence[Address | None]) -> None:
        """Raise if members of a gang are on different machines: they communicate by loopback, and share a directory."""
        if self._products is None or len({address.node for address in addresses if address is not None}) > 1:
            message = "workers that train one model together must be on one machine, and the cluster has several"
            raise TrainingFailed(message, hint="WITH (operator = 'group_task_parallel')")
