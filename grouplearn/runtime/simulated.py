"""Schedules on a virtual clock: the real state machine, with durations from the cost model and no training."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from grouplearn.schedule.messages import (
    BlockRange,
    Discard,
    Finish,
    Instruction,
    Load,
    Operator,
    Release,
    Run,
    RunStep,
    Step,
    StepDone,
    StepKind,
    Unit,
    UnitDone,
    WorkerReady,
)

#: Steps whose product is a state, or a part of one; other products are sums, or the unit's result, which is not kept.
STATES: frozenset[StepKind] = frozenset({"init", "update", "train", "work", "combine", "reduce", "push"})
_MANY = 64  # from so many products on, their bytes are summed once for all steps that take the same ones
SUMS: frozenset[StepKind] = frozenset({"accumulate", "evaluate", "judge"})


@dataclass(frozen=True, slots=True)
class Interval:
    """A unit (``kind`` 'unit') or a step of one on a worker, from ``start`` to ``end`` (seconds since the run began).

    Loading its rows comes before that, and so does waiting for the other workers of a ``boost`` or ``descend``; fetching
    its inputs is included.
    """

    worker: int
    unit: Unit
    start: float
    end: float
    kind: StepKind | Literal["unit"] = "unit"
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a worker sends during a ``boost`` or ``descend``: bytes, and rounds in which all wait for each other."""

    n_bytes: float = 0.0
    rounds: float = 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """The sizes of rows and products, and the time to move them; all 0 by default.

    ``share`` is the part of a group's rows that is in some of its blocks, ``row_bytes`` the bytes of all its rows;
    ``state_bytes``, ``gradient_bytes`` and ``sums_bytes`` are those of a unit's pack. ``overhead`` (seconds) is the time of
    a step besides its share of the unit's work. Moving n bytes takes ``latency`` + n / ``bandwidth`` seconds (bytes per
    second). A worker holds at most ``most_rows_held`` bytes of a group's rows at a time. ``groups`` is how many groups one
    group represents. ``pace`` is how many times longer a worker takes for a step than the schedule assumes: above 1 for a
    straggler. ``shared`` is the part of a whole unit's work in which idle workers help.
    """

    share: Callable[[int, BlockRange], float] = lambda _group, _blocks: 1.0
    row_bytes: Callable[[int], float] = lambda _group: 0.0
    state_bytes: Callable[[Unit], float] = lambda _unit: 0.0
    gradient_bytes: Callable[[Unit], float] = lambda _unit: 0.0
    sums_bytes: Callable[[Unit], float] = lambda _unit: 0.0
    exchange: Callable[[Step], Exchange] = lambda _step: Exchange()
    overhead: Callable[[Step], float] = lambda _step: 0.0
    most_rows_held: Callable[[int], float] = lambda _group: math.inf
    groups: Callable[[int], int] = lambda _group: 1
    pace: Callable[[int, Step], float] = lambda _worker, _step: 1.0
    shared: Callable[[Unit], float] = lambda _unit: 0.0
    bandwidth: float = math.inf
    latency: float = 0.0
    exchange_latency: float = 0.0

    def seconds(self, n_bytes: float, rounds: float = 1.0) -> float:
        """Return the seconds of moving ``n_bytes`` in ``rounds`` rounds."""
        return rounds * self.latency + n_bytes / self.bandwidth

    def exchange_seconds(self, exchange: Exchange) -> float:
        """Return the seconds that a gang spends exchanging: each round adds ``exchange_latency``, as all wait for the last."""
        return self.seconds(exchange.n_bytes, exchange.rounds) + exchange.rounds * self.exchange_latency

    def product_bytes(self, step: Step) -> float:
        """Return the bytes of a step's product that other steps take."""
        if step.kind == "update" and step.pieces > 1:
            return 0.0  # only progress: the parts of the state are other products
        if step.round is not None and step.kind == "work":
            return self.sums_bytes(step.unit) / step.round.of
        if step.kind in ("work", "combine") and step.averages.of_gradients:
            return self.gradient_bytes(step.unit)
        if step.kind in STATES:
            parts = step.piece.of if step.kind in ("reduce", "push") and step.piece else 1
            size = self.state_bytes(step.unit)
            if step.kind == "reduce" and step.averages.momentum:  # the velocity is as large as a gradient
                size += self.gradient_bytes(step.unit)
            return size / (parts if step.round is None else parts * step.round.of)
        return self.sums_bytes(step.unit) if step.kind in SUMS else 0.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """A simulated run: units and steps in order of their start.

    ``makespan`` is the end of the last unit; ``idle_share`` is the share of workers x makespan in which a worker neither
    loads, fetches nor trains; ``loads`` counts how often rows were loaded; ``network_bytes`` are the rows loaded, the
    products taken from other workers, and what gangs exchange; ``peak_bytes`` is the most that each worker held at a time:
    rows, products, and the inputs of the running step. ``helping`` is the most idle workers that helped one.
    """

    intervals: tuple[Interval, ...]
    workers: int
    makespan: float
    idle_share: float
    loads: int
    network_bytes: float = 0.0
    peak_bytes: tuple[float, ...] = ()
    helping: int = 0


