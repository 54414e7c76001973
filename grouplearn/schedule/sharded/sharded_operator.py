"""Operators that first put the rows of groups on workers: whole units run there as they are, split ones step by step."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from grouplearn.schedule.invariants import BrokenSchedule, require
from grouplearn.schedule.messages import (
    Blocks,
    Event,
    Finish,
    Instruction,
    Run,
    RunStep,
    Step,
    StepDone,
    Unit,
    UnitDone,
    WorkerLost,
    WorkerReady,
)
from grouplearn.schedule.sharded.assignment import Assignment
from grouplearn.schedule.sharded.gangs import Gangs, ScheduledGang
from grouplearn.schedule.sharded.partition import cut_evenly
from grouplearn.schedule.sharded.placement import Placement
from grouplearn.schedule.sharded.products import Products
from grouplearn.schedule.sharded.step_queues import StepQueues
from grouplearn.schedule.sharded.unit_progress import Course, Ready
from grouplearn.schedule.task_parallel import GroupTask
from grouplearn.schedule.whole import WholeWork
from grouplearn.schedule.workload import Workload


@dataclass
class _Running:
    """A step that runs; ``ready`` or ``gang`` is what it belongs to."""

    step: Step
    ready: Ready | None = None
    gang: ScheduledGang | None = None


def _desk(unit: Unit) -> int:
    """Return the place at which a worker runs the steps of a whole unit: it is that of no shard, and moves with the unit."""
    return -1 - unit.id


class ShardedOperator:
    """Runs whole units and split units on the workers that hold their rows.

    Promises, checked at every transition (kingpin 4.2): (1) a row is placed on one worker; (2) a worker does one thing at a
    time; (3) a pack trains at one worker at a time where its learner is sequential; (4) with ``isolate_groups`` no two
    workers are busy with one split group. Also: a step takes only products that exist; no unit is done twice; ``Finish``
    is said once. The workers that the workload names must all become ready, sooner or later.

    A worker prefers steps, for whose results others wait, to gangs, and gangs to whole units.
    """

    name = "placed"

    def __init__(self, workload: Workload, jobs: Assignment, lines: StepQueues | None = None) -> None:
        self._workload, self._jobs = workload, jobs
        self._crew, self._products, self._gangs = Placement(workload.workers, jobs.replicas), Products(), Gangs()
        self._lines = lines or StepQueues()
        self._running: dict[int, _Running | Unit] = {}
        self._busy: Counter[int] = Counter()  # steps that run, by group
        self._beside: Counter[int] = Counter()  # steps that run, by unit
        self._own: dict[int, Course] = {}
        self._resting: dict[int, tuple[Course, int | None]] = {}  # by unit, with the step that was lost with its worker
        self._courses: dict[int, Course] = {}
        self._ganging: dict[int, ScheduledGang] = {}
        self._awake: set[int] = set()
        self._out: list[Instruction] = []
        self._steps, self._admitted, self._finished = 0, 0, False
        self._take_stock()
        self._admit()

    def _take_stock(self) -> None:
        """Note every unit, once; in one-by-one order, whole tasks wait in the same line as split units."""
        whole = [task for tasks in self._jobs.whole for task in tasks]
        units = [*(unit for task in whole for unit in task.units), *self._jobs.split]
        self._open = {unit.id for unit in units}
        require(len(self._open) == len(units), "a unit was given twice")
        self._left = Counter(unit.group for unit in self._jobs.split)
        copied = any(task.group in self._left for task in whole)
        require(not copied, "a group is both whole and split: its rows would be copied")
        one_by_one = self._jobs.one_by_one
        line: list[Unit | GroupTask] = [*self._jobs.split, *(whole if one_by_one else ())]
        self._later = deque(sorted(line, key=lambda job: job.group) if one_by_one else line)
        lists = [()] * self._workload.workers if one_by_one else self._jobs.whole
        self._whole = WholeWork(lists, self._jobs.steal, not self._jobs.isolate_groups)
        self._groups_at = self._jobs.groups_at
        self._pass_cost = self._jobs.pass_cost(self._workload)

    def on(self, event: Event) -> tuple[Instruction, ...]:
        """Take an event, return what is to be done now, in order; an impossible event raises BrokenSchedule."""
        self._out = []
        match event:
            case WorkerReady(worker):
                self._crew.join(worker)
                self._regroup()
            case UnitDone(worker, unit):
                self._unit_done(worker, unit)
            case StepDone(worker, step, more, failed):
                self._step_done(worker, step, more, failed)
            case WorkerLost(worker, kept, replaced):
                self._lost(worker, kept, replaced)
        self._out += self._products.discarded()
        self._admit()
        for worker in (event.worker, *sorted(self._awake - {event.worker})):
            self._employ(worker)
        self._awake.clear()
        self._finish()
        return tuple(self._out)

    def _finish(self) -> None:
        if not self._open and not self._running and not self._finished:
            require(self._products.empty, "everything is done, yet a product is kept")
            self._finished = True
            self._out.append(Finish())

    # What begins

    def _admit(self) -> None:
        """Let units begin: all of them, or the next when everything before it is over."""
        while self._later and not (self._jobs.one_by_one and (self._admitted or self._running)):
            job = self._later.popleft()
            self._admitted += len(job.units) if isinstance(job, GroupTask) else 1
            if isinstance(job, GroupTask):
                self._whole.add(0, job)
                self._wake(0)
            elif self._jobs.course is None:
                self._assemble(job)
            else:
                course = self._jobs.course(job, self._jobs.shards[job.group], self._products)
                self._courses[job.id] = course
                self._push(course.begin())

    def _employ(self, worker: int) -> None:
        """Give a free worker something to do: a step, its gang, or a whole unit."""
        if worker not in self._crew or worker in self._running or self._finished:
            return
        desk = (_desk(self._own[worker].unit),) if worker in self._own else ()
        ready = self._lines.take(worker, (*self._crew.reach(worker), *desk), self._may_begin)
        if ready is not None:
            self._begin(worker, ready)
        elif not (self._ganging and self._meets(worker)):
            self._run_whole(worker)

    def _run_whole(self, worker: int) -> None:
        """Begin a whole unit; where others would wait for this worker's steps, an epoch at a time."""
        for order in self._whole.next(worker, self._crew.places(worker)):
            if not isinstance(order, Run):
                self._out.append(order)
                continue
            require(order.unit.id in self._open, f"unit {order.unit.id} was done twice")
            if order.unit.id in self._resting:
                self._own[worker], lost_step = self._resting.pop(order.unit.id)
                self._push(self._own[worker].lost(lost_step))
                self._employ(worker)
            elif self._jobs.course is not None and self._goes_by_epochs(worker, order.unit):
                blocks = Blocks(0, self._workload.blocks_of(order.unit))
                self._own[worker] = self._jobs.course(order.unit, {_desk(order.unit): blocks}, self._products)
                self._push(self._own[worker].begin())
                self._employ(worker)
            else:
                self._lines.leave(worker)
                self._running[worker] = order.unit
                self._out.append(order)

    def _goes_by_epochs(self, worker: int, unit: Unit) -> bool:
        """Whether the unit would keep split groups of this worker waiting for longer than their other shards do."""
        if self._jobs.one_by_one or unit.stays_whole or self._workload.blocks_of(unit) < self._jobs.by_epochs_from:
            return False
        groups = {
            group
            for place in self._crew.places(worker)
            for group in self._groups_at.get(place, ())
            if self._left[group]
        }
        return any(unit.cost > self._pass_cost[group] for group in groups)

    def _may_begin(self, ready: Ready) -> bool:
        unit = ready.course.unit
        isolated = not (self._jobs.isolate_groups and self._busy[unit.group])
        return isolated and not (ready.alone and self._beside[unit.id])

    def _begin(self, worker: int, ready: Ready) -> None:
        course, unit = ready.course, ready.course.unit
        takes = course.takes(ready)
        step = Step(
            self._steps,
            unit,
            ready.kind,
            ready.epoch,
            ready.blocks,
            takes,
            cost=self._workload.cost(unit, ready.kind, ready.blocks, ready.round) / ready.stretch.of,
            partition=ready.partition,
            piece=ready.piece,
            pieces=ready.pieces,
            round=ready.round,
            stretch=ready.stretch,
            averages=self._workload.averages,
            before=course.before(ready),
            pushes=course.pushes(ready),
        )
        self._products.take(takes)
        self._products.take(step.before)
        course.started(ready, step)
        if ready.blocks is not None and ready.place >= 0:
            self._out += self._crew.load(worker, unit.group, self._jobs.shards[unit.group][ready.place])
        self._run_step(worker, _Running(step, ready=ready))

    def _run_step(self, worker: int, running: _Running) -> None:
        step = running.step
        require(worker not in self._running, f"worker {worker} is to do two things at a time")
        require(step.unit.id in self._open, f"unit {step.unit.id} is over, yet a step of it is to run")
        isolated = step.kind != "train" or not self._beside[step.unit.id]
        require(isolated, f"unit {step.unit.id} is to train in two places at a time")
        self._steps += 1
        self._running[worker] = running
        self._busy[step.unit.group] += 1
        self._beside[step.unit.id] += 1
        self._out.append(RunStep(worker, step))

    # What ends

    def _unit_done(self, worker: int, unit: Unit) -> None:
        require(self._running.get(worker) == unit, f"worker {worker} was not running unit {unit.id}")
        del self._running[worker]
        self._whole_over(worker, unit)

    def _whole_over(self, worker: int, unit: Unit) -> None:
        require(unit.id in self._open, f"unit {unit.id} was done twice")
        self._open.remove(unit.id)
        self._admitted -= 1
        self._out += self._whole.done(worker)

    def _step_done(self, worker: int, step: Step, more: bool, failed: bool) -> None:
        running = self._running.get(worker)
        if not isinstance(running, _Running) or running.step != step:
            raise BrokenSchedule(f"worker {worker} was not running step {step.id}")
        self._ended(worker, running)
        if running.gang is not None:
            self._rank_done(worker, running.gang, step, failed)
        elif running.ready is not None:
            self._course_step_done(worker, running.ready, step, more, failed)
        self._release(step.unit.group)

    def _ended(self, worker: int, running: _Running) -> None:
        """A step runs no more, for whatever reason."""
        unit = running.step.unit
        del self._running[worker]
        self._products.give_back(running.step.takes)
        self._products.give_back(running.step.before)
        self._busy[unit.group] -= 1
        self._beside[unit.id] -= 1
        if self._jobs.isolate_groups or (
            running.ready is not None and not running.ready.course.expects(running.step.id)
        ):
            # Others may have waited for this step to end.
            for place in self._lines.waiting(self._jobs.shards.get(unit.group, ())):
                self._wake(place)

    def _course_step_done(self, worker: int, ready: Ready, step: Step, more: bool, failed: bool) -> None:
        course = ready.course
        if course.over:
            self._throw_away(worker, step, failed)
            return
        if failed:  # also when its product was no longer wanted: it would break again
            course.end()
        elif not course.expects(step.id):
            self._throw_away(worker, step, failed)
        else:
            if step.kind != "finish":
                self._products.made(step.id, worker)
            self._push(course.done(step, worker, ready.place, more))
        if course.over and ready.place >= 0:
            self._over(course.unit)
        elif course.over:
            del self._own[worker]
            self._whole_over(worker, course.unit)

    def _throw_away(self, worker: int, step: Step, failed: bool) -> None:
        if not failed and step.kind != "finish":
            self._products.made(step.id, worker)
            self._products.drop(step.id)

    def _over(self, unit: Unit) -> None:
        require(unit.id in self._open, f"unit {unit.id} was done twice")
        self._open.remove(unit.id)
        self._courses.pop(unit.id, None)
        self._admitted -= 1
        self._left[unit.group] -= 1
        for place in self._lines.close(unit.id):
            self._wake(place)

    def _release(self, group: int) -> None:
        """Free a split group's rows when no unit needs them and no step runs on them."""
        if not self._left[group] and not self._busy[group]:
            self._out += self._crew.release(group)

    def _lost(self, worker: int, kept: bool, replaced: bool) -> None:
        self._crew.lose(worker, replaced)
        if not kept:
            self._products.lose(worker)
        running = self._running.get(worker)
        step: Step | None = None
        unit = running if isinstance(running, Unit) else None
        if isinstance(running, _Running):
            step = running.step
            self._ended(worker, running)
        else:
            self._running.pop(worker, None)
        if worker in self._own:
            unit = self._leave_desk(self._own.pop(worker), step, kept)
        self._whole.lose(worker, unit)
        self._lines.leave(worker)
        for course in list(self._courses.values()):
            self._push(course.lost(step.id if step is not None and step.unit == course.unit else None))
        self._disband(worker)
        self._regroup()
        self._awake.update(self._crew.workers)
        if step is not None:
            self._release(step.unit.group)

    def _leave_desk(self, course: Course, step: Step | None, kept: bool) -> Unit:
        """A worker is lost with a whole unit that goes by epochs; where its state is still there, it goes on from that."""
        unit = course.unit
        self._lines.forget(_desk(unit))
        if kept:
            self._resting[unit.id] = (course, step.id if step is not None and step.unit == unit else None)
        else:
            course.end()
        return unit

    def _push(self, ready: Iterable[Ready]) -> None:
        for each in ready:
            for place in self._lines.push(each):
                self._wake(place)

    def _wake(self, place: int) -> None:
        desks = (worker for worker, course in self._own.items() if _desk(course.unit) == place)
        workers = self._crew.near(place) if place >= 0 else desks
        self._awake.update(worker for worker in workers if worker not in self._running)

    # Gangs

    def _assemble(self, unit: Unit) -> None:
        gang = self._ganging[unit.id] = ScheduledGang(unit, self._members(unit))
        if self._crew.complete:
            self._gangs.append(gang)
        self._awake.update(gang.members)

    def _members(self, unit: Unit) -> tuple[int, ...]:
        """Return the workers that hold the group's places, each once, in the order of their blocks."""
        holders = (self._crew.holder(place) for place in self._jobs.shards[unit.group])
        return tuple(dict.fromkeys(holder for holder in holders if holder is not None))

    def _regroup(self) -> None:
        """Workers have changed: say anew who is in which gang that has not begun."""
        if self._jobs.course is None and self._crew.complete:
            for number, gang in self._ganging.items():
                if not gang.begun:
                    self._ganging[number] = ScheduledGang(gang.unit, self._members(gang.unit))
            self._gangs.arrange(self._ganging.values())
            self._awake.update(self._crew.workers)

    def _disband(self, worker: int) -> None:
        """Gangs in which the lost worker had not done its part begin again, unless their result is there."""
        for number, gang in list(self._ganging.items()):
            if worker not in gang.working:
                continue
            gang.working.discard(worker)
            if number in self._open:
                self._ganging[number] = ScheduledGang(gang.unit, ())
            elif not gang.working:
                del self._ganging[number]

    def _meets(self, worker: int) -> bool:
        """Whether a free worker waits for its gang; the last to come lets it begin."""
        if not self._crew.complete:
            return True
        gang = self._gangs.arrive(worker)
        if gang is not None and not gang.begun and gang.arrived == set(gang.members):
            self._begin_gang(gang)
        return gang is not None

    def _begin_gang(self, gang: ScheduledGang) -> None:
        unit, size = gang.unit, len(gang.members)
        gang.begun, gang.working = True, set(gang.members)
        shards = cut_evenly(self._workload.blocks_of(unit), size)
        for rank, (worker, blocks) in enumerate(zip(gang.members, shards, strict=True)):
            self._out += self._crew.load_only(worker, unit.group, blocks)
            cost = self._workload.cost(unit, self._jobs.gang, blocks)
            step = Step(self._steps, unit, self._jobs.gang, 0, blocks, (), rank, size, cost)
            self._run_step(worker, _Running(step, gang=gang))

    def _rank_done(self, worker: int, gang: ScheduledGang, step: Step, failed: bool) -> None:
        if self._ganging.get(gang.unit.id) is not gang:
            return  # another member was lost, and the unit begins again
        gang.working.discard(worker)
        if (failed or step.rank == 0) and gang.unit.id in self._open:
            self._over(gang.unit)
        if not gang.working:
            del self._ganging[gang.unit.id]
            self._awake.update(self._gangs.leave(gang))
