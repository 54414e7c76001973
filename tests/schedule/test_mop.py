"""Model hopper parallelism: its four invariants under any order of events, its schedulers, its memory of what it did."""

import itertools
from collections import defaultdict
from dataclasses import dataclass, replace

import pytest
from helpers.schedule_cases import rules_of, units_of
from helpers.schedule_cluster import Cluster, Rules, State, play
from helpers.thorough import enough
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.runtime.simulated import simulate
from grouplearn.schedule.invariants import BrokenSchedule
from grouplearn.schedule.messages import BlockRange, Load, RunStep, Step, StepDone, Unit, WorkerReady
from grouplearn.schedule.mop.hopper import Mop
from grouplearn.schedule.mop.open_shop import planned
from grouplearn.schedule.sharded.placement import Placement
from grouplearn.schedule.workload import Hops, Scheduler, Workload

BLOCK = 10


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

    def played(self, losses: int = 0, leaves: int = 0, **more: object) -> Cluster:
        cluster = Cluster(Mop(self.units, self.workload), self.rules(**more))
        return play(cluster, self.seed, self.workload.workers, losses, leaves=leaves)


@st.composite
def cases(draw: st.DrawFn, schedulers: tuple[str, ...] = ("randomized", "vector")) -> Case:
    groups = draw(st.lists(st.sampled_from([0, 1, 9, 11, 25, 60, 200, 400]), min_size=1, max_size=4))
    packs = draw(st.lists(st.integers(0, 4), min_size=len(groups), max_size=len(groups)))
    units = units_of(draw, packs)
    if draw(st.booleans()):
        groups, others = [*groups, 3], (len(groups),)
        units = tuple(replace(unit, others=others) if unit.group == 0 else unit for unit in units)
    hops = Hops(draw(st.sampled_from(schedulers)), draw(st.integers(0, 9)), draw(st.integers(1, 3)))
    workload = Workload(
        "sequential",
        tuple(groups),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 3)),
        BLOCK,
        evaluate_epochs=draw(st.booleans()),
        hops=hops,
    )
    return Case(workload, units, draw(st.integers(0, 2**32)), draw(st.integers(0, 3)))


