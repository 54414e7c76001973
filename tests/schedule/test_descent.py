"""Rounds of coordinate descent under any order of events: every cell once in every round, and all parts of one model."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from helpers.schedule_cases import rules_of, units_of
from helpers.schedule_cluster import Cluster, Product, play
from helpers.thorough import enough
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.runtime.simulated import Costs, Timeline, simulate
from grouplearn.schedule.messages import BlockRange, EpochRound, RunStep, Step, StepDone, Unit, WorkerLost, WorkerReady
from grouplearn.schedule.rounds.cells import MOST_CELLS, cell_length, cells_of, work_items
from grouplearn.schedule.rounds.coordinate_descent import CoordinateDescent
from grouplearn.schedule.workload import Workload

BLOCK = 10


@dataclass(frozen=True)
class Made:
    """What a step makes in these tests: after how many epochs, of which round or partition, and which part."""

    kind: str
    epochs: int
    round: int = 0
    number: int = 0


@dataclass
class Descenders(Cluster):
    """Workers that complain when a step does not take what a round says; an epoch has as many ``rounds`` as rows decide."""

    rounds: int = 3

    def work(self, worker: int, step: Step, taken: tuple[Any, ...]) -> bool:
        unit, made, more = step.unit, Made(step.kind, step.epoch), True
        model, others = self.model(step, taken) if step.round else ((), taken)
        match step.kind:
            case "init":
                assert not taken
                made = Made("state", 0)
            case "work":
                assert not others
                assert step.partition is not None
                assert step.round is not None
                made = Made("work", step.epoch, step.round.number, step.partition.number)
            case "reduce":
                assert step.round is not None
                assert step.piece is not None
                self.check_all("work", step, others, step.round.number)
                more = step.round.number + 1 < self.rounds
                made = Made("part", step.epoch, step.round.number, step.piece.number)
            case "judge" | "update":
                assert step.round is not None
                assert step.round.number == self.rounds, "not the end of an epoch"
                assert (step.kind == "update" and self.rules.evaluate_epochs) == bool(others)
                if others:
                    self.check_all("judge", step, others, 0)
                number = 0 if step.partition is None else step.partition.number
                made = Made("judge", step.epoch, 0, number)
                if step.kind == "update":
                    made, more = Made("state", step.epoch + 1), not self.rules.stops(unit, step.epoch)
            case "evaluate" | "finish":
                assert len(model) == 1
                assert model[0].epochs == self.epochs(unit)
                if step.kind == "finish":
                    assert others
                    self.close(unit, f"{self.epochs(unit)} epochs")
                    return True
        self.products[step.id] = Product(worker, made)  # type: ignore[arg-type]
        return more

    def model(self, step: Step, taken: tuple[Any, ...]) -> tuple[tuple[Made, ...], tuple[Made, ...]]:
        """Return the model that a step takes, checked, and what else it takes."""
        assert step.round is not None
        n = 1 + step.round.number * step.round.parts
        model, others = taken[:n], taken[n:]
        assert len(model) == n
        at_the_end = step.kind in ("evaluate", "finish")
        assert model[0] == Made("state", self.epochs(step.unit) if at_the_end else step.epoch)
        parts = [(each.round, each.number) for each in model[1:]]
        assert parts == [(round_, part) for round_ in range(step.round.number) for part in range(step.round.parts)]
        assert all(each.kind == "part" and each.epochs == step.epoch for each in model[1:])
        return model, others

    def check_all(self, kind: str, step: Step, taken: tuple[Any, ...], round_: int) -> None:
        of = 1
        if self.split(step.unit):
            of = len(self.machine._progress_of_split[step.unit.id]._items)  # type: ignore[attr-defined]
        assert [each.number for each in taken] == list(range(of)), "not all partitions"
        assert {(each.kind, each.epochs, each.round) for each in taken} == {(kind, step.epoch, round_)}

    def split(self, unit: Unit) -> bool:
        return unit.group in self.machine._assignment.shards  # type: ignore[attr-defined]

    def epochs(self, unit: Unit) -> int:
        stops = (epoch + 1 for epoch in range(self.rules.epochs) if self.rules.stops(unit, epoch))
        return min(self.rules.epochs, next(stops, self.rules.epochs))


@dataclass(frozen=True)
class Case:
    workload: Workload
    units: tuple[Unit, ...]
    seed: int
    stop: int
    rounds: int

    def played(self, losses: int = 0, kept: float = 0.5, leaves: int = 0, **more: Any) -> Descenders:
        machine = CoordinateDescent(self.units, self.workload)
        more = {"rows_at_hand": self.workload.rows_shared, **more}
        cluster = Descenders(machine, rules_of(self.workload, self.stop, **more), rounds=self.rounds)
        play(cluster, self.seed, self.workload.workers, losses, kept, leaves)
        return cluster


@st.composite
def cases(draw: st.DrawFn) -> Case:
    groups = draw(st.lists(st.sampled_from([0, 1, 9, 11, 25, 60, 200, 1500]), min_size=1, max_size=4))
    packs = draw(st.lists(st.integers(0, 3), min_size=len(groups), max_size=len(groups)))
    units = units_of(draw, packs)
    workload = Workload(
        "rounds",
        tuple(groups),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 3)),
        BLOCK,
        evaluate_epochs=draw(st.booleans()),
        epoch_rounds=draw(st.integers(1, 4)),
        round_parts=draw(st.integers(1, 4)),
        work_items=draw(st.integers(1, 5)),
        takeover_rounds=draw(st.sampled_from([0.0, 1.5, 100.0])),
        rows_shared=draw(st.booleans()),
    )
    return Case(workload, units, draw(st.integers(0, 2**32)), draw(st.integers(0, 3)), draw(st.integers(1, 4)))


def checked(case: Case, cluster: Descenders) -> None:
    assert sorted(cluster.results) == [unit.id for unit in case.units]
    assert cluster.finishes == 1
    assert not cluster.products
    assert not any(cluster.loaded.values())
    for unit in case.units:
        found = cluster.results[unit.id]
        assert found == f"{cluster.epochs(unit)} epochs" or (found == "whole" and not cluster.split(unit))


@settings(max_examples=enough(300, 60), deadline=None)
@given(case=cases())
def test_every_round_is_complete(case: Case) -> None:
    checked(case, case.played())


@settings(max_examples=enough(500, 100), deadline=None)
@given(case=cases(), losses=st.integers(1, 8), kept=st.sampled_from([0.0, 0.5, 1.0]))
def test_every_round_is_complete_whoever_is_lost_or_joins(case: Case, losses: int, kept: float) -> None:
    checked(case, case.played(losses, kept))


@settings(max_examples=enough(500, 100), deadline=None)
@given(case=cases(), leaves=st.integers(1, 6), losses=st.sampled_from([0, 0, 2]), kept=st.sampled_from([0.0, 0.5, 1.0]))
def test_who_leaves_takes_nothing_along(case: Case, leaves: int, losses: int, kept: float) -> None:
    """No step is run twice, where nobody is lost, and who is asked goes, or is the last to be needed."""
    cluster = case.played(losses, kept, leaves)
    checked(case, cluster)
    if not losses:
        keys = [
            (step.unit.id, step.kind, step.epoch, step.round, step.partition, step.piece)
            for step in (each.step for each in cluster.log if isinstance(each, RunStep))
        ]
        assert len(keys) == len(set(keys))
        assert not cluster.leaving


@settings(max_examples=enough(150, 30), deadline=None)
@given(case=cases(), losses=st.integers(1, 6))
def test_where_products_are_kept_no_step_is_run_twice_but_what_was_in_flight(case: Case, losses: int) -> None:
    cluster = case.played(losses, kept=1.0)
    steps = [each.step for each in cluster.log if isinstance(each, RunStep)]
    keys = [
        (step.unit.id, step.kind, step.epoch, step.round, step.partition, step.piece, step.takes)
        for step in steps
        if cluster.split(step.unit)
    ]
    assert len(keys) - len(set(keys)) <= losses


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


def machine(workers: int = 4, rounds: int = 3, parts: int = 1, blocks: int = 8, epochs: int = 3) -> CoordinateDescent:
    work = Workload("rounds", (BLOCK * blocks,), workers, epochs, BLOCK, epoch_rounds=rounds, round_parts=parts)
    return CoordinateDescent([Unit(0, 0, (0,), cost=1.0)], work)


@pytest.mark.parametrize(("gone", "works"), [(0, 12), (1, 24), (2, 24)])
def test_a_lost_state_is_that_of_another_and_where_a_part_is_gone_its_epoch_begins_again(gone: int, works: int) -> None:
    """Workers 0 and 1 made the state before the second epoch, 1 and 2 the parts of its first rounds, and 3 is at the last."""
    operator, kinds, lost = machine(), [], False
    orders = [order for worker in range(4) for order in operator.on(WorkerReady(worker))]
    while todo := [order for order in orders if isinstance(order, RunStep)]:
        worker, step = todo[0].worker, todo[0].step
        kinds.append((step.kind, step.epoch))
        orders = todo[1:]
        if step.kind == "reduce" and step.epoch == 1 and step.round == EpochRound(2, 3, 1) and not lost:
            lost = True
            orders = [each for each in orders if each.worker != gone]
            orders += [*operator.on(WorkerLost(gone, replaced=True)), *operator.on(WorkerReady(7))]
        orders += operator.on(StepDone(worker, step, step.goes_on))
    assert lost
    assert [kinds.count(("init", 0)), kinds.count(("update", 2))] == [1, 2]
    assert [kinds.count(("work", epoch)) for epoch in range(3)] == [12, works, 12]


def test_a_worker_takes_the_parts_of_one_round_and_no_more() -> None:
    """A block's sums go to one worker, and what becomes of its columns to all: bytes of one model an epoch, and of its sums."""
    costs = Costs(state_bytes=lambda _: 900.0, sums_bytes=lambda _: 600.0, bandwidth=1e6)
    timeline = simulate(machine(rounds=3, epochs=2), 4, lambda _: 0.0, costs=costs)
    first = 3 * 900.0  # the first state goes to everybody
    assert timeline.network_bytes - first == pytest.approx(2 * (3 * 600.0 + 3 * 900.0), rel=0.2)


