"""All operators under any order of events: the same models as one worker would make, whoever is lost on the way."""

import itertools
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from helpers.schedule_cases import rules_of, units_of
from helpers.schedule_cluster import Cluster, Rules, State, play
from helpers.thorough import enough
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.learners.contract.access import AccessName
from grouplearn.schedule.invariants import BrokenSchedule
from grouplearn.schedule.messages import (
    BlockRange,
    Discard,
    Dismiss,
    Finish,
    Load,
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
from grouplearn.schedule.operators import OPERATORS, OPTIONS, operator
from grouplearn.schedule.sharded.assignment import Assignment
from grouplearn.schedule.sharded.gap import Gap
from grouplearn.schedule.sharded.sharded_operator import ShardedOperator
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.unit_progress import Sequential
from grouplearn.schedule.task_parallel import GroupTask
from grouplearn.schedule.workload import Workload

BLOCK = 10
#: What others promise is in test_mop.py, test_rounds.py, test_pushes.py and test_descent.py: their order is not one worker's.
IN_ORDER = [name for name in OPERATORS if name not in ("mop", "averaging", "parameter_server", "coordinate_descent")]
PLACED = ["gap", "data_parallel", "switching"]
ACCESS: list[AccessName] = ["algebraic", "sequential", "sampling"]


@dataclass(frozen=True)
class Case:
    workload: Workload
    units: tuple[Unit, ...]
    seed: int
    stop: int

    def rules(self, **more: object) -> Rules:
        return rules_of(self.workload, self.stop, **more)

    def epochs(self, unit: Unit) -> int:
        return min(self.workload.epochs, self.stop + unit.id % 2 + 1)


@st.composite
def cases(draw: st.DrawFn, access: AccessName | None = None) -> Case:
    groups = draw(st.lists(st.sampled_from([0, 1, 9, 10, 11, 25, 60, 200]), min_size=1, max_size=6))
    packs = draw(st.lists(st.integers(0, 3), min_size=len(groups), max_size=len(groups)))
    beside = draw(st.booleans())
    rows, others = [*groups], ()
    if beside:
        rows, others = [*groups, 3, 4], (len(groups), len(groups) + 1)
    units = units_of(draw, packs, folds=2)
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
    for unit in case.units:
        result = cluster.results[unit.id]
        if isinstance(result, State):
            blocks = range(case.workload.blocks_of(unit))
            assert result.seen == tuple(itertools.product(range(case.epochs(unit)), blocks))


@pytest.mark.parametrize("name", IN_ORDER)
@settings(max_examples=enough(75, 15), deadline=None)
@given(case=cases())
def test_every_model_is_what_one_worker_would_make(name: str, case: Case) -> None:
    rules = case.rules(
        isolate_groups=name == "gap" and case.workload.group_isolation and case.workload.access == ACCESS[1]
    )
    cluster = Cluster(operator(name, case.units, case.workload), rules)
    models(case, play(cluster, case.seed, case.workload.workers))


@pytest.mark.parametrize("name", IN_ORDER)
@settings(max_examples=enough(75, 15), deadline=None)
@given(case=cases(), losses=st.integers(1, 6))
def test_every_model_is_the_same_whoever_is_lost(name: str, case: Case, losses: int) -> None:
    cluster = Cluster(operator(name, case.units, case.workload), case.rules())
    models(case, play(cluster, case.seed, case.workload.workers, losses))


@pytest.mark.parametrize("name", IN_ORDER)
@settings(max_examples=enough(37, 10), deadline=None)
@given(case=cases(), losses=st.integers(1, 6))
def test_where_products_are_kept_no_step_is_run_twice_but_what_was_in_flight(
    name: str, case: Case, losses: int
) -> None:
    """Gangs and whole units have no products: they begin again. Nor have sums that were to be merged on their way."""
    cluster = Cluster(operator(name, case.units, case.workload), case.rules())
    in_flight: list[Step] = []
    lose = cluster.lose

    def noted(worker: int, kept: bool = False, replaced: bool = False) -> None:
        what = cluster.running.get(worker)
        in_flight.extend([what] if isinstance(what, Step) else [])
        lose(worker, kept, replaced)

    cluster.lose = noted  # type: ignore[method-assign]
    play(cluster, case.seed, case.workload.workers, losses, kept=1.0)
    lost = {step.id for step in in_flight}
    ran = Counter(
        (step.unit.id, step.kind, step.epoch, step.blocks)
        for each in cluster.log
        if isinstance(each, RunStep)
        for step in (each.step,)
        if step.size == 1 and step.id not in lost
    )
    assert set(ran.values()) <= {1}


@pytest.mark.parametrize("name", IN_ORDER)
@settings(max_examples=enough(75, 15), deadline=None)
@given(case=cases(), leaves=st.integers(1, 6), losses=st.sampled_from([0, 2]), kept=st.sampled_from([0.0, 0.5, 1.0]))
def test_who_leaves_takes_nothing_along(name: str, case: Case, leaves: int, losses: int, kept: float) -> None:
    """Units are run once, where nobody is lost, and who is asked to leave goes."""
    cluster = Cluster(operator(name, case.units, case.workload), case.rules())
    models(case, play(cluster, case.seed, case.workload.workers, losses, kept, leaves))
    if not losses:
        ran = Counter(each.unit.id for each in cluster.log if isinstance(each, Run))
        assert set(ran.values()) <= {1}
        assert not cluster.leaving


def test_what_who_leaves_would_have_done_next_is_done_by_others() -> None:
    """Though nobody takes from others' lists."""
    units = [Unit(number, 0, (number,), cost=1.0) for number in range(3)]
    machine = Gap(units, Workload("algebraic", (5,), 2, 1, BLOCK), steal=False)
    orders = [order for worker in range(2) for order in machine.on(WorkerReady(worker))]
    (first,) = [order for order in orders if isinstance(order, Run)]
    assert machine.on(WorkerLeaving(first.worker)) == ()
    orders = [*machine.on(UnitDone(first.worker, first.unit))]
    assert Dismiss(first.worker) in orders
    ran = [order for order in orders if isinstance(order, Run)]
    assert [(order.worker, order.unit.id) for order in ran] == [(1 - first.worker, 1)]


def gang_of_two() -> tuple[Gap, list[RunStep]]:
    """Two units that two workers boost together, of which the first has begun."""
    machine = Gap([Unit(number, 0, (number,)) for number in range(2)], Workload("sampling", (40,), 2, 1, BLOCK))
    orders = [order for worker in range(2) for order in machine.on(WorkerReady(worker))]
    return machine, [order for order in orders if isinstance(order, RunStep)]


@pytest.mark.parametrize("killed", [False, True])
def test_a_gang_waits_for_who_comes_for_one_that_leaves_and_for_one_only(killed: bool) -> None:
    """Also where the one that leaves is lost before it has ended its step: then both begin again."""
    machine, steps = gang_of_two()
    assert [order.worker for order in steps] == [0, 1]
    assert machine.on(WorkerLeaving(0, replaced=True)) == ()
    if killed:
        ends = [*machine.on(WorkerLost(0, replaced=True)), *machine.on(StepDone(1, steps[1].step))]
    else:
        ends = [each for order in steps for each in machine.on(StepDone(order.worker, order.step))]
        assert Dismiss(0) in ends
    assert not any(isinstance(each, RunStep) for each in ends)
    begun = [each for each in machine.on(WorkerReady(2)) if isinstance(each, RunStep)]
    assert [(each.worker, each.step.unit.id) for each in begun] == [(2, 0 if killed else 1), (1, 0 if killed else 1)]


def test_who_leaves_twice_or_was_never_there_is_nonsense() -> None:
    for name in ("group_task_parallel", "gap"):
        machine = operator(name, [Unit(0, 0, (0,), cost=1.0)], Workload("algebraic", (20,), 1, 1, BLOCK))
        with pytest.raises(BrokenSchedule, match="worker 3 is not there to leave"):
            machine.on(WorkerLeaving(3))
        machine.on(WorkerReady(0))
        assert machine.on(WorkerLeaving(0)) == ()  # at its unit
        with pytest.raises(BrokenSchedule, match="worker 0 was asked to leave twice"):
            machine.on(WorkerLeaving(0))


@pytest.mark.parametrize("name", IN_ORDER)
@settings(max_examples=enough(15, 10), deadline=None)
@given(case=cases(), losses=st.integers(0, 4))
def test_equal_events_give_equal_instructions(name: str, case: Case, losses: int) -> None:
    logs = [
        play(
            Cluster(operator(name, case.units, case.workload), case.rules()), case.seed, case.workload.workers, losses
        ).log
        for _ in range(2)
    ]
    assert logs[0] == logs[1]


@pytest.mark.parametrize("name", PLACED)
@settings(max_examples=enough(37, 10), deadline=None)
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


@settings(max_examples=enough(50, 10), deadline=None)
@given(case=cases())
def test_no_row_is_copied_without_stealing(case: Case) -> None:
    cluster = Cluster(Gap(case.units, case.workload, steal=False), case.rules(shared_rows=False))
    models(case, play(cluster, case.seed, case.workload.workers))
    shards = {(each.worker, each.group, each.blocks) for each in cluster.log if isinstance(each, Load)}
    assert len(shards) == cluster.loads, "rows were loaded again"


@settings(max_examples=enough(50, 10), deadline=None)
@given(case=cases())
def test_only_split_groups_communicate(case: Case) -> None:
    cluster = play(Cluster(operator("gap", case.units, case.workload), case.rules()), case.seed, case.workload.workers)
    for each in cluster.log:
        if isinstance(each, RunStep):
            assert case.workload.blocks_of(each.step.unit) > 1
            assert not each.step.unit.others
    if case.workload.workers == 1:
        assert not any(isinstance(each, RunStep) for each in cluster.log)


@settings(max_examples=enough(50, 10), deadline=None)
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


@settings(max_examples=enough(25, 10), deadline=None)
@given(case=cases("algebraic"))
def test_data_parallel_is_eager_and_does_one_pack_at_a_time(case: Case) -> None:
    machine = operator("data_parallel", case.units, case.workload)
    cluster = play(Cluster(machine, case.rules()), case.seed, case.workload.workers)
    begun = [
        each.unit if isinstance(each, Run) else each.step.unit
        for each in cluster.log
        if isinstance(each, Run | RunStep)
    ]
    packs = [unit for unit, _ in itertools.groupby(begun)]
    assert len(set(packs)) == len(packs)
    assert [unit.group for unit in packs] == sorted(unit.group for unit in packs)
    assert all(
        len(each.step.takes) == 1
        for each in cluster.log
        if isinstance(each, RunStep) and each.step.kind == "accumulate"
    )


def ready(name: str, units: list[Unit], workload: Workload) -> Cluster:
    cluster = Cluster(operator(name, units, workload), Rules(workload.blocks_of, workload.epochs))
    for worker in range(workload.workers):
        cluster.join(worker)
    return cluster


def begun(cluster: Cluster) -> list[tuple[int, str, int, tuple[int, ...]]]:
    return [
        (each.worker, each.step.kind, each.step.epoch, each.step.takes)
        for each in cluster.log
        if isinstance(each, RunStep)
    ]


def test_sums_travel_and_the_last_worker_updates() -> None:
    units = [Unit(0, 0, (0,)), Unit(1, 0, (1,))]
    cluster = ready("gap", units, Workload("algebraic", (20,), 2, 1, BLOCK))
    for worker in (0, 0, 1, 1, 0, 1):
        cluster.complete(worker)
    assert begun(cluster) == [
        (0, "init", 0, ()),
        (1, "init", 0, ()),
        (0, "accumulate", 0, (0,)),
        (1, "accumulate", 0, (0, 2)),  # takes the sums that lie ready, and adds its own
        (0, "accumulate", 0, (1,)),  # the other pack, so that nobody is idle
        (1, "update", 0, (0, 3)),  # the last one updates
        (1, "accumulate", 0, (1, 4)),
        (0, "evaluate", 1, (5,)),  # the new state is taken by all
    ]
    assert Discard((2, 3)) in cluster.log


def test_states_hop_in_the_order_of_their_blocks() -> None:
    units = [Unit(number, 0, (number,)) for number in range(2)]
    workload = Workload("sequential", (60,), 3, 2, BLOCK, group_isolation=False)
    cluster = play(Cluster(operator("gap", units, workload), Rules(workload.blocks_of, 2, sequential=True)), 1, 3)
    trains = [each for each in cluster.log if isinstance(each, RunStep) and each.step.kind == "train"]
    hops = {unit.id: [(each.worker, each.step.blocks) for each in trains if each.step.unit == unit] for unit in units}
    assert hops[0] == hops[1] == [(0, BlockRange(0, 2)), (1, BlockRange(2, 4)), (2, BlockRange(4, 6))] * 2


def test_two_gangs_do_not_wait_for_each_other() -> None:
    units = [Unit(number, number, (0,)) for number in range(3)]
    workload = Workload("sampling", (30, 30, 30), 3, 1, BLOCK)
    cluster = ready("data_parallel", units, workload)
    assert len(cluster.running) == 3
    cluster = ready("gap", [*units, Unit(3, 3, (0,))], replace(workload, rows=(40, 40, 40, 1), workers=6))
    assert sorted(worker for worker, what in cluster.running.items() if isinstance(what, Step)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["data_parallel", "gap"])
@pytest.mark.parametrize("gone", [(1,), (2, 0), (0, 1, 2)])
def test_a_gang_forms_again_at_its_size(name: str, gone: tuple[int, ...]) -> None:
    """Where a member is lost, a runtime ends the others, too; and others come for all of them, one after the other."""
    cluster = ready(name, [Unit(0, 0, (0,))], Workload("sampling", (90,), 3, 1, BLOCK))
    begun = [step for step in cluster.running.values() if isinstance(step, Step)]
    assert [(step.rank, step.size) for step in begun] == [(0, 3), (1, 3), (2, 3)]
    for worker in gone:
        cluster.lose(worker, replaced=True)
    for worker in sorted(cluster.running):
        cluster.complete(worker)
    for worker in range(3, 3 + len(gone)):
        assert not cluster.running, "who is there waits for who is to come"
        cluster.join(worker)
    again = [step for step in cluster.running.values() if isinstance(step, Step)]
    assert sorted((step.rank, step.size, step.blocks) for step in again if step.blocks) == [
        (0, 3, BlockRange(0, 3)),
        (1, 3, BlockRange(3, 6)),
        (2, 3, BlockRange(6, 9)),
    ]


def test_workers_wait_for_a_gang_that_is_next_and_do_whole_units_before_one_that_is_not() -> None:
    # 7 of 9 blocks are of group 0: round(7 * 3 / 9) = 2 shards; the others stay whole.
    units = [Unit(0, 0, (0,)), Unit(1, 0, (1,)), Unit(2, 1, (0,)), Unit(3, 2, (0,))]
    cluster = ready("gap", units, Workload("sampling", (70, 10, 10), 3, 1, BLOCK))
    loads = [each for each in cluster.log if isinstance(each, Load)]
    assert sorted(loads, key=lambda load: load.worker) == [
        Load(0, 0, BlockRange(0, 3)),
        Load(1, 0, BlockRange(3, 7)),
        Load(2, 1),
    ]
    cluster.complete(0)
    assert 0 not in cluster.running, "waits for the other member: their next gang is the same"
    cluster.complete(1)
    assert {0, 1} <= set(cluster.running)


def test_a_lost_workers_sums_are_made_again_and_no_others() -> None:
    workload = Workload("algebraic", (40,), 4, 1, BLOCK)
    cluster = ready("gap", [Unit(0, 0, (0,))], workload)
    cluster.complete(0)  # init, on worker 0; then accumulates 1 to 4 on workers 0 to 3
    for worker in (1, 2, 3):
        cluster.complete(worker)
    before = len(cluster.log)
    cluster.lose(2)
    cluster.complete(0)
    again = [each for each in cluster.log[before:] if isinstance(each, Load | RunStep)]
    load, run = again
    assert load == Load(0, 0, BlockRange(2, 3)), "the heir is the lowest of those that hold fewest"
    assert isinstance(run, RunStep)
    assert (run.worker, run.step.kind, run.step.blocks) == (0, "accumulate", BlockRange(2, 3))
    assert run.step.takes == (0, 2, 4, 1)


def test_a_lost_state_sends_the_unit_back_to_the_last_one_made_elsewhere() -> None:
    workload = Workload("sequential", (30,), 3, 1, BLOCK, group_isolation=False)
    cluster = Cluster(operator("gap", [Unit(0, 0, (0,))], workload), Rules(workload.blocks_of, 1, sequential=True))
    for worker in range(3):
        cluster.join(worker)
    cluster.complete(0)  # init on 0
    cluster.complete(0)  # block 0 on 0
    cluster.complete(1)  # block 1 on 1
    cluster.lose(1)  # worker 2 had taken the state already, and goes on
    cluster.lose(2)  # now the state is lost: block 1 again, from the state of worker 0
    assert begun(cluster)[-1] == (0, "train", 0, (1,))
    while cluster.running:
        cluster.complete(0)
    assert cluster.results[0] == State(0, ((0, 0), (0, 1), (0, 2)), True)


def test_a_state_made_elsewhere_is_kept_while_one_worker_makes_several() -> None:
    unit, products = Unit(0, 0, (0,)), Products()
    course = Sequential(unit, {0: BlockRange(0, 2), 1: BlockRange(2, 4)}, 2, products)
    (ready,) = course.begin()
    for number, worker in enumerate((0, 0, 1, 0)):  # the first state; blocks 0 and 1, 2 and 3; 0 and 1 again
        assert ready.place == worker
        step = Step(number, unit, ready.kind, ready.epoch, ready.blocks, course.takes(ready))
        course.started(ready, step)
        products.made(step.id, worker)
        (ready,) = course.done(step, worker, ready.place, more=True)
    assert (ready.epoch, ready.blocks, course.takes(ready)) == (1, BlockRange(2, 4), (3,))
    products.lose(0)
    (ready,) = course.lost(None)
    assert (ready.epoch, ready.blocks, course.takes(ready)) == (1, BlockRange(0, 2), (2,))


def test_a_worker_whose_gang_is_not_next_for_all_does_something_else() -> None:
    units = [Unit(0, 0, (0,)), Unit(1, 1, (0,)), Unit(2, 2, (0,))]
    workload = Workload("sampling", (20, 20, 10), 3, 1, BLOCK)
    shards = {0: {0: BlockRange(0, 1), 1: BlockRange(1, 2)}, 1: {1: BlockRange(0, 1), 2: BlockRange(1, 2)}}
    cluster = Cluster(
        ShardedOperator(workload, Assignment([[], [], [GroupTask((units[2],))]], units[:2], shards)),
        Rules(workload.blocks_of),
    )
    for worker in range(3):
        cluster.join(worker)
    assert cluster.running[2] == units[2], "worker 1 is busy with the first gang"
    cluster.complete(0)
    cluster.complete(1)
    assert 1 not in cluster.running, "the second gang is next for all its members: worker 1 waits"
    cluster.complete(2)
    assert [what.unit for what in cluster.running.values() if isinstance(what, Step)] == [units[1]] * 2


def test_rows_are_never_copied_by_a_plan() -> None:
    unit = Unit(0, 0, (0,))
    shards = {0: {0: BlockRange(0, 1), 1: BlockRange(1, 2)}}
    jobs = Assignment([[GroupTask((replace(unit, id=1),))], []], [unit], shards)
    with pytest.raises(BrokenSchedule, match="both whole and split"):
        ShardedOperator(Workload("sampling", (20,), 2, 1, BLOCK), jobs)


def test_a_worker_without_work_takes_from_the_longest_list() -> None:
    # Worker 0 has group 0 (4 packs), worker 1 group 1, which is soon done.
    units = [*(Unit(number, 0, (number,), cost=3.0) for number in range(4)), Unit(4, 1, (0,), cost=1.0)]
    workload = Workload("algebraic", (10, 10), 2, 1, BLOCK)
    cluster = ready("gap", units, workload)
    cluster.complete(1)
    # Units 1 to 3 have not begun: the latter half goes.
    assert cluster.log[-3:] == [Release(1, 1), Load(1, 0), Run(1, units[2])]
    machine = Gap(units, workload, steal=False)
    machine.on(WorkerReady(0))
    machine.on(WorkerReady(1))
    assert machine.on(UnitDone(1, units[4])) == (Release(1, 1),)


def test_long_whole_units_make_way_for_steps_that_others_wait_for() -> None:
    # Group 0 is on workers 0 and 1; group 1 is whole, on worker 1, and takes longer than a pass over a shard of group 0.
    units = [Unit(0, 0, (0,), cost=27.0), Unit(1, 1, (0,), cost=9.0)]
    cluster = ready("gap", units, Workload("algebraic", (60, 20), 2, 3, BLOCK))
    kinds = [(each.step.unit.id, each.step.kind) for each in cluster.log if isinstance(each, RunStep)]
    assert kinds == [(0, "init"), (1, "init")]
    assert Load(1, 1) in cluster.log
    cluster.complete(0)
    cluster.complete(1)
    assert [what.unit.id for what in cluster.running.values() if isinstance(what, Step)] == [0, 0]


def test_impossible_events_are_refused() -> None:
    unit = Unit(0, 0, (0,))
    workload = Workload("algebraic", (20,), 2, 1, BLOCK)
    machine = operator("gap", [unit], workload)
    (run,) = machine.on(WorkerReady(0))
    assert isinstance(run, RunStep)
    with pytest.raises(BrokenSchedule, match="worker 0 joined twice"):
        machine.on(WorkerReady(0))
    with pytest.raises(BrokenSchedule, match="worker 0 was not running step 7"):
        machine.on(StepDone(0, replace(run.step, id=7)))
    with pytest.raises(BrokenSchedule, match="worker 0 was not running unit 0"):
        machine.on(UnitDone(0, unit))
    with pytest.raises(BrokenSchedule, match="worker 9 was not there to be lost"):
        machine.on(WorkerLost(9))
    with pytest.raises(BrokenSchedule, match="a unit was given twice"):
        operator("gap", [unit, unit], workload)
    with pytest.raises(BrokenSchedule, match="worker 0 was not running step 0"):
        operator("group_task_parallel", [unit], workload).on(StepDone(0, run.step))
    with pytest.raises(ValueError, match="at least one epoch, not 0"):
        Workload("algebraic", (20,), 2, 0, BLOCK)


@pytest.mark.parametrize("name", IN_ORDER)
def test_no_units_finish_with_the_first_worker(name: str) -> None:
    assert operator(name, [], Workload("algebraic", (), 2, 1, BLOCK)).on(WorkerReady(0)) == (Finish(),)


def test_the_operators_in_the_order_in_which_they_are_shown() -> None:
    assert [*OPERATORS] == [
        "group_task_parallel",
        "model_task_parallel",
        "gap",
        "mop",
        "averaging",
        "parameter_server",
        "coordinate_descent",
        "data_parallel",
        "switching",
    ]


def test_operators_that_name_an_option_alike_mean_the_same_one() -> None:
    declared = {(each.name, each) for operator in OPERATORS.values() for each in operator.options}
    assert len(declared) == len({name for name, _ in declared})


def test_what_an_operator_prepares_is_what_it_was_told() -> None:
    """Each option, at its default and otherwise, is found again in the workload, so that a manifest can be checked."""
    workload = Workload("sequential", (20,), 4, 1, BLOCK)
    told = {each: OPTIONS[each].default for each in OPTIONS} | {"partitions": 3}
    others = {"scheduler": "vector", "replicas": 2, "send": "gradient", "sync": 5, "reduce": "star", "staleness": 4}
    for options in (told, told | others | {"outer_momentum": 0.5}):
        for declared in OPERATORS.values():
            found = declared.prepared(declared.prepare(workload, options, 4))
            assert found == {name: options[name] for name in found}
