"""Schedules on a virtual clock: the real state machine, with durations from the cost model and no training."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from grouplearn.schedule.messages import Finish, Instruction, Load, Operator, Run, Unit, UnitDone, WorkerReady


@dataclass(frozen=True, slots=True)
class Interval:
    """A unit on a worker, from ``start`` to ``end`` (seconds since the run began); loading its rows comes before."""

    worker: int
    unit: Unit
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """A simulated run: units in order of their start.

    ``makespan`` is the end of the last unit; ``idle_share`` is the share of workers x makespan in which a worker neither
    loads nor trains; ``loads`` counts how often rows were loaded.
    """

    intervals: tuple[Interval, ...]
    workers: int
    makespan: float
    idle_share: float
    loads: int


@dataclass
class _Clock:
    """The state of a simulation: per worker when it is free, and the units that are still to end."""

    load_seconds: Callable[[int], float]
    free: dict[int, float]
    now: float = 0.0
    busy: float = 0.0
    loads: int = 0
    finished: bool = False

    def __post_init__(self) -> None:
        self.intervals: list[Interval] = []
        self.ending: list[tuple[float, int, Unit]] = []

    def execute(self, instructions: tuple[Instruction, ...]) -> None:
        for instruction in instructions:
            match instruction:
                case Load(worker, group):
                    seconds = self.load_seconds(group)
                    self.free[worker] = self._start(worker) + seconds
                    self.busy += seconds
                    self.loads += 1
                case Run(worker, unit):
                    start = self._start(worker)
                    self.free[worker] = start + unit.cost
                    self.busy += unit.cost
                    self.intervals.append(Interval(worker, unit, start, start + unit.cost))
                    heapq.heappush(self.ending, (start + unit.cost, worker, unit))
                case Finish():
                    self.finished = True

    def _start(self, worker: int) -> float:
        """A worker that waited starts when the order came, not when it fell idle."""
        return max(self.free[worker], self.now)


def simulate(operator: Operator, workers: int, load_seconds: Callable[[int], float]) -> Timeline:
    """Run ``operator`` on ``workers`` virtual workers; a unit takes ``unit.cost``, loading a group ``load_seconds(group)``.

    The operator must be fresh: it is used up. Raises ValueError for fewer than one worker.
    """
    if workers < 1:
        raise ValueError(f"a schedule needs at least one worker, not {workers}")
    clock = _Clock(load_seconds, dict.fromkeys(range(workers), 0.0))
    for worker in range(workers):
        clock.execute(operator.on(WorkerReady(worker)))
    while clock.ending:
        now, worker, unit = heapq.heappop(clock.ending)
        clock.now = now
        clock.execute(operator.on(UnitDone(worker, unit)))
    if not clock.finished:
        raise RuntimeError(f"operator {operator.name} stopped before it finished")
    intervals = tuple(sorted(clock.intervals, key=lambda interval: (interval.start, interval.worker)))
    makespan = max((interval.end for interval in intervals), default=0.0)
    idle = 1 - clock.busy / (workers * makespan) if makespan > 0 else 0.0
    return Timeline(intervals, workers, makespan, max(0.0, idle), clock.loads)