def test_cells_do_not_depend_on_workers_and_a_thousand_have_some() -> None:
    for n_blocks in (1, 2, 63, 64, 65, 1000, 10**6):
        cells = cells_of(n_blocks)
        assert [cell.first for cell in cells[1:]] == [cell.last for cell in cells[:-1]]
        assert (cells[0].first, cells[-1].last) == (0, n_blocks)
        assert {len(cell) for cell in cells[:-1]} <= {cell_length(n_blocks)}
        assert len(cells) <= max(MOST_CELLS, n_blocks**0.5)
    assert len(cells_of(10**6)) == 1000
    assert cells_of(0) == []


def test_cuts_stand_where_cells_end() -> None:
    operator = CoordinateDescent([Unit(0, 0, (0,))], Workload("rounds", (1_000_000,), 7, 1, 1000, epoch_rounds=2))
    (shards,) = operator._assignment.shards.values()
    ends = {cell.first for cell in cells_of(1000)} | {1000}
    assert all(blocks.first in ends and blocks.last in ends for blocks in shards.values())
    sizes = [len(blocks) for blocks in shards.values()]
    assert len(sizes) == 7
    assert sum(sizes) == 1000
    assert max(sizes) - min(sizes) <= cell_length(1000)


def test_work_items_are_of_whole_cells_and_none_is_left_out() -> None:
    for n_blocks in (1, 7, 63, 64, 65, 1000):
        ends = {cell.first for cell in cells_of(n_blocks)} | {n_blocks}
        for first, last in itertools.combinations(sorted(ends), 2):
            for most in (1, 3, 8, 100):
                items = work_items(BlockRange(first, last), n_blocks, most)
                assert [item.first for item in items] == [first, *(item.last for item in items[:-1])]
                assert items[-1].last == last
                assert all(item.first in ends and len(item) for item in items)
                cells = [-(-len(item) // cell_length(n_blocks)) for item in items]
                assert len(items) == min(most, sum(cells))
                assert max(cells) - min(cells) <= 1


def straggling(pace: Callable[[int, Step], float], workers: int = 8, **more: Any) -> Timeline:
    """Return a run of 200 rounds on workers that work as much slower as ``pace`` says, each on 8 cells."""
    work = Workload("rounds", (64 * BLOCK,), workers, 20, BLOCK, epoch_rounds=10, **more)
    operator = CoordinateDescent([Unit(0, 0, (0,), cost=8 * 23.0)], work)
    slow = Costs(pace=lambda worker, step: pace(worker, step) if step.kind == "work" else 1.0)
    return simulate(operator, workers, lambda _: 0.0, costs=slow)


@pytest.mark.examples(1)
@pytest.mark.parametrize("items", [4, 8])
def test_of_a_slow_worker_the_others_take_what_makes_it_as_fast_as_they_are(items: int) -> None:
    """One of eight is three times slower: at best all take 8 / (7 + 1/3) as long as eight even ones."""

    def one_is_slow(worker: int, _: Step) -> float:
        return 3.0 if worker == 5 else 1.0

    even, dealt_out = straggling(lambda *_: 1.0).makespan, straggling(one_is_slow).makespan
    found = straggling(one_is_slow, work_items=items).makespan
    assert dealt_out > 2.8 * even
    assert found < 1.55 * even
    patient = straggling(one_is_slow, work_items=items, takeover_rounds=20.0).makespan
    assert found < patient < 0.75 * dealt_out


def test_stragglers_that_change_cost_less_where_nothing_must_be_moved() -> None:
    """In each round another worker takes twice as long."""

    def changing(worker: int, step: Step) -> float:
        return 2.0 if step.round is not None and worker == (3 * step.round.number + step.epoch) % 8 else 1.0

    dealt_out = straggling(changing).makespan
    assert straggling(changing, work_items=8).makespan < 0.75 * dealt_out


def test_even_workers_take_nothing_over() -> None:
    work = Workload("rounds", (64 * BLOCK,), 8, 3, BLOCK, epoch_rounds=4, work_items=8)
    timeline = simulate(CoordinateDescent([Unit(0, 0, (0,), cost=1.0)], work), 8, lambda _: 0.0)
    assert timeline.loads == 8


def test_nobody_takes_what_its_own_worker_is_about_to_begin() -> None:
    """Every other worker has rows; those that have none are asked before some of these."""
    operator, workers = machine(workers=8, blocks=4), set()
    orders = [order for worker in reversed(range(8)) for order in operator.on(WorkerReady(worker))]
    while todo := [order for order in orders if isinstance(order, RunStep)]:
        workers |= {todo[0].worker} if todo[0].step.kind == "work" else set()
        orders = [*todo[1:], *operator.on(StepDone(todo[0].worker, todo[0].step, todo[0].step.goes_on))]
    assert workers == {0, 2, 4, 6}


def test_a_thousand_workers_and_twenty_rounds() -> None:
    work = Workload("rounds", (1_000_000,), 1000, 1, 1, epoch_rounds=20, round_parts=8, work_items=4)
    operator = CoordinateDescent([Unit(0, 0, (0,), cost=20_000.0)], work)
    costs = Costs(state_bytes=lambda _: 8e6, sums_bytes=lambda _: 16e6, bandwidth=1e9, latency=1e-4)
    began = time.perf_counter()
    timeline = simulate(operator, 1000, lambda _: 1.0, costs=costs)
    assert time.perf_counter() - began < 60
    alone = 20_000.0 * 3 / 4 / 1000  # a third as much goes into the metrics
    assert alone < timeline.makespan < 2 * alone + 20