def trained(case: Case, cluster: Cluster) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return what every split unit has seen, after checking that it was every block once in every epoch."""
    assert sorted(cluster.results) == [unit.id for unit in case.units]
    assert not cluster.products
    assert not any(cluster.loaded.values())
    seen = {}
    for unit in case.units:
        result = cluster.results[unit.id]
        if not isinstance(result, State):
            continue
        blocks = case.workload.blocks_of(unit)
        epochs = [list(part) for _, part in itertools.groupby(result.seen, key=lambda visit: visit[0])]
        assert [part[0][0] for part in epochs] == list(range(case.epochs(unit)))
        assert all(sorted(block for _, block in part) == list(range(blocks)) for part in epochs), "completeness"
        seen[unit.id] = result.seen
    return seen


# Cluster itself complains when a pack trains in two places at a time, a worker does two things at a time, rows are not
# loaded, or a product is taken that does not exist; it runs what has begun to its end unless its worker is lost.


@settings(max_examples=enough(500, 100), deadline=None)
@given(case=cases())
def test_the_four_invariants(case: Case) -> None:
    trained(case, case.played())


@settings(max_examples=enough(500, 100), deadline=None)
@given(case=cases(), losses=st.integers(1, 8))
def test_the_four_invariants_whoever_is_lost_or_joins(case: Case, losses: int) -> None:
    trained(case, case.played(losses))


@settings(max_examples=enough(150, 30), deadline=None)
@given(case=cases(), leaves=st.integers(1, 6), losses=st.sampled_from([0, 2]))
def test_who_leaves_takes_nothing_along(case: Case, leaves: int, losses: int) -> None:
    trained(case, case.played(losses, leaves))


@settings(max_examples=enough(25, 10), deadline=None)
@given(case=cases(("exact",)), losses=st.integers(0, 3))
def test_the_exact_plan_can_be_followed_too(case: Case, losses: int) -> None:
    small = replace(case, units=case.units[:4], workload=replace(case.workload, workers=min(3, case.workload.workers)))
    trained(small, small.played(losses))


@settings(max_examples=enough(75, 15), deadline=None)
@given(case=cases(), losses=st.integers(0, 4))
def test_equal_events_give_equal_instructions(case: Case, losses: int) -> None:
    assert case.played(losses).log == case.played(losses).log


@settings(max_examples=enough(75, 15), deadline=None)
@given(case=cases(), bad=st.sets(st.integers(0, 12)), when=st.integers(0, 12), losses=st.integers(0, 2))
def test_a_unit_that_breaks_is_given_up_and_the_rest_goes_on(case: Case, bad: set[int], when: int, losses: int) -> None:
    cluster = case.played(losses, breaks=lambda step: step.unit.id in bad and step.id % 13 >= when)
    assert sorted({*cluster.results, *cluster.failed}) == [unit.id for unit in case.units]
    assert cluster.failed <= bad
    assert not cluster.products
    assert not any(cluster.loaded.values())


def recorded(cluster: Cluster) -> dict[int, dict[int, tuple[BlockRange, ...]]]:
    """Return the visits that made the models, one block each."""
    found: dict[int, dict[int, list[BlockRange]]] = defaultdict(lambda: defaultdict(list))
    for unit, result in cluster.results.items():
        for epoch, block in result.seen if isinstance(result, State) else ():
            found[unit][epoch].append(BlockRange(block, block + 1))
    return {unit: {epoch: tuple(runs) for epoch, runs in epochs.items()} for unit, epochs in found.items()}


@settings(max_examples=enough(125, 25), deadline=None)
@given(case=cases(), workers=st.integers(1, 6), losses=st.integers(0, 3), again=st.integers(0, 3))
def test_recorded_visits_are_repeated_on_any_number_of_workers(
    case: Case, workers: int, losses: int, again: int
) -> None:
    first = case.played(losses)
    hops = replace(case.workload.hops, recorded=recorded(first))
    repeated = replace(case, workload=replace(case.workload, workers=workers, hops=hops), seed=case.seed + 1)
    before, after = trained(case, first), trained(repeated, repeated.played(again))
    for unit in case.units:
        alone = tuple(itertools.product(range(case.epochs(unit)), range(case.workload.blocks_of(unit))))
        # A unit that stayed whole is one that visits its blocks in order.
        assert after.get(unit.id, alone) == before.get(unit.id, alone)


@settings(max_examples=enough(75, 15), deadline=None)
@given(
    costs=st.lists(st.floats(0.1, 9), min_size=1, max_size=12),
    workers=st.integers(2, 6),
    scheduler=st.sampled_from(["randomized", "vector"]),
    seed=st.integers(0, 99),
)
def test_nobody_is_idle_for_long(costs: list[float], workers: int, scheduler: str, seed: int) -> None:
    """In one epoch C <= L_max + (p - 1) T_max, and the evaluation after it takes a third of that at most."""
    units = [Unit(number, 0, (number,), cost=4 / 3 * cost * workers) for number, cost in enumerate(costs)]
    workload = Workload("sequential", (workers * BLOCK,), workers, 1, BLOCK, hops=Hops(scheduler, seed))
    timeline = simulate(Mop(units, workload), workers, lambda _: 0.0)
    hops = [each for each in timeline.intervals if each.kind == "train"]
    assert len(hops) == workers * len(costs)
    assert timeline.makespan <= 4 / 3 * (sum(costs) + (workers - 1) * max(costs)) + 1e-6


def test_units_hop_and_no_row_moves() -> None:
    units = [Unit(number, 0, (number,), cost=1.0 + number) for number in range(5)]
    workload = Workload("sequential", (60,), 3, 4, BLOCK)
    cluster = play(Cluster(Mop(units, workload), Rules(workload.blocks_of, 4, sequential=True)), 1, 3)
    loads = [each for each in cluster.log if isinstance(each, Load)]
    assert sorted(loads, key=lambda load: load.worker) == [Load(w, 0, BlockRange(2 * w, 2 * w + 2)) for w in range(3)]
    orders = {
        tuple(
            each.worker
            for each in cluster.log
            if isinstance(each, RunStep) and each.step.kind == "train" and (each.step.unit, each.step.epoch) == key
        )
        for key in itertools.product(units, range(4))
    }
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert len(orders) > 3, "the order is drawn"


def test_there_is_no_barrier_but_a_units_own() -> None:
    units = [Unit(0, 0, (0,), cost=1.0), *(Unit(number, 0, (number,), cost=9.0) for number in range(1, 4))]
    workload = Workload("sequential", (20,), 2, 3, BLOCK)
    hops = [each for each in simulate(Mop(units, workload), 2, lambda _: 0.0).intervals if each.kind == "train"]
    ended = max(each.end for each in hops if each.epoch == 0)
    assert min(each.start for each in hops if each.epoch == 1) < ended, "some are in the next epoch already"


def test_seeds_draw_other_orders() -> None:
    def order(seed: int) -> list[tuple[int, int, int]]:
        units = [Unit(number, 0, (number,), cost=1.0) for number in range(6)]
        workload = Workload("sequential", (40,), 4, 2, BLOCK, hops=Hops(seed=seed))
        intervals = simulate(Mop(units, workload), 4, lambda _: 0.0).intervals
        return [(each.unit.id, each.worker, each.epoch) for each in intervals if each.kind == "train"]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_a_lost_sub_epoch_runs_again_from_the_last_state_elsewhere_and_no_more() -> None:
    workload = Workload("sequential", (30,), 3, 1, BLOCK)
    cluster = Cluster(Mop([Unit(0, 0, (0,))], workload), Rules(workload.blocks_of, 1, sequential=True))
    for worker in range(3):
        cluster.join(worker)
    while not any(isinstance(what, Step) and what.kind == "train" for what in cluster.running.values()):
        cluster.complete(next(iter(cluster.running)))
    first = next(iter(cluster.running))
    cluster.complete(first)  # one sub-epoch is done
    (second,) = cluster.running
    lost = cluster.running[second]
    assert isinstance(lost, Step)
    cluster.lose(second)
    (heir,) = cluster.running
    again = cluster.running[heir]
    assert isinstance(again, Step)
    assert heir != second
    assert again.takes == lost.takes, "from the state that the first worker holds"
    while cluster.running:
        cluster.complete(next(iter(cluster.running)))
    trains = [each.step for each in cluster.log if isinstance(each, RunStep) and each.step.kind == "train"]
    assert len(trains) == 4, "three sub-epochs, and the lost one again"


def test_a_late_worker_helps_with_a_replica() -> None:
    units = [Unit(number, 0, (number,), cost=1.0) for number in range(8)]
    workload = Workload("sequential", (20,), 2, 5, BLOCK)
    cluster = Cluster(Mop(units, workload), Rules(workload.blocks_of, 5, sequential=True))
    for worker in range(2):
        cluster.join(worker)
    for _ in range(20):
        cluster.complete(next(iter(cluster.running)))
    cluster.join(2)
    assert 2 in cluster.running, "there is no place left for it, so it has a copy of one"


def test_replicas_are_visited_where_a_worker_is_free() -> None:
    units = [Unit(number, 0, (number,), cost=5.0 if number else 20.0) for number in range(4)]
    one, two = (
        simulate(
            Mop(units, Workload("sequential", (40,), 4, 3, BLOCK, hops=Hops(replicas=count))), 4, lambda _: 0.0
        ).makespan
        for count in (1, 2)
    )
    assert two <= one
    placement = Placement(3, replicas=2)
    for worker in range(4):
        placement.join(worker)
    assert [placement.reach(worker) for worker in range(4)] == [[0, 1], [1, 2], [2, 0], [0]]
    assert [sorted(placement.near(place)) for place in range(3)] == [[0, 2, 3], [0, 1], [1, 2]]


def test_a_broken_promise_stops_the_run() -> None:
    machine = Mop([Unit(0, 0, (0,))], Workload("sequential", (20,), 2, 1, BLOCK))
    (run,) = machine.on(WorkerReady(0))
    assert isinstance(run, RunStep)
    with pytest.raises(BrokenSchedule, match="worker 0 joined twice"):
        machine.on(WorkerReady(0))
    with pytest.raises(BrokenSchedule, match="worker 0 was not running step 7"):
        machine.on(StepDone(0, replace(run.step, id=7)))
    with pytest.raises(ValueError, match="only sequential learners hop, not algebraic ones"):
        Mop([], Workload("algebraic", (), 2, 1, BLOCK))


@pytest.mark.parametrize("scheduler", ["vector", "exact"])
def test_plans_are_followed_at_every_shard(scheduler: Scheduler) -> None:
    units = [Unit(number, 0, (number,), cost=1.0 + number % 3) for number in range(5)]
    workload = Workload("sequential", (30,), 3, 2, BLOCK, hops=Hops(scheduler))
    seconds = {(unit.id, place): workload.cost(unit, "train", BlockRange(0, 1)) for unit in units for place in range(3)}
    plan = planned(scheduler, seconds)
    timeline = simulate(Mop(units, workload), 3, lambda _: 0.0)
    for place in range(3):
        came = [each.unit.id for each in timeline.intervals if (each.kind, each.worker) == ("train", place)]
        assert came == [unit for unit, where in plan if where == place] * 2
