"""Operators that first place the rows of groups on workers: whole units run there as they are, split ones step by step."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

from grouplearn.schedule.invariants import require
from grouplearn.schedule.leaving import LeavingWorkers
from grouplearn.schedule.messages import (
    BlockRange,
    Event,
    Finish,
    Instruction,
    Load,
    Run,
    RunStep,
    Step,
    StepDone,
    Unit,
    UnitDone,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)
from grouplearn.schedule.sharded.assignment import Assignment
from grouplearn.schedule.sharded.gangs import GangUnits, ScheduledGang
from grouplearn.schedule.sharded.partition import cut_evenly
from grouplearn.schedule.sharded.placement import Placement
from grouplearn.schedule.sharded.running import Running, RunningStep
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.step_queues import StepQueues
from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep, UnitProgress
from grouplearn.schedule.sharded.steps.whole_by_epochs import WholeByEpochs, slot_of
from grouplearn.schedule.task_parallel import GroupTask
from grouplearn.schedule.whole import WholeWork
from grouplearn.schedule.workload import Workload


class ShardedOperator:
    """Runs whole units and split units on the workers that hold their rows.

    Invariants, checked at every transition (kingpin 4.2): (1) a row is placed on one worker; (2) a worker does one thing at
    a time; (3) a pack of a sequential learner trains on one worker at a time; (4) with ``isolate_groups`` no two workers
    are busy with one split group. Also: a step takes only products that exist; no unit is done twice; ``Finish`` is
    returned once. The workers that the workload names must all become ready, sooner or later.

    A worker prefers steps, whose results others wait for, to gangs, and gangs to whole units.
    """

    name = "placed"

    def __init__(self, workload: Workload, assignment: Assignment, queues: StepQueues | None = None) -> None:
        self._workload, self._assignment = workload, assignment
        self._placement, self._products = Placement(workload.workers, assignment.replicas), Products()
        self._queues, self._running = queues or StepQueues(), Running()
        self._gangs = GangUnits(self._placement, assignment.shards)
        self._by_epochs = WholeByEpochs(assignment, workload, self._products)
        self._leaving = LeavingWorkers()
        self._progress_of_split: dict[int, UnitProgress] = {}
        self._awake: set[int] = set()
        self._out: list[Instruction] = []
        self._steps, self._admitted, self._finished = 0, 0, False
        self._take_stock()
        self._admit()

    def _take_stock(self) -> None:
        """Register every unit once; in one-by-one order, whole tasks wait in the same queue as split units."""
        assignment = self._assignment
        whole = [task for tasks in assignment.whole for task in tasks]
        units = [*(unit for task in whole for unit in task.units), *assignment.split]
        self._open = {unit.id for unit in units}
        require(len(self._open) == len(units), "a unit was given twice")
        self._left = Counter(unit.group for unit in assignment.split)
        copied = any(task.group in self._left for task in whole)
        require(not copied, "a group is both whole and split: its rows would be copied")
        one_by_one = assignment.one_by_one
        later: list[Unit | GroupTask] = [*assignment.split, *(whole if one_by_one else ())]
        self._later = deque(sorted(later, key=lambda job: job.group) if one_by_one else later)
        lists = [()] * self._workload.workers if one_by_one else assignment.whole
        self._whole = WholeWork(lists, assignment.steal, not assignment.isolate_groups)
        self._groups_at = assignment.groups_at

    def on(self, event: Event) -> tuple[Instruction, ...]:
        """Handle an event; return what is to be done now, in order; an impossible event raises BrokenSchedule."""
        self._out = []
        match event:
            case WorkerReady(worker):
                self._placement.join(worker)
                self._regroup()
            case UnitDone(worker, unit):
                self._running.end_unit(worker, unit)
                self._whole_over(worker, unit)
            case StepDone(worker, step, more, failed):
                self._step_done(worker, step, more, failed)
            case WorkerLost(worker, kept, replaced):
                self._lost(worker, kept, replaced)
            case WorkerLeaving():
                require(event.worker in self._placement, f"worker {event.worker} is not there to leave")
                self._leaving.ask(event)
                if event.replaced:
                    self._placement.expect()
        for leaving in self._leaving.done(self._running.__contains__):
            self._leave(leaving.worker)
        self._out += self._products.discarded()
        self._out += self._leaving.dismissed(self._products.are_at)
        self._admit()
        workers = (event.worker, *sorted(self._awake - {event.worker}))
        if self._queues.takes_over:  # first, so that nobody takes over what a worker would begin
            for worker in workers:
                self._begin_own(worker)
        for worker in workers:
            self._employ(worker)
        self._awake.clear()
        self._finish()
        return tuple(self._out)

    def _finish(self) -> None:
        if not self._open and not self._running and not self._finished:
            require(self._products.empty, "everything is done, yet a product is kept")
            self._finished = True
            self._out.append(Finish())

    # Beginning

    def _admit(self) -> None:
        """Begin units: all of them or, one by one, the next when everything before it is over."""
        while self._later and not (self._assignment.one_by_one and (self._admitted or self._running)):
            job = self._later.popleft()
            self._admitted += len(job.units) if isinstance(job, GroupTask) else 1
            if isinstance(job, GroupTask):
                self._whole.add(0, job)
                self._wake(0)
            elif self._assignment.progress is None:
                self._awake.update(self._gangs.add(job))
            else:
                progress = self._assignment.progress(job, self._assignment.shards[job.group], self._products)
                self._progress_of_split[job.id] = progress
                self._push(progress.begin())

    def _employ(self, worker: int) -> None:
        """Give a free worker its next task: a step, its gang, or a whole unit."""
        if self._begin_own(worker):
            return
        ready = self._queues.take_over(worker, self._placement.places(worker), self._may_begin)
        if ready is not None:
            self._begin(worker, ready)
        elif not self._waits_for_gang(worker):
            self._run_whole(worker)

    def _begin_own(self, worker: int) -> bool:
        """Give a worker the next step at one of its places; return whether it needs no other task."""
        if worker not in self._placement or worker in self._running or self._finished:
            return True
        places = (*self._placement.reach(worker), *self._by_epochs.slots(worker))
        ready = self._queues.take(worker, places, self._may_begin)
        if ready is not None:
            self._begin(worker, ready)
        return ready is not None

    def _run_whole(self, worker: int) -> None:
        """Begin a whole unit, epoch by epoch if others would wait for this worker's steps."""
        for order in self._whole.next(worker, self._placement.places(worker)):
            if not isinstance(order, Run):
                self._out.append(order)
                continue
            unit = order.unit
            require(unit.id in self._open, f"unit {unit.id} was done twice")
            if self._by_epochs.rests(unit) or self._by_epochs.suits(unit, self._split_groups(worker)):
                self._push(self._by_epochs.begin(worker, unit))
                self._employ(worker)
            else:
                self._queues.leave(worker)
                self._running.begin_unit(worker, unit)
                self._out.append(order)

    def _split_groups(self, worker: int) -> Iterator[int]:
        """Yield the split groups that are not over and have rows at this worker."""
        for place in self._placement.places(worker):
            yield from (group for group in self._groups_at.get(place, ()) if self._left[group])

    def _may_begin(self, ready: ReadyStep) -> bool:
        unit = ready.progress.unit
        isolated = not (self._assignment.isolate_groups and self._running.steps_of_group(unit.group))
        return isolated and not (ready.alone and self._running.steps_of(unit))

    def _begin(self, worker: int, ready: ReadyStep) -> None:
        progress, unit = ready.progress, ready.progress.unit
        takes = progress.takes(ready)
        loads = self._load(worker, ready, ready.blocks) if ready.blocks is not None and ready.place >= 0 else []
        rounds = 1 + (self._workload.takeover_rounds if self._is_taken_over(unit, loads) else 0.0)
        step = Step(
            self._steps,
            unit,
            ready.kind,
            ready.epoch,
            ready.blocks,
            takes,
            cost=rounds * self._workload.cost(unit, ready.kind, ready.blocks, ready.round) / ready.stretch.of,
            partition=ready.partition,
            piece=ready.piece,
            pieces=ready.pieces,
            round=ready.round,
            stretch=ready.stretch,
            averages=self._workload.averages,
            before=progress.before(ready),
            pushes=progress.pushes(ready),
        )
        self._products.take(takes)
        self._products.take(step.before)
        progress.started(ready, step)
        self._out += loads
        self._run_step(worker, RunningStep(step, ready=ready))

    def _load(self, worker: int, ready: ReadyStep, blocks: BlockRange) -> list[Instruction]:
        """Return the instructions that load the rows of a step: the shard of its place; the blocks alone where they were
        taken over from another place; once for all, the shard around them, where workers share rows."""
        group, shared = ready.progress.unit.group, self._workload.rows_shared
        shards = self._assignment.shards[group]
        near = shards.values() if shared else [shards[ready.place]] if ready.place in shards else []
        around = next((each for each in near if each.first <= blocks.first and blocks.last <= each.last), blocks)
        if shared and self._placement.is_loaded(group, around):
            return []
        return self._placement.load(worker, group, around)

    def _is_taken_over(self, unit: Unit, loads: Sequence[Instruction]) -> bool:
        """Whether a part of another place's shard is loaded, so that its predictions must be computed, too."""
        shards = self._assignment.shards[unit.group].values() if loads else ()
        return any(isinstance(load, Load) and load.blocks not in shards for load in loads)

    def _run_step(self, worker: int, running: RunningStep) -> None:
        step = running.step
        require(step.unit.id in self._open, f"unit {step.unit.id} is over, yet a step of it is to run")
        self._running.begin_step(worker, running)
        self._steps += 1
        self._out.append(RunStep(worker, step))

    # Ending

    def _whole_over(self, worker: int, unit: Unit) -> None:
        self._close(unit)
        self._out += self._whole.done(worker)

    def _close(self, unit: Unit) -> None:
        require(unit.id in self._open, f"unit {unit.id} was done twice")
        self._open.remove(unit.id)
        self._admitted -= 1

    def _step_done(self, worker: int, step: Step, more: bool, failed: bool) -> None:
        running = self._running.end_step(worker, step)
        self._step_ended(running)
        if running.gang is not None:
            self._gang_step_done(worker, running.gang, step, failed)
        elif running.ready is not None:
            self._progress_step_done(worker, running.ready, step, more, failed)
        self._release(step.unit.group)

    def _step_ended(self, running: RunningStep) -> None:
        """Update queues and products after a step that no longer runs, for whatever reason."""
        self._products.give_back(running.step.takes)
        self._products.give_back(running.step.before)
        if self._assignment.isolate_groups or not running.is_wanted:
            # Others may have waited for this step to end.
            for place in self._queues.waiting(self._assignment.shards.get(running.step.unit.group, ())):
                self._wake(place)

    def _progress_step_done(self, worker: int, ready: ReadyStep, step: Step, more: bool, failed: bool) -> None:
        progress = ready.progress
        if progress.over:
            self._throw_away(worker, step, failed)
            return
        if failed:  # also when its product was no longer wanted: it would fail again
            progress.end()
        elif not progress.expects(step.id):
            self._throw_away(worker, step, failed)
        else:
            if step.kind != "finish":
                self._products.made(step.id, worker)
            self._push(progress.done(step, worker, ready.place, more))
        if progress.over and ready.place >= 0:
            self._split_over(progress.unit)
        elif progress.over:
            self._by_epochs.done(worker)
            self._whole_over(worker, progress.unit)

    def _throw_away(self, worker: int, step: Step, failed: bool) -> None:
        if not failed and step.kind != "finish":
            self._products.made(step.id, worker)
            self._products.drop(step.id)

    def _split_over(self, unit: Unit) -> None:
        self._close(unit)
        self._progress_of_split.pop(unit.id, None)
        self._left[unit.group] -= 1
        for place in self._queues.close(unit.id):
            self._wake(place)

    def _release(self, group: int) -> None:
        """Release a split group's rows when no unit needs them and no step runs on them."""
        if not self._left[group] and not self._running.steps_of_group(group):
            self._out += self._placement.release(group)

    def _leave(self, worker: int) -> None:
        """Give the places of a worker that is leaving to others; it has finished what it ran, and its products still exist."""
        self._placement.lose(worker)
        self._leave_whole(worker, None, None, kept=True)
        self._without(worker)

    def _lost(self, worker: int, kept: bool, replaced: bool) -> None:
        if not self._leaving.is_waiting(worker):  # for one that was to leave, another is expected already
            self._placement.lose(worker, replaced and not self._leaving.is_asked(worker))
        self._leaving.lose(worker)
        if not kept:
            self._products.lose(worker)
        running = self._running.lose(worker)
        step = running.step if isinstance(running, RunningStep) else None
        if isinstance(running, RunningStep):
            self._step_ended(running)
        self._leave_whole(worker, running if isinstance(running, Unit) else None, step, kept)
        for progress in list(self._progress_of_split.values()):
            self._push(progress.lost(step.id if step is not None and step.unit == progress.unit else None))
        self._without(worker)
        if step is not None:
            self._release(step.unit.group)

    def _without(self, worker: int) -> None:
        """Continue without a worker that is lost or has left."""
        self._queues.leave(worker)
        self._gangs.lose(worker, self._open)
        self._regroup()
        self._awake.update(self._placement.workers)

    def _leave_whole(self, worker: int, running: Unit | None, step: Step | None, kept: bool) -> None:
        """Queue again the whole unit that a lost worker was running, if any."""
        unit = self._by_epochs.lose(worker, step, kept)
        if unit is not None:
            self._queues.forget(slot_of(unit))
        self._whole.lose(worker, unit or running)

    def _push(self, ready: Iterable[ReadyStep]) -> None:
        pushed = False
        for each in ready:
            pushed = True
            for place in self._queues.push(each):
                self._wake(place)
        if pushed:
            self._awake.update(worker for worker in self._queues.idle() if worker not in self._running)

    def _wake(self, place: int) -> None:
        workers = self._placement.near(place) if place >= 0 else self._by_epochs.near(place)
        self._awake.update(worker for worker in workers if worker not in self._running)

    # Gangs

    def _regroup(self) -> None:
        if self._assignment.progress is None and self._gangs.regroup():
            self._awake.update(self._placement.workers)

    def _waits_for_gang(self, worker: int) -> bool:
        """Whether a free worker waits for its gang; the last member to arrive begins it."""
        if self._gangs.hold_back:
            return True
        gang = self._gangs.arrive(worker)
        if gang is not None and gang.complete:
            self._begin_gang(gang)
        return gang is not None

    def _begin_gang(self, gang: ScheduledGang) -> None:
        unit, size, kind = gang.unit, len(gang.members), self._assignment.gang
        gang.begun, gang.working = True, set(gang.members)
        shards = cut_evenly(self._workload.blocks_of(unit), size)
        for rank, (worker, blocks) in enumerate(zip(gang.members, shards, strict=True)):
            self._out += self._placement.load_only(worker, unit.group, blocks)
            step = Step(self._steps, unit, kind, 0, blocks, (), rank, size, self._workload.cost(unit, kind, blocks))
            self._run_step(worker, RunningStep(step, gang=gang))

    def _gang_step_done(self, worker: int, gang: ScheduledGang, step: Step, failed: bool) -> None:
        if not self._gangs.is_current(gang):
            return  # another member was lost, and the unit begins again
        if (failed or step.rank == 0) and gang.unit.id in self._open:
            self._split_over(gang.unit)
        self._awake.update(self._gangs.done(gang, worker))
