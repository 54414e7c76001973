"""Rounds of averaging under any order of events: every partition once in every round, all parts of one model, and no other."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from helpers.schedule_cases import rules_of, units_of
from helpers.schedule_cluster import Cluster, Product, play
from helpers.thorough import enough
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.runtime.simulated import Costs, simulate
from grouplearn.schedule.averages import REDUCTIONS, SENT, Averages
from grouplearn.schedule.invariants import BrokenSchedule
from grouplearn.schedule.messages import Part, RunStep, Step, StepDone, Unit, WorkerLost, WorkerReady
from grouplearn.schedule.rounds.averaging import Averaging
from grouplearn.schedule.sharded.partition import cut_evenly
from grouplearn.schedule.workload import Workload

BLOCK = 10


@dataclass(frozen=True)
class Made:
    """What a step makes in these tests: of which partitions, after how many rounds, and which part of how many."""

    kind: str
    rounds: int
    partitions: tuple[int, ...] = ()
    part: Part | None = None


@dataclass
class Averagers(Cluster):
    """Workers that complain when a step does not take what a round says."""

    def work(self, worker: int, step: Step, taken: tuple[Any, ...]) -> bool:
        if self.partitions(step.unit) < 2:  # a whole group that goes by epochs, so that nobody waits for all of it
            return super().work(worker, step, taken)
        unit, stop = step.unit, self.rules.stops(step.unit, step.epoch)
        count, judged, rounds = self.partitions(unit), self.rules.evaluate_epochs, self.rounds(unit)
        more, made = True, Made("sums", step.epoch)
        number, over = step.epoch * rounds + step.stretch.number, (step.epoch + 1) * rounds
        if step.kind in ("work", "combine", "reduce"):
            assert step.stretch.of == rounds
        match step.kind:
            case "init":
                assert not taken
                made = Made("model", 0)
            case "work":
                assert step.partition is not None
                assert step.partition.of == count
                self.check_model(step, taken, number)
                assert step.piece == (Part(0, 2) if judged and number % rounds == 0 else None)
                made = Made("worked", number + 1, (step.partition.number,))
            case "combine" | "reduce":
                if step.kind == "reduce" and self.averages.from_before:
                    *taken, before = taken  # type: ignore[assignment]
                    part = step.piece or Part(0, 1)
                    assert before == (Made("part", number, (), part) if number else Made("model", 0))
                partitions = tuple(number for each in taken for number in each.partitions)
                assert all(each.rounds == number + 1 and each.kind == "worked" for each in taken)
                if step.kind == "reduce":
                    assert partitions == tuple(range(count)), "a mean without some partition"
                    says = (step.piece is None or step.piece.number == 0) and number + 1 == over and not judged
                    more = not (says and stop)
                    made = Made("part", number + 1, (), step.piece or Part(0, 1))
                else:
                    made = Made("worked", number + 1, partitions)
            case "judge":
                self.check_parts(taken, over)
            case "update":
                *others, noted = taken
                parts, sums = [each for each in others if each.kind == "part"], others[-count:]
                self.check_parts(tuple(parts), over)
                assert [each.kind for each in sums] == ["sums"] * count
                assert noted.kind == ("model" if step.epoch == 0 else "update")
                assert noted.rounds == step.epoch * rounds
                more, made = not stop, Made("update", over)
            case "evaluate":
                self.check_model(step, taken, self.epochs(unit) * rounds)
            case "finish":
                self.check_model(step, taken[:-count], self.epochs(unit) * rounds)
                assert [each.kind for each in taken[-count:]] == ["sums"] * count
                self.close(unit, f"{self.epochs(unit)} epochs")
                return True
        assert step.id not in self.products
        self.products[step.id] = Product(worker, made)  # type: ignore[arg-type]
        return more

    @property
    def workload(self) -> Workload:
        return self.machine._workload  # type: ignore[attr-defined, no-any-return]

    @property
    def averages(self) -> Averages:
        return self.workload.averages

    def partitions(self, unit: Unit) -> int:
        return min(self.averages.partitions, self.rules.blocks(unit))

    def rounds(self, unit: Unit) -> int:
        """Return the rounds of an epoch: the partition of most blocks is the first, and its last batch may have few rows."""
        if not self.averages.batches:
            return 1
        rows, size = self.workload.rows[unit.group], self.workload.batch_rows[unit.configs[0]]
        cuts = cut_evenly(self.rules.blocks(unit), self.partitions(unit))
        batches = [
            sum(-(-(min(rows, block * BLOCK + BLOCK) - block * BLOCK) // size) for block in range(cut.first, cut.last))
            for cut in cuts
        ]
        return -(-max(batches) // self.averages.batches)

    def epochs(self, unit: Unit) -> int:
        stops = (epoch + 1 for epoch in range(self.rules.epochs) if self.rules.stops(unit, epoch))
        return min(self.rules.epochs, next(stops, self.rules.epochs))

    def check_model(self, step: Step, taken: tuple[Any, ...], rounds: int) -> None:
        if rounds == 0:
            assert taken == (Made("model", 0),)
            return
        if self.rules.evaluate_epochs and rounds % self.rounds(step.unit) == 0:
            *parts, update = taken
            assert (update.kind, update.rounds) == ("update", rounds)
            self.check_parts(tuple(parts), rounds)
        else:
            self.check_parts(taken, rounds)

    def check_parts(self, taken: tuple[Any, ...], rounds: int) -> None:
        assert all(each.kind == "part" and each.rounds == rounds for each in taken), "parts of different models"
        assert [each.part.number for each in taken] == list(range(taken[0].part.of)), "not all parts"


@dataclass(frozen=True)
class Case:
    workload: Workload
    units: tuple[Unit, ...]
    seed: int
    stop: int

    def played(self, losses: int = 0, kept: float = 0.5, leaves: int = 0, **more: Any) -> Averagers:
        cluster = Averagers(Averaging(self.units, self.workload), rules_of(self.workload, self.stop, **more))
        play(cluster, self.seed, self.workload.workers, losses, kept, leaves)
        return cluster


@st.composite
def cases(draw: st.DrawFn) -> Case:
    groups = draw(st.lists(st.sampled_from([0, 1, 9, 11, 25, 60, 200]), min_size=1, max_size=4))
    packs = draw(st.lists(st.integers(0, 3), min_size=len(groups), max_size=len(groups)))
    units = units_of(draw, packs)
    workload = Workload(
        "sequential",
        tuple(groups),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 3)),
        BLOCK,
        evaluate_epochs=draw(st.booleans()),
        averages=Averages(
            draw(st.integers(1, 9)),
            draw(st.sampled_from(REDUCTIONS)),
            draw(st.sampled_from(SENT)),
            draw(st.sampled_from([0, 0, 1, 2, 5])),
            draw(st.sampled_from([0.0, 0.5])),
        ),
        batch_rows=tuple(draw(st.integers(3, 12)) for _ in units),
    )
    return Case(workload, units, draw(st.integers(0, 2**32)), draw(st.integers(0, 3)))


def checked(case: Case, cluster: Averagers) -> None:
    assert sorted(cluster.results) == [unit.id for unit in case.units]
    assert cluster.finishes == 1
    assert not cluster.products
    assert not any(cluster.loaded.values())
    for unit in case.units:
        found = cluster.results[unit.id]
        if cluster.partitions(unit) < 2:
            assert found == "whole" or len(found.seen) == cluster.epochs(unit) * case.workload.blocks_of(unit)
        else:
            assert found == f"{cluster.epochs(unit)} epochs"


@settings(max_examples=enough(300, 60), deadline=None)
@given(case=cases())
def test_every_round_is_complete(case: Case) -> None:
    checked(case, case.played())


@settings(max_examples=enough(500, 100), deadline=None)
@given(case=cases(), losses=st.integers(1, 8), kept=st.sampled_from([0.0, 0.5, 1.0]))
def test_every_round_is_complete_whoever_is_lost_or_joins(case: Case, losses: int, kept: float) -> None:
    checked(case, case.played(losses, kept))


@settings(max_examples=enough(150, 30), deadline=None)
@given(case=cases(), leaves=st.integers(1, 6), losses=st.sampled_from([0, 2]), kept=st.sampled_from([0.0, 0.5, 1.0]))
def test_who_leaves_takes_nothing_along(case: Case, leaves: int, losses: int, kept: float) -> None:
    checked(case, case.played(losses, kept, leaves))


@settings(max_examples=enough(150, 30), deadline=None)
@given(case=cases(), losses=st.integers(1, 6))
def test_where_products_are_kept_no_step_is_run_twice_but_what_was_in_flight(case: Case, losses: int) -> None:
    cluster = case.played(losses, kept=1.0)
    steps = [each.step for each in cluster.log if isinstance(each, RunStep)]
    keys = [
        (step.unit.id, step.kind, step.epoch, step.stretch, step.partition, step.piece, step.blocks, step.takes)
        for step in steps
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


def machine(partitions: int = 4, workers: int = 4, reduction: Any = "scatter", **more: Any) -> Averaging:
    work = Workload(
        "sequential", (10 * partitions,), workers, 3, BLOCK, averages=Averages(partitions, reduction), **more
    )
    return Averaging([Unit(0, 0, (0,), cost=1.0)], work)


def test_a_barrier_is_not_crossed_and_no_step_is_done_twice() -> None:
    operator = machine()
    orders = [order for worker in range(4) for order in operator.on(WorkerReady(worker))]
    (init,) = [order.step for order in orders if isinstance(order, RunStep)]
    orders = list(operator.on(StepDone(0, init)))
    works = {order.worker: order.step for order in orders if isinstance(order, RunStep)}
    assert {step.kind for step in works.values()} == {"work"}
    for worker in (0, 1, 2):
        assert not [each for each in operator.on(StepDone(worker, works[worker])) if isinstance(each, RunStep)]
    with pytest.raises(BrokenSchedule, match="was not running step"):
        operator.on(StepDone(1, works[1]))
    reduces = [each.step for each in operator.on(StepDone(3, works[3])) if isinstance(each, RunStep)]
    assert [step.piece for step in reduces] == [Part(number, 4) for number in (3, 0, 1, 2)]
    assert all(step.takes == tuple(works[worker].id for worker in range(4)) for step in reduces)


def test_what_a_lost_worker_made_is_made_again_and_no_more() -> None:
    """Its pass of this round from the model that others have still; a lost part of that model, from the beginning."""
    operator = machine()
    for worker in range(4):
        orders = list(operator.on(WorkerReady(worker)))
        if worker == 0:
            first = orders
    (init,) = [order.step for order in first if isinstance(order, RunStep)]
    works = {each.worker: each.step for each in operator.on(StepDone(0, init)) if isinstance(each, RunStep)}
    operator.on(StepDone(2, works[2]))
    again = [each for each in operator.on(WorkerLost(2)) if isinstance(each, RunStep)]
    assert not again  # everybody is busy
    follow = [each for each in operator.on(StepDone(0, works[0])) if isinstance(each, RunStep)]
    assert [(each.worker, each.step.kind, each.step.partition) for each in follow] == [(0, "work", Part(2, 4))]


@pytest.mark.parametrize(
    "averages", [Averages(4, "scatter", "gradient", 2), Averages(4, "tree", momentum=0.5, batches=2)]
)
def test_a_lost_part_of_the_model_before_is_a_lost_model(averages: Averages) -> None:
    """Nothing but a part of the next model is made of it: the round ends where every pass is there, and begins anew otherwise."""
    work = Workload("sequential", (40,), 4, 3, BLOCK, averages=averages, batch_rows=(5,))
    case = Case(work, (Unit(0, 0, (0,), cost=1.0),), 3, 9)
    steps = [each.step for each in case.played().log if isinstance(each, RunStep)]
    assert {step.stretch for step in steps if step.kind == "work"} == {Part(0, 1)}
    for seed in range(40):
        checked(case, replace(case, seed=seed).played(losses=4, kept=0.0))


def test_rounds_of_an_epoch_are_those_of_the_partition_of_most_batches() -> None:
    """25 rows in blocks of ten and batches of four: 3 + 3 + 2 batches, of which two partitions have 3 and 5."""
    for batches, rounds in ((1, 5), (2, 3), (4, 2), (5, 1), (100, 1)):
        work = Workload("sequential", (25,), 2, 2, BLOCK, averages=Averages(2, batches=batches), batch_rows=(4,))
        case = Case(work, (Unit(0, 0, (0,), cost=1.0),), 0, 9)
        steps = [each.step for each in case.played().log if isinstance(each, RunStep)]
        works = [(step.epoch, step.stretch) for step in steps if step.kind == "work" and step.partition == Part(0, 2)]
        assert works == [(epoch, Part(number, rounds)) for epoch in (0, 1) for number in range(rounds)]
        assert sum(step.cost for step in steps if step.kind == "work") == pytest.approx(2 / (2 + 1 / 3))


def test_only_sequential_learners_are_averaged() -> None:
    with pytest.raises(ValueError, match="only models of sequential learners are averaged, not of algebraic ones"):
        Averaging([], Workload("algebraic", (20,), 2, 1, BLOCK))


def test_gradients_are_smaller_than_models_on_the_simulated_runtime() -> None:
    """Three of four gradients reach each of four workers in parts, and then three quarters of a model."""
    work = Workload("sequential", (40,), 4, 4, BLOCK, averages=Averages(4, send="gradient"))
    sent = {}
    for gradient in (0.0, 400.0):
        costs = Costs(state_bytes=lambda _: 1000.0, gradient_bytes=lambda _, size=gradient: size, bandwidth=1e6)  # type: ignore[misc]
        operator = Averaging([Unit(0, 0, (0,), cost=1.0)], work)
        sent[gradient] = simulate(operator, 4, lambda _: 0.0, costs=costs).network_bytes
    assert sent[400.0] - sent[0.0] == pytest.approx(4 * 4 * 400 * 3 / 4)


@pytest.mark.parametrize(("reduction", "most"), [("scatter", 2 * 3 / 4), ("star", 2 * 3)])
def test_bytes_of_a_round_on_the_simulated_runtime(reduction: Any, most: float) -> None:
    """2 m (k - 1) / k reach each worker by scattering; the centre of a star gets and gives m (k - 1)."""
    size, epochs = 1000.0, 3
    costs = Costs(state_bytes=lambda _: size, bandwidth=1e6)
    timeline = simulate(machine(reduction=reduction), 4, lambda _: 0.0, costs=costs)
    first = last = 3 * size  # the first model goes to everybody, and the last one is looked at everywhere
    rounds = {"scatter": 4 * most, "star": most}[reduction] * size
    looked = {"scatter": 4 * 3 / 4 * size, "star": last}[reduction]
    # A last part is gathered by the look, and by who makes the result.
    by_finish = timeline.network_bytes - first - epochs * rounds - looked + looked
    assert 0 <= by_finish <= size


@pytest.mark.parametrize("averages", [Averages(1000), Averages(1000, momentum=0.9)])
def test_a_thousand_workers_and_eight_rounds(averages: Averages) -> None:
    work = Workload("sequential", (1_000_000,), 1000, 8, 1000, averages=averages)
    operator = Averaging([Unit(0, 0, (0,), cost=8_000.0)], work)
    costs = Costs(state_bytes=lambda _: 8e6, bandwidth=1e9, latency=1e-4)
    timeline = simulate(operator, 1000, lambda _: 1.0, costs=costs)
    alone = 8_000.0 / 8.0 / 1000
    assert 8 * alone < timeline.makespan < 12 * alone