@dataclass
class _Memory:
    """The bytes that each worker holds now, and its peak."""

    held: dict[int, float]
    peak: dict[int, float] = field(default_factory=dict)
    rows: dict[tuple[int, int], float] = field(default_factory=dict)

    def add(self, worker: int, n_bytes: float) -> None:
        self.held[worker] += n_bytes
        self.peak[worker] = max(self.peak.get(worker, 0.0), self.held[worker])

    def load(self, worker: int, group: int, n_bytes: float) -> None:
        self.rows[worker, group] = self.rows.get((worker, group), 0.0) + n_bytes
        self.add(worker, n_bytes)

    def release(self, worker: int, group: int) -> None:
        self.add(worker, -self.rows.pop((worker, group)))


@dataclass(frozen=True, slots=True, order=True)
class _End:
    """The end of a unit or step; ends at the same time are ordered by worker."""

    at: float
    worker: int
    what: Unit | Step = field(compare=False)
    taken_bytes: float = field(compare=False, default=0.0)


class _Timer:
    """The state of a simulation: when each worker is free, the pending ends, and where products are."""

    def __init__(self, workers: int, load_seconds: Callable[[int], float], costs: Costs) -> None:
        self._load_seconds, self._costs = load_seconds, costs
        self._free = dict.fromkeys(range(workers), 0.0)
        self._memory = _Memory(dict.fromkeys(range(workers), 0.0))
        self._products: dict[int, tuple[int, float]] = {}
        self._pieces: dict[int, int] = {}
        self._summed: tuple[tuple[int, ...], dict[int | None, float]] = ((), {})
        self._gangs: dict[int, list[RunStep]] = defaultdict(list)
        self.now = self.busy = self.network_bytes = 0.0
        self.loads = self.helping = 0
        self.finished = False
        self.intervals: list[Interval] = []
        self.ending: list[_End] = []

    @property
    def peak_bytes(self) -> tuple[float, ...]:
        return tuple(self._memory.peak.get(worker, 0.0) for worker in self._free)

    def execute(self, instructions: Sequence[Instruction]) -> None:
        beginning = {each.worker for each in instructions if isinstance(each, Run | RunStep)}
        for instruction in instructions:
            match instruction:
                case Load():
                    self._load(instruction)
                case Run(worker, unit):
                    self._run(worker, unit, beginning)
                case RunStep(worker, step):
                    self._run_step(worker, step)
                case Release(worker, group):
                    self._memory.release(worker, group)
                case Discard(steps):
                    for number in steps:
                        self._pieces.pop(number, None)
                        worker, n_bytes = self._products.pop(number)
                        self._memory.add(worker, -n_bytes)
                case Finish():
                    self.finished = True

    def end(self, end: _End) -> None:
        """Record an end: a step's product becomes available, and its inputs are freed."""
        self.now = end.at
        if isinstance(end.what, Step) and end.what.kind in STATES | SUMS:
            n_bytes = self._costs.product_bytes(end.what)
            self._products[end.what.id] = (end.worker, n_bytes)
            if end.what.pieces > 1:
                self._pieces[end.what.id] = end.what.pieces
            self._memory.add(end.worker, n_bytes)
        self._memory.add(end.worker, -end.taken_bytes)

    def _load(self, load: Load) -> None:
        share = 1.0 if load.blocks is None else self._costs.share(load.group, load.blocks)
        seconds = self._load_seconds(load.group) * share
        n_bytes = self._costs.row_bytes(load.group) * share
        self._free[load.worker] = self._start(load.worker) + seconds
        self._memory.load(load.worker, load.group, min(n_bytes, self._costs.most_rows_held(load.group)))
        self.busy += seconds
        self.network_bytes += n_bytes
        self.loads += self._costs.groups(load.group)

    def _run(self, worker: int, unit: Unit, beginning: set[int]) -> None:
        """Begin a unit: of its work the shared part is done by its worker and its part of those that are idle now."""
        together, seconds = unit.cost * self._costs.shared(unit), unit.cost
        if together:
            busy = sum(each in beginning or free > self.now for each, free in self._free.items())
            helping = len(self._free) // busy - 1
            done_by_others = together * helping / (1 + helping)
            self.helping = max(self.helping, helping)
            self.busy += done_by_others
            seconds -= done_by_others
        self._begin(worker, unit, self._start(worker), seconds, "unit", 0, self._costs.state_bytes(unit))

    def _run_step(self, worker: int, step: Step) -> None:
        if step.size > 1:
            gang = self._gangs[step.unit.id]
            gang.append(RunStep(worker, step))
            if len(gang) == step.size:
                self._begin_gang(self._gangs.pop(step.unit.id))
            return
        moved = self._moved(worker, step)
        fetching = self._costs.seconds(sum(moved), 1.0 if moved else 0.0)
        seconds = fetching + step.cost * self._costs.pace(worker, step) + self._costs.overhead(step)
        self.network_bytes += sum(moved)
        self._begin(worker, step, self._start(worker), seconds, step.kind, step.epoch, sum(moved))

    def _moved(self, worker: int, step: Step) -> list[float]:
        """Return the bytes of each product that a step takes from other workers; of products in pieces, those of its piece."""
        if len(step.takes) - step.new_from > _MANY:
            by_maker, rest = self._by_maker(step), self._sizes(step, step.before)
            return [by_maker[None] - by_maker.get(worker, 0.0), *(n for maker, n in rest if maker != worker)]
        taken = (*step.takes[step.new_from :], *step.before)
        return [n_bytes for maker, n_bytes in self._sizes(step, taken) if maker != worker]

    def _sizes(self, step: Step, taken: Iterable[int]) -> Iterable[tuple[int, float]]:
        pieces: Mapping[int, int] = self._pieces if step.piece is not None else {}
        for each in taken:
            maker, n_bytes = self._products[each]
            yield maker, n_bytes / pieces.get(each, 1)

    def _by_maker(self, step: Step) -> Mapping[int | None, float]:
        """Return the bytes that a step takes, by maker (None: all), computed once for the steps of a stage."""
        taken, summed = self._summed
        if taken is not step.takes:
            summed = defaultdict(float)
            for maker, n_bytes in self._sizes(step, step.takes[step.new_from :]):
                summed[maker] += n_bytes
            summed[None] = math.fsum(summed.values())
            self._summed = step.takes, summed
        return summed

    def _begin_gang(self, gang: list[RunStep]) -> None:
        """Start all members when the last one is free; they end when the slowest does."""
        start = max(self._start(each.worker) for each in gang)
        exchanges = [self._costs.exchange(each.step) for each in gang]
        self.network_bytes += sum(each.n_bytes for each in exchanges)
        seconds = max(
            each.step.cost + self._costs.overhead(each.step) + self._costs.exchange_seconds(exchange)
            for each, exchange in zip(gang, exchanges, strict=True)
        )
        for each in gang:
            self._begin(each.worker, each.step, start, seconds, each.step.kind, each.step.epoch)

    def _begin(
        self,
        worker: int,
        what: Unit | Step,
        start: float,
        seconds: float,
        kind: StepKind | Literal["unit"],
        epoch: int,
        taken_bytes: float = 0.0,
    ) -> None:
        end = self._free[worker] = start + seconds
        self.busy += seconds
        self._memory.add(worker, taken_bytes)
        self.intervals.append(Interval(worker, what.unit if isinstance(what, Step) else what, start, end, kind, epoch))
        heapq.heappush(self.ending, _End(end, worker, what, taken_bytes))

    def _start(self, worker: int) -> float:
        """Return when a worker starts: a waiting one when its order arrives, not when it became idle."""
        return max(self._free[worker], self.now)


