"""All operators under any order of events: the same models as one worker would make, whoever is lost on the way."""

import itertools
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_cluster import Cluster, Rules, State, play

from grouplearn.schedule.gap import Gap
from grouplearn.schedule.messages import (
    Blocks,
    Discard,
    Finish,
    Load,
    Release,
    Run,
    RunStep,
    Step,
    StepDone,
    Unit,
    UnitDone,
    WorkerLost,
    WorkerReady,
)
from grouplearn.schedule.operators import OPERATORS, operator
from grouplearn.schedule.partition import blocks_of
from grouplearn.schedule.promises import BrokenSchedule
from grouplearn.schedule.visiting import first_blocks
from grouplearn.schedule.workload import AccessPattern, Workload

BLOCK = 10
PLACED = ["gap", "data_parallel", "switching"]
ACCESS: list[AccessPattern] = ["algebraic", "sequential", "sampling"]


@dataclass(frozen=True)
class Case:
    workload: Workload
    units: tuple[Unit, ...]
    seed: int
    stop: int

    def rules(self, **more: object) -> Rules:
        workload = self.workload
        rules = Rules(
            blocks=lambda unit: workload.blocks_of(unit),
            epochs=workload.epochs,
            sequential=workload.access == "sequential",
            stops=lambda unit, epoch: epoch >= self.stop + unit.id % 2,
            evaluate_epochs=workload.evaluate_epochs,
        )
        return replace(rules, **more)

    def epochs(self, unit: Unit) -> int:
        return min(self.workload.epochs, self.stop + unit.id % 2 + 1)


@st.composite
def cases(draw: st.DrawFn, access: AccessPattern | None = None) -> Case:
    groups = draw(st.lists(st.sampled_from([0, 1, 9, 10, 11, 25, 60, 200]), min_size=1, max_size=6))
    packs = draw(st.lists(st.integers(0, 3), min_size=len(groups), max_size=len(groups)))
    beside = draw(st.booleans())
    homes = [group for group, number in enumerate(packs) for _ in range(number)]
    rows, others = [*groups], ()
    if beside:
        rows, others = [*groups, 3, 4], (len(groups), len(groups) + 1)
    units = tuple(
        Unit(number, group, (number,), draw(st.integers(-1, 1)), draw(st.sampled_from([0.0, 1.0, 5.0])))
        for number, group in enumerate(homes)
    )
    units = tuple(replace(unit, others=others) if unit.group == 0 else unit for unit in units)
    workload = Workload(
        access or draw(st.sampled_from(ACCESS)),
        tuple(rows),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 3)),
        BLOCK,
        draw(st.booleans()),
        draw(st.booleans()),
    )
    return Case(workload, units, draw(st.integers(0, 2**32)), draw(st.integers(0, 3)))


def models(case: Case, cluster: Cluster) -> None:
    """Every unit was done once, and each model has seen what it would have seen on one worker, in that order."""
    assert sorted(cluster.results) == [unit.id for unit in case.units]
    assert cluster.finishes == 1
    assert not cluster.products
    assert not any(cluster.loaded.values())
    first = first_blocks(case.units, case.workload.blocks_of)
    for unit in case.units:
        result = cluster.results[unit.id]
        if isinstance(result, State):
            blocks = range(case.workload.blocks_of(unit))
            start = first[unit.id] if case.workload.access == "sequential" else 0
            order = [*blocks[start:], *blocks[:start]]
            assert result.seen == tuple(itertools.product(range(case.epochs(unit)), order))


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=300, deadline=None)
@given(case=cases())
def test_every_model_is_what_one_worker_would_make(name: str, case: Case) -> None:
    rules = case.rules(isolate_groups=name == "gap" and case.workload.group_isolation and case.workload.access == ACCESS[1])
    cluster = Cluster(operator(name, case.units, case.workload), rules)
    models(case, play(cluster, case.seed, case.workload.workers))


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=300, deadline=None)
@given(case=cases(), losses=st.integers(1, 6))
def test_every_model_is_the_same_whoever_is_lost(name: str, case: Case, losses: int) -> None:
    cluster = Cluster(operator(name, case.units, case.workload), case.rules())
    models(case, play(cluster, case.seed, case.workload.workers, losses))


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=60, deadline=None)
@given(case=cases(), losses=st.integers(0, 4))
def test_equal_events_give_equal_instructions(name: str, case: Case, losses: int) -> None:
    logs = [
        play(Cluster(operator(name, case.units, case.workload), case.rules()), case.seed, case.workload.workers, losses).log
        for _ in range(2)
    ]
    assert logs[0] == logs[1]


