"""A parameter server under any order of events: every push once and on the model that it says, nobody too far ahead."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from helpers.schedule_cases import rules_of, units_of
from helpers.schedule_cluster import Cluster, Product, play
from helpers.thorough import enough
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grouplearn.runtime.simulated import Costs, Timeline, simulate
from grouplearn.schedule.averages import Averages
from grouplearn.schedule.invariants import BrokenSchedule
from grouplearn.schedule.messages import Part, Push, RunStep, Step, StepDone, Unit, WorkerReady
from grouplearn.schedule.rounds.averaging import Averaging
from grouplearn.schedule.rounds.parameter_server import ParameterServer
from grouplearn.schedule.rounds.push_progress import MOST_PARTS
from grouplearn.schedule.workload import Workload

BLOCK = 10


@dataclass(frozen=True)
class Made:
    """What a step makes in these tests: a model or a part of one that has seen ``pushes``, or a push of ``partition``."""

    kind: str
    pushes: tuple[Push, ...] = ()
    partition: int = -1
    part: Part | None = None


@dataclass
class Servers(Cluster):
    """Workers that complain when a step does not take what it should."""

    orders: dict[int, tuple[Push, ...]] = field(default_factory=dict)

    def work(self, worker: int, step: Step, taken: tuple[Any, ...]) -> bool:
        if self.partitions(step.unit) < 2:  # a whole group that goes by epochs
            return super().work(worker, step, taken)
        unit, rounds = step.unit, self.rounds
        parts, more = min(self.partitions(unit), MOST_PARTS), True
        match step.kind:
            case "init":
                assert not taken
                made = Made("model")
            case "work":
                assert step.partition is not None
                pulled, own = self.model(taken, parts), step.partition.number
                clocks = self.clocks(pulled, unit)
                assert clocks[own] == step.epoch * rounds + step.stretch.number, "not all of its own pushes"
                if not self.machine._workload.pushes:  # type: ignore[attr-defined]
                    assert min(clocks) >= clocks[own] - self.staleness, "too far ahead"
                made = Made("pushed", pulled, own)
            case "push":
                *pushed, before = taken
                assert before == (Made("part", before.pushes, -1, step.piece) if before.pushes else Made("model"))
                assert len({each.partition for each in pushed}) == len(pushed) > 0
                seen = tuple(Push(each.partition, len(each.pushes)) for each in pushed)
                assert all(each.pushes == before.pushes[: len(each.pushes)] for each in pushed), "of another model"
                made = Made("part", (*before.pushes, *seen), -1, step.piece)
                over = min(self.clocks(made.pushes, unit)) // rounds
                ends = over > min(self.clocks(before.pushes, unit)) // rounds and self.rules.stops(unit, over - 1)
                more = step.piece != Part(0, parts) or not ends
            case "evaluate":
                self.model(taken, parts)
                made = Made("sums")
            case "finish":
                count = self.partitions(unit)
                assert [each.kind for each in taken[-count:]] == ["sums"] * count
                assert self.model(taken[:-count], parts) == step.pushes
                self.orders[unit.id] = step.pushes
                self.close(unit, "done")
                return True
        assert step.id not in self.products
        self.products[step.id] = Product(worker, made)  # type: ignore[arg-type]
        return more

    @property
    def averages(self) -> Averages:
        return self.machine._workload.averages  # type: ignore[attr-defined, no-any-return]

    @property
    def staleness(self) -> int:
        return self.averages.staleness

    @property
    def rounds(self) -> int:
        return 1

    def partitions(self, unit: Unit) -> int:
        return min(self.averages.partitions, self.rules.blocks(unit))

    def clocks(self, pushes: tuple[Push, ...], unit: Unit) -> list[int]:
        counts = [0] * self.partitions(unit)
        for push in pushes:
            counts[push.partition] += 1
        return counts

    def model(self, taken: tuple[Any, ...], parts: int) -> tuple[Push, ...]:
        if taken == (Made("model"),):
            return ()
        assert [each.part for each in taken] == [Part(number, parts) for number in range(parts)], "not all parts"
        assert len({each.pushes for each in taken}) == 1, "parts of different models"
        found: tuple[Push, ...] = taken[0].pushes
        return found


@dataclass(frozen=True)
class Case:
    workload: Workload
    units: tuple[Unit, ...]
    seed: int
    stop: int

    def played(self, losses: int = 0, kept: float = 0.5, leaves: int = 0, **more: Any) -> Servers:
        cluster = Servers(ParameterServer(self.units, self.workload), rules_of(self.workload, self.stop, **more))
        play(cluster, self.seed, self.workload.workers, losses, kept, leaves)
        return cluster


@st.composite
def cases(draw: st.DrawFn) -> Case:
    groups = draw(st.lists(st.sampled_from([0, 9, 25, 60, 200]), min_size=1, max_size=3))
    packs = draw(st.lists(st.integers(0, 3), min_size=len(groups), max_size=len(groups)))
    units = units_of(draw, packs)
    averages = Averages(draw(st.integers(1, 9)), staleness=draw(st.integers(1, 3)))
    workers, epochs = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    workload = Workload("sequential", tuple(groups), workers, epochs, BLOCK, averages=averages)
    return Case(workload, units, draw(st.integers(0, 2**32)), draw(st.integers(1, 6)))


def checked(case: Case, cluster: Servers) -> None:
    assert sorted(cluster.results) == [unit.id for unit in case.units]
    assert cluster.finishes == 1
    assert not cluster.products
    assert not any(cluster.loaded.values())
    for unit in case.units:
        if cluster.partitions(unit) < 2:
            continue
        clocks, epochs = (
            cluster.clocks(cluster.orders[unit.id], unit),
            min(case.workload.epochs, case.stop + unit.id % 2 + 1),
        )
        assert min(clocks) == epochs
        assert max(clocks) <= min(case.workload.epochs, epochs + cluster.staleness)


@settings(max_examples=enough(200, 40), deadline=None)
@given(case=cases())
def test_everything_is_pushed_once_and_by_nobody_too_far_ahead(case: Case) -> None:
    checked(case, case.played())


@settings(max_examples=enough(400, 80), deadline=None)
@given(case=cases(), losses=st.integers(1, 8), kept=st.sampled_from([0.0, 0.5, 1.0]))
def test_everything_is_pushed_once_whoever_is_lost_or_joins(case: Case, losses: int, kept: float) -> None:
    checked(case, case.played(losses, kept))


@settings(max_examples=enough(150, 30), deadline=None)
@given(case=cases(), leaves=st.integers(1, 6), losses=st.sampled_from([0, 2]), kept=st.sampled_from([0.0, 0.5, 1.0]))
def test_who_leaves_takes_nothing_along(case: Case, leaves: int, losses: int, kept: float) -> None:
    checked(case, case.played(losses, kept, leaves))


#: The push that ends the training of unit 0 is applied together with one that comes after it.
ENDS_EARLY = Case(
    Workload("sequential", (60, 0), 6, 3, BLOCK, averages=Averages(6, staleness=1)),
    (*(Unit(number, 0, (number,), 0) for number in (0, 1)), Unit(2, 1, (2,), 0)),
    seed=5902,
    stop=1,
)


@settings(max_examples=enough(200, 40), deadline=None)
@example(case=ENDS_EARLY, losses=0, workers=2, seed=1, kept=0.0)
@given(case=cases(), losses=st.integers(0, 6), workers=st.integers(1, 7), seed=st.integers(0, 99), kept=st.floats(0, 1))
def test_a_recorded_order_is_repeated_on_any_workers(
    case: Case, losses: int, workers: int, seed: int, kept: float
) -> None:
    orders = case.played().orders
    again = replace(case, workload=replace(case.workload, workers=workers, pushes=orders), seed=seed)
    assert again.played(losses, kept).orders == orders


@settings(max_examples=enough(100, 20), deadline=None)
@given(case=cases(), losses=st.integers(1, 6))
def test_where_products_are_kept_no_step_is_run_twice_but_what_was_in_flight(case: Case, losses: int) -> None:
    cluster = case.played(losses, kept=1.0)
    steps = [each.step for each in cluster.log if isinstance(each, RunStep)]
    keys = [
        (
            step.unit.id,
            step.kind,
            step.partition,
            step.piece,
            step.epoch,
            step.blocks,
            step.takes if step.kind == "push" else (),
        )
        for step in steps
    ]
    assert len(keys) - len(set(keys)) <= losses


@settings(max_examples=enough(50, 15), deadline=None)
@given(case=cases(), losses=st.integers(0, 4))
def test_equal_events_give_equal_instructions(case: Case, losses: int) -> None:
    assert case.played(losses).log == case.played(losses).log


@settings(max_examples=enough(50, 15), deadline=None)
@given(case=cases(), bad=st.sets(st.integers(0, 9)), when=st.integers(0, 12), losses=st.integers(0, 2))
def test_a_unit_that_breaks_is_given_up_and_the_rest_goes_on(case: Case, bad: set[int], when: int, losses: int) -> None:
    cluster = case.played(losses, breaks=lambda step: step.unit.id in bad and step.id % 13 >= when)
    assert sorted({*cluster.results, *cluster.failed}) == [unit.id for unit in case.units]
    assert cluster.failed <= bad
    assert not cluster.products


def machine(staleness: int, workers: int = 4, epochs: int = 12, cost: float = 1.0, **more: Any) -> ParameterServer:
    averages = Averages(workers, staleness=staleness)
    work = Workload("sequential", (BLOCK * workers,), workers, epochs, BLOCK, averages=averages, **more)
    return ParameterServer([Unit(0, 0, (0,), cost=cost)], work)


def test_a_partition_goes_on_from_its_own_push_until_it_is_too_far_ahead() -> None:
    operator = machine(2, workers=2)
    orders = [order for worker in range(2) for order in operator.on(WorkerReady(worker))]
    (init,) = [order.step for order in orders if isinstance(order, RunStep)]
    orders = list(operator.on(StepDone(0, init)))
    kinds = []
    for _ in range(20):
        mine = next((order.step for order in orders if isinstance(order, RunStep) and order.worker == 0), None)
        if mine is None:
            break
        kinds.append((mine.kind, mine.epoch))
        orders = list(operator.on(StepDone(0, mine)))
    works = [epoch for kind, epoch in kinds if kind == "work"]
    assert works == [0, 1, 2], "three clocks while the other one has pushed none"
    assert [kind for kind, _ in kinds] == ["work", "push", "push"] * 3


def test_pushes_that_are_of_other_partitions_are_not_repeated() -> None:
    with pytest.raises(BrokenSchedule, match="the pushes to repeat are not of the partitions that unit 0 has"):
        machine(1, pushes={0: (Push(7, 0),)})


def test_staleness_0_is_what_averaging_does() -> None:
    averages = Averages(4, staleness=0)
    work = Workload("sequential", (40,), 4, 3, BLOCK, averages=averages)
    case = Case(work, (Unit(0, 0, (0,), cost=1.0),), 1, 9)
    units = list(case.units)
    costs = Costs(state_bytes=lambda _: 1000.0, bandwidth=1e6)
    one, other = (simulate(made(units, work), 4, lambda _: 0.0, costs=costs) for made in (ParameterServer, Averaging))
    assert one == other


def straggling(staleness: int, slow: Any, workers: int = 8, epochs: int = 40) -> Timeline:
    """Simulate clocks of a second, three times as long where ``slow(worker, epoch)``, with models of a tenth of a second."""
    costs = Costs(
        state_bytes=lambda _: 1e5,
        bandwidth=1e6,
        latency=1e-3,
        pace=lambda worker, step: 3.0 if step.kind == "work" and slow(worker, step.epoch) else 1.0,
    )
    evaluated = 1 / 3
    operator = machine(staleness, workers, epochs, cost=workers * (epochs + evaluated))
    return simulate(operator, workers, lambda _: 0.0, costs=costs)


def test_one_slow_worker_after_the_other_costs_less_with_a_staleness() -> None:
    """In every clock another worker is slow: all wait for it where nobody may go on, and later ones make up for it otherwise."""
    spans = {
        stale: straggling(stale, lambda worker, epoch: (worker * 5 + epoch) % 8 == 0).makespan for stale in (0, 2, 4)
    }
    assert spans[0] > 3 * 40, "three seconds a clock"
    assert spans[2] < 0.5 * spans[0]
    assert spans[4] < spans[2]
    for stale in (0, 2):
        intervals = straggling(stale, lambda worker, epoch: (worker * 5 + epoch) % 8 == 0).intervals
        works: defaultdict[int, int] = defaultdict(int)
        for each in intervals:
            works[each.worker] += each.kind == "work"
        assert set(works.values()) == {40}


def test_a_worker_that_is_always_slow_is_what_all_wait_for_in_the_end() -> None:
    """Its own clocks take as long as they do: a staleness spares nothing but what it waits for the others at barriers."""
    spans = {stale: straggling(stale, lambda worker, _: worker == 0).makespan for stale in (0, 2)}
    assert 0.9 * spans[0] < spans[2] < spans[0]


def test_a_push_moves_two_models_at_most_however_many_workers_there_are() -> None:
    """Who pushes takes the parts that others have pushed to, and goes on from what it has made of them."""
    for workers in (4, 8):
        found = straggling(2, lambda worker, epoch: (worker * 3 + epoch) % 5 == 0, workers)
        clocks = workers * 40
        assert 1.0 < found.network_bytes / 1e5 / clocks < 2.0


@pytest.mark.thorough
def test_a_thousand_workers_and_twenty_clocks() -> None:
    work = Workload("sequential", (1_000_000,), 1000, 20, 1000, averages=Averages(1000, staleness=2))
    operator = ParameterServer([Unit(0, 0, (0,), cost=20_000.0)], work)
    costs = Costs(
        state_bytes=lambda _: 8e6,
        bandwidth=1.25e9,
        latency=1e-4,
        pace=lambda worker, step: 1 + (worker + step.epoch) % 7 / 10,
    )
    timeline = simulate(operator, 1000, lambda _: 0.0, costs=costs)
    assert sum(each.kind == "work" for each in timeline.intervals) == 20_000
