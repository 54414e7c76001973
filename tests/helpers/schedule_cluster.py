"""Workers that do exactly what they are told, keep account of what every product holds, and complain about nonsense."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from grouplearn.schedule.messages import (
    BlockRange,
    Discard,
    Dismiss,
    Finish,
    Instruction,
    Load,
    Operator,
    Release,
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

Visit = tuple[int, int]


@dataclass(frozen=True)
class State:
    """A model: the (epoch, block) pairs that it has seen, in order, and whether it is to see more."""

    unit: int
    seen: tuple[Visit, ...] = ()
    over: bool = False


@dataclass(frozen=True)
class Sums:
    """Sums over ``blocks`` at one state."""

    state: State
    blocks: tuple[int, ...]


@dataclass
class Product:
    worker: int
    value: State | Sums


@dataclass
class Rules:
    """What the learner and the data are like, and what must hold besides what always must."""

    blocks: Callable[[Unit], int]
    epochs: int = 1
    sequential: bool = False
    stops: Callable[[Unit, int], bool] = lambda unit, epoch: False
    breaks: Callable[[Step], bool] = lambda step: False
    isolate_groups: bool = False
    evaluate_epochs: bool = False
    shared_rows: bool = True
    rows_at_hand: bool = False


@dataclass
class Cluster:
    machine: Operator
    rules: Rules
    alive: set[int] = field(default_factory=set)
    leaving: dict[int, bool] = field(default_factory=dict)
    loaded: dict[int, dict[int, list[BlockRange | None]]] = field(default_factory=dict)
    running: dict[int, Unit | Step] = field(default_factory=dict)
    taken: dict[int, tuple[State | Sums, ...]] = field(default_factory=dict)
    products: dict[int, Product] = field(default_factory=dict)
    results: dict[int, State | str] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    broken_gangs: set[int] = field(default_factory=set)
    done: list[Unit] = field(default_factory=list)
    log: list[Instruction] = field(default_factory=list)
    finishes: int = 0
    loads: int = 0

    def join(self, worker: int) -> None:
        self.alive.add(worker)
        self.loaded[worker] = {}
        self.execute(self.machine.on(WorkerReady(worker)))

    def complete(self, worker: int) -> None:
        what = self.running.pop(worker)
        if isinstance(what, Unit):
            self.close(what, "whole")
            self.execute(self.machine.on(UnitDone(worker, what)))
            return
        taken = self.taken.pop(what.id)
        if self.rules.breaks(what) or what.id in self.broken_gangs:
            if what.id not in self.broken_gangs:
                self.failed.add(what.unit.id)
            self.execute(self.machine.on(StepDone(worker, what, failed=True)))
            return
        more = self.work(worker, what, taken)
        self.execute(self.machine.on(StepDone(worker, what, more)))

    def close(self, unit: Unit, result: State | str) -> None:
        assert unit.id not in self.results, "a unit was done twice"
        self.results[unit.id] = result
        self.done.append(unit)

    def work(self, worker: int, step: Step, taken: tuple[State | Sums, ...]) -> bool:
        """Make what the step makes; return whether more epochs are wanted."""
        unit, stop = step.unit, self.rules.stops(step.unit, step.epoch)
        every = tuple(range(self.rules.blocks(unit)))
        own = tuple(range(step.blocks.first, step.blocks.last)) if step.blocks else ()
        match step.kind:
            case "init":
                assert not taken
                value: State | Sums = State(unit.id)
            case "accumulate" | "evaluate":
                value = self.add(step, taken, own)
            case "update":
                state, sums = self.merged(taken)
                assert sorted(sums) == list(every), "an update without the sums of every block"
                seen = state.seen if self.rules.sequential else (*state.seen, *((step.epoch, block) for block in every))
                value = State(unit.id, seen, stop or step.epoch + 1 == self.rules.epochs)
            case "train":
                (state,) = taken
                assert isinstance(state, State)
                assert not state.over
                seen = (*state.seen, *((step.epoch, block) for block in own))
                last = len(seen) == (step.epoch + 1) * len(every)
                ends = step.epoch + 1 == self.rules.epochs or (stop and not self.rules.evaluate_epochs)
                value = State(unit.id, seen, last and ends)
                stop = stop and not self.rules.evaluate_epochs
            case "finish":
                state, sums = self.merged(taken)
                assert state.over, "finished before training was over"
                assert sorted(sums) == list(every)
                self.close(unit, state)
                return True
            case "boost" | "descend":
                if step.rank == 0 and unit.id not in self.failed:
                    self.close(unit, step.kind)
                return True
        assert step.id not in self.products
        self.products[step.id] = Product(worker, value)
        return not stop

    def add(self, step: Step, taken: tuple[State | Sums, ...], own: tuple[int, ...]) -> Sums:
        state, blocks = self.merged(taken)
        assert not set(blocks) & set(own), "a block was added twice"
        if step.kind == "accumulate":
            assert len(state.seen) == step.epoch * self.rules.blocks(step.unit), "sums of another epoch"
            assert not state.over
        return Sums(state, (*blocks, *own))

    def merged(self, taken: tuple[State | Sums, ...]) -> tuple[State, tuple[int, ...]]:
        state, *sums = taken
        assert isinstance(state, State)
        blocks: list[int] = []
        for each in sums:
            assert isinstance(each, Sums)
            assert each.state == state, "sums at another state"
            blocks += each.blocks
        assert len(set(blocks)) == len(blocks), "a block was added twice"
        return state, tuple(blocks)

    def lose(self, worker: int, kept: bool = False, replaced: bool = False) -> None:
        """Lose a worker, with what it made unless that is ``kept`` elsewhere."""
        self.alive.remove(worker)
        self.leaving.pop(worker, None)
        del self.loaded[worker]
        what = self.running.pop(worker, None)
        if not kept:
            self.products = {step: product for step, product in self.products.items() if product.worker != worker}
        if isinstance(what, Step):
            del self.taken[what.id]
            if what.size > 1:
                peers = [each for each in self.running.values() if isinstance(each, Step) and each.size > 1]
                self.broken_gangs |= {peer.id for peer in peers if peer.unit == what.unit}
        self.execute(self.machine.on(WorkerLost(worker, kept, replaced)))

    def leave(self, worker: int, kept: bool = False, replaced: bool = False) -> None:
        """Ask a worker to leave; what it made is ``kept`` elsewhere, or must not be needed when it goes."""
        self.leaving[worker] = kept
        self.execute(self.machine.on(WorkerLeaving(worker, kept, replaced)))

    def dismiss(self, worker: int) -> None:
        assert worker not in self.running, "a worker is to go with what it runs"
        held = [step for step, product in self.products.items() if product.worker == worker]
        assert self.leaving.pop(worker) or not held, "a worker is to go with what others need"
        self.alive.remove(worker)
        del self.loaded[worker]

    def execute(self, instructions: tuple[Instruction, ...]) -> None:
        self.log += instructions
        for instruction in instructions:
            assert not self.finishes, "nothing may follow Finish"
            match instruction:
                case Load(worker, group, blocks):
                    runs = self.loaded[worker].setdefault(group, [])
                    assert blocks not in runs, "rows were loaded twice"
                    runs.append(blocks)
                    self.loads += 1
                case Run(worker, unit):
                    assert self.loaded[worker][unit.group] == [None]
                    assert unit not in self.running.values(), "a unit got two workers"
                    self.begin(worker, unit)
                case RunStep(worker, step):
                    self.begin_step(worker, step)
                case Release(worker, group):
                    what = self.running.get(worker)
                    assert not isinstance(what, Step) or what.unit.group != group, "rows were released under a step"
                    del self.loaded[worker][group]
                case Discard(steps):
                    takers = [what for what in self.running.values() if isinstance(what, Step)]
                    assert not any({*steps} & {*taker.inputs} for taker in takers), "discarded under a step"
                    for step in steps:
                        del self.products[step]
                case Dismiss(worker):
                    self.dismiss(worker)
                case Finish():
                    self.finishes += 1
                    assert not self.running
        self.check_gangs(instructions)
        if not self.rules.shared_rows:
            self.check_rows()

    def begin(self, worker: int, what: Unit | Step) -> None:
        assert worker in self.alive
        assert worker not in self.running, "a worker is to do two things at a time"
        if self.rules.isolate_groups:
            assert what_group(what) not in map(what_group, self.running.values()), "group isolation"
        self.running[worker] = what

    def begin_step(self, worker: int, step: Step) -> None:
        others = [each for each in self.running.values() if isinstance(each, Step) and each.id not in self.broken_gangs]
        assert step.unit.id not in self.results, "a step of a unit that is done"
        assert step.unit.id not in self.failed, "a step of a unit that failed"
        if step.kind == "train":
            assert not any(each.unit == step.unit for each in others), "config isolation"
        if step.blocks is not None:
            runs = self.loaded[worker].get(step.unit.group, [])
            there = None in runs or any(
                run.first <= step.blocks.first < step.blocks.last <= run.last for run in runs if run
            )
            assert there or self.rules.rows_at_hand, "the step's rows are not loaded"
        self.taken[step.id] = tuple(self.products[each].value for each in step.inputs)
        self.begin(worker, step)

    def check_gangs(self, instructions: tuple[Instruction, ...]) -> None:
        """All ranks of a gang begin together, on different workers, and hold every block once."""
        steps = [
            each.step for each in instructions if isinstance(each, RunStep) and each.step.kind in ("boost", "descend")
        ]
        for unit in {step.unit for step in steps}:
            gang = [step for step in steps if step.unit == unit]
            assert [step.rank for step in gang] == list(range(gang[0].size))
            blocks = [block for step in gang if step.blocks for block in range(step.blocks.first, step.blocks.last)]
            assert blocks == list(range(self.rules.blocks(unit)))

    def check_rows(self) -> None:
        """Every row is on at most one worker."""
        seen: set[tuple[int, int]] = set()
        for groups in self.loaded.values():
            for group, runs in groups.items():
                whole = BlockRange(0, self.rules.blocks(Unit(-1, group, ())))
                rows = {(group, block) for run in runs for block in range((run or whole).first, (run or whole).last)}
                assert not rows & seen, "a row is on two workers"
                seen |= rows


def what_group(what: Unit | Step) -> int:
    return what.group if isinstance(what, Unit) else what.unit.group


def play(cluster: Cluster, seed: int, workers: int, losses: int = 0, kept: float = 0.5, leaves: int = 0) -> Cluster:
    """Let workers join, finish, die and leave in an order drawn from ``seed`` until the machine says Finish.

    ``kept``: how often the products of a lost worker are still there.
    """
    chance = random.Random(seed)
    joined = 0
    due = workers
    for _ in range(100_000):
        if cluster.finishes:
            return cluster
        staying = sorted(cluster.alive - cluster.leaving.keys())
        choices = ["join"] if joined < due or not staying else []
        choices += ["complete"] * 3 if cluster.running else []
        choices += ["lose"] if losses and cluster.alive and chance.random() < 0.2 else []
        choices += ["leave"] if leaves and staying and chance.random() < 0.2 else []
        assert choices, "nothing runs, nobody is to come, and it is not finished"
        match chance.choice(choices):
            case "join":
                cluster.join(joined)
                joined += 1
            case "complete":
                cluster.complete(chance.choice(sorted(cluster.running)))
            case "lose":
                replaced = chance.random() < 0.5
                cluster.lose(chance.choice(sorted(cluster.alive)), chance.random() < kept, replaced)
                losses -= 1
                due += replaced
            case "leave":
                replaced = chance.random() < 0.5
                cluster.leave(chance.choice(staying), chance.random() < kept, replaced)
                leaves -= 1
                due += replaced
    raise AssertionError("the schedule does not end")