@pytest.mark.parametrize("name", PLACED)
@settings(max_examples=150, deadline=None)
@given(case=cases(), bad=st.sets(st.integers(0, 12)), when=st.integers(0, 12), losses=st.integers(0, 2))
def test_a_unit_that_breaks_is_given_up_and_the_rest_goes_on(
    name: str, case: Case, bad: set[int], when: int, losses: int
) -> None:
    rules = case.rules(breaks=lambda step: step.unit.id in bad and step.id % 13 >= when)
    cluster = play(Cluster(operator(name, case.units, case.workload), rules), case.seed, case.workload.workers, losses)
    assert sorted({*cluster.results, *cluster.failed}) == [unit.id for unit in case.units]
    assert cluster.failed <= bad
    assert not cluster.products
    assert not any(cluster.loaded.values())


@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_no_row_is_copied_without_stealing(case: Case) -> None:
    cluster = Cluster(Gap(case.units, case.workload, steal=False), case.rules(shared_rows=False))
    models(case, play(cluster, case.seed, case.workload.workers))
    shards = {(each.worker, each.group, each.blocks) for each in cluster.log if isinstance(each, Load)}
    assert len(shards) == cluster.loads, "rows were loaded again"


@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_only_split_groups_communicate(case: Case) -> None:
    cluster = play(
        Cluster(operator("gap", case.units, case.workload), case.rules()), case.seed, case.workload.workers
    )
    for each in cluster.log:
        if isinstance(each, RunStep):
            assert case.workload.blocks_of(each.step.unit) > 1
            assert not each.step.unit.others
    if case.workload.workers == 1:
        assert not any(isinstance(each, RunStep) for each in cluster.log)


@settings(max_examples=200, deadline=None)
@given(case=cases("algebraic"))
def test_without_losses_nothing_is_done_twice(case: Case) -> None:
    for name in PLACED:
        cluster = play(
            Cluster(operator(name, case.units, case.workload), case.rules()), case.seed, case.workload.workers
        )
        steps = [each.step for each in cluster.log if isinstance(each, RunStep)]
        visits = [(step.unit.id, step.kind, step.epoch, step.blocks) for step in steps]
        assert len(set(visits)) == len(visits)
        assert [step.id for step in steps] == list(range(len(steps)))


@settings(max_examples=100, deadline=None)
@given(case=cases("algebraic"))
def test_data_parallel_is_eager_and_does_one_pack_at_a_time(case: Case) -> None:
    machine = operator("data_parallel", case.units, case.workload)
    cluster = play(Cluster(machine, case.rules()), case.seed, case.workload.workers)
    begun = [each.unit if isinstance(each, Run) else each.step.unit for each in cluster.log if isinstance(each, Run | RunStep)]
    packs = [unit for unit, _ in itertools.groupby(begun)]
    assert len(set(packs)) == len(packs)
    assert [unit.group for unit in packs] == sorted(unit.group for unit in packs)
    assert all(len(each.step.takes) == 1 for each in cluster.log if isinstance(each, RunStep) and each.step.kind == "accumulate")


def ready(name: str, units: list[Unit], workload: Workload) -> Cluster:
    cluster = Cluster(operator(name, units, workload), Rules(workload.blocks_of, workload.epochs))
    for worker in range(workload.workers):
        cluster.join(worker)
    return cluster


def begun(cluster: Cluster) -> list[tuple[int, str, int, tuple[int, ...]]]:
    return [
        (each.worker, each.step.kind, each.step.epoch, each.step.takes) for each in cluster.log if isinstance(each, RunStep)
    ]


def test_sums_travel_and_the_last_worker_updates() -> None:
    unit = Unit(0, 0, (0,))
    cluster = ready("gap", [unit], Workload("algebraic", (30,), 3, 1, BLOCK))
    assert begun(cluster) == [(0, "init", 0, ())]
    cluster.complete(0)
    for worker in (1, 0, 2):
        cluster.complete(worker)
    for worker in (2, 0, 1):
        cluster.complete(worker)
    assert begun(cluster)[1:] == [
        *((worker, "accumulate", 0, (0,)) for worker in range(3)),
        (2, "update", 0, (0, 2, 1, 3)),
    ] or begun(cluster)
