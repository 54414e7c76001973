"""Task parallelism under any order of events: every unit once, one at a time, and an end."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.schedule.messages import (
    Finish,
    Instruction,
    Load,
    Operator,
    Release,
    Run,
    Unit,
    UnitDone,
    WorkerLost,
    WorkerReady,
)
from grouplearn.schedule.task_parallel import OPERATORS, BrokenSchedule, operator

NAMES = sorted(OPERATORS)


@st.composite
def unit_lists(draw: st.DrawFn) -> list[Unit]:
    groups = draw(st.lists(st.integers(0, 4), max_size=12))
    costs = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 7.0]), min_size=len(groups), max_size=len(groups)))
    folds = draw(st.lists(st.integers(-1, 2), min_size=len(groups), max_size=len(groups)))
    return [
        Unit(number, group, (number,), fold, cost)
        for number, (group, cost, fold) in enumerate(zip(groups, costs, folds, strict=True))
    ]


class Cluster:
    """Workers that do exactly what they are told, and complain when they are told nonsense."""

    def __init__(self, machine: Operator) -> None:
        self.machine = machine
        self.alive: set[int] = set()
        self.loaded: dict[int, int] = {}
        self.running: dict[int, Unit] = {}
        self.done: list[Unit] = []
        self.runs: list[Run] = []
        self.finishes = 0
        self.loads = 0

    def join(self, worker: int) -> None:
        self.alive.add(worker)
        self.execute(self.machine.on(WorkerReady(worker)))

    def complete(self, worker: int) -> None:
        unit = self.running.pop(worker)
        self.done.append(unit)
        self.execute(self.machine.on(UnitDone(worker, unit)))

    def lose(self, worker: int) -> None:
        self.alive.remove(worker)
        self.running.pop(worker, None)
        self.loaded.pop(worker, None)
        self.execute(self.machine.on(WorkerLost(worker)))

    def execute(self, instructions: tuple[Instruction, ...]) -> None:
        for instruction in instructions:
            assert not self.finishes, "nothing may follow Finish"
            match instruction:
                case Load(worker, group):
                    assert worker in self.alive
                    assert worker not in self.loaded, "the rows of the last group were not released"
                    self.loaded[worker] = group
                    self.loads += 1
                case Run(worker, unit):
                    assert worker in self.alive
                    assert worker not in self.running, "a worker got two units"
                    assert unit not in self.running.values(), "a unit got two workers"
                    assert self.loaded[worker] == unit.group
                    self.running[worker] = unit
                    self.runs.append(instruction)
                case Release(worker, group):
                    assert self.loaded.pop(worker) == group
                case Finish():
                    self.finishes += 1


def play(name: str, units: list[Unit], seed: int, losses: int) -> Cluster:
    """Let workers join, finish and die in an order drawn from ``seed`` until the machine says Finish."""
    chance = random.Random(seed)
    cluster = Cluster(operator(name, units))
    joined = 0
    for _ in range(10_000):
        if cluster.finishes:
            return cluster
        choices = ["join"] if joined < 4 or not cluster.alive else []
        choices += ["complete"] * 3 if cluster.running else []
        choices += ["lose"] if losses and cluster.alive else []
        match chance.choice(choices):
            case "join":
                cluster.join(joined)
                joined += 1
            case "complete":
                cluster.complete(chance.choice(sorted(cluster.running)))
            case "lose":
                cluster.lose(chance.choice(sorted(cluster.alive)))
                losses -= 1
    raise AssertionError("the schedule does not end")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150, deadline=None)
@given(units=unit_lists(), seed=st.integers(0, 2**32), losses=st.integers(0, 6))
def test_every_unit_is_done_once_whatever_happens(name: str, units: list[Unit], seed: int, losses: int) -> None:
    cluster = play(name, units, seed, losses)
    assert sorted(unit.id for unit in cluster.done) == [unit.id for unit in units]
    assert cluster.finishes == 1
    assert not cluster.loaded


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(units=unit_lists(), seed=st.integers(0, 2**32))
def test_equal_events_give_equal_instructions(name: str, units: list[Unit], seed: int) -> None:
    assert play(name, units, seed, 3).runs == play(name, units, seed, 3).runs


UNITS = [
    Unit(0, group=0, configs=(0,), cost=1.0),
    Unit(1, group=0, configs=(1,), cost=1.0),
    Unit(2, group=1, configs=(0,), cost=5.0),
    Unit(3, group=2, configs=(0,), cost=1.5),
]


def sequence(name: str) -> list[Instruction]:
    """The instructions that one worker gets, to the end."""
    machine, running, seen = operator(name, UNITS), [], []
    news: list[Instruction] = list(machine.on(WorkerReady(0)))
    while news:
        seen += news
        running = [each for each in news if isinstance(each, Run)]
        news = list(machine.on(UnitDone(0, running[-1].unit))) if running else []
    return seen


def test_groups_go_largest_first_and_are_loaded_once() -> None:
    assert sequence("group_task_parallel") == [
        *(Load(0, 1), Run(0, UNITS[2]), Release(0, 1)),
        *(Load(0, 0), Run(0, UNITS[0]), Run(0, UNITS[1]), Release(0, 0)),
        *(Load(0, 2), Run(0, UNITS[3]), Release(0, 2)),
        Finish(),
    ]


def test_models_go_largest_first_and_load_for_themselves() -> None:
    assert sequence("model_task_parallel") == [
        *(Load(0, 1), Run(0, UNITS[2]), Release(0, 1)),
        *(Load(0, 2), Run(0, UNITS[3]), Release(0, 2)),
        *(Load(0, 0), Run(0, UNITS[0]), Release(0, 0)),
        *(Load(0, 0), Run(0, UNITS[1]), Release(0, 0)),
        Finish(),
    ]


def test_folds_of_a_group_are_not_interleaved() -> None:
    units = [Unit(number, 0, (number,), fold) for number, fold in enumerate((1, -1, 0, 1, 0, -1))]
    cluster = Cluster(operator("group_task_parallel", units))
    cluster.join(0)
    while cluster.running:
        cluster.complete(0)
    assert [unit.fold for unit in cluster.done] == [-1, -1, 0, 0, 1, 1]


def test_what_a_lost_worker_had_left_goes_to_one_that_waits() -> None:
    machine = operator("group_task_parallel", UNITS[:2])
    assert machine.on(WorkerReady(0)) == (Load(0, 0), Run(0, UNITS[0]))
    assert machine.on(WorkerReady(1)) == ()
    assert machine.on(UnitDone(0, UNITS[0])) == (Run(0, UNITS[1]),)
    assert machine.on(WorkerLost(0)) == (Load(1, 0), Run(1, UNITS[1]))
    assert machine.on(UnitDone(1, UNITS[1])) == (Release(1, 0), Finish())
    assert machine.on(WorkerReady(2)) == ()


def test_no_units_finish_with_the_first_worker() -> None:
    assert operator("model_task_parallel", []).on(WorkerReady(0)) == (Finish(),)


def test_impossible_events_are_refused() -> None:
    machine = operator("model_task_parallel", UNITS)
    machine.on(WorkerReady(0))
    with pytest.raises(BrokenSchedule, match="worker 0 joined twice"):
        machine.on(WorkerReady(0))
    with pytest.raises(BrokenSchedule, match="worker 0 was not running unit 3"):
        machine.on(UnitDone(0, UNITS[3]))
    with pytest.raises(BrokenSchedule, match="worker 7 was not there to be lost"):
        machine.on(WorkerLost(7))
    with pytest.raises(BrokenSchedule, match="unit 0 was given twice"):
        operator("model_task_parallel", [UNITS[0], UNITS[0]])