def simulate(
    operator: Operator, workers: int, load_seconds: Callable[[int], float], *, costs: Costs | None = None
) -> Timeline:
    """Run ``operator`` on ``workers`` virtual workers and return what happened when.

    A unit takes ``unit.cost`` seconds, a step ``step.cost`` and what ``costs`` adds. Loading a group takes
    ``load_seconds(group)``, loading some of its blocks their share of that. The operator must be new, and cannot be used
    again. Raises ValueError for fewer than one worker.
    """
    if workers < 1:
        raise ValueError(f"a schedule needs at least one worker, not {workers}")
    clock = _Timer(workers, load_seconds, costs or Costs())
    clock.execute([each for worker in range(workers) for each in operator.on(WorkerReady(worker))])
    while clock.ending:
        end = heapq.heappop(clock.ending)
        clock.end(end)
        done = (
            UnitDone(end.worker, end.what)
            if isinstance(end.what, Unit)
            else StepDone(end.worker, end.what, end.what.goes_on)
        )
        clock.execute(operator.on(done))
    if not clock.finished:
        raise RuntimeError(f"operator {operator.name} stopped before it finished")
    intervals = tuple(sorted(clock.intervals, key=lambda interval: (interval.start, interval.worker)))
    makespan = max((interval.end for interval in intervals), default=0.0)
    idle = 1 - clock.busy / (workers * makespan) if makespan > 0 else 0.0
    return Timeline(
        intervals, workers, makespan, max(0.0, idle), clock.loads, clock.network_bytes, clock.peak_bytes, clock.helping
    )
