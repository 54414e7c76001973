"""From a bound TRAIN to a choice: its physical plan, and every operator's schedule on the simulated runtime."""

from __future__ import annotations

import functools
import importlib.util
import math
import threading
from collections.abc import Callable
from dataclasses import replace

import duckdb

from grouplearn.catalog.recorded import repeated_by
from grouplearn.errors import Cancelled
from grouplearn.learners.base import Access
from grouplearn.plan import calibration, cost, legality
from grouplearn.plan import choose as choosing
from grouplearn.plan.bound import BoundTrain
from grouplearn.plan.choose import Candidate, Choice
from grouplearn.plan.explain import unit_label
from grouplearn.plan.extract import fits_in_memory, statistics
from grouplearn.plan.gantt import Bar
from grouplearn.plan.hopping_packs import check_exact, planned_for
from grouplearn.plan.judge import Judge
from grouplearn.plan.options import OPERATORS
from grouplearn.plan.physical import PhysicalPlan, plan
from grouplearn.plan.replaying import repeated
from grouplearn.runtime.simulated import Costs, Exchange, Timeline, simulate
from grouplearn.schedule.messages import Blocks, Step
from grouplearn.schedule.operators import operator
from grouplearn.schedule.partition import rows_in


def planned(connection: duckdb.DuckDBPyConnection, judge: Judge, bound: BoundTrain) -> PhysicalPlan:
    """Return the physical plan of a bound statement: a new one, or that of the run that it repeats."""
    repeats = repeated_by(connection, judge, bound)
    physical = plan(bound, statistics(judge, bound), calibration.load())
    return check_exact(judge, physical) if repeats is None else repeated(judge, physical, repeats)


def choose(physical: PhysicalPlan, cancelled: Callable[[], bool], *, every: bool = False) -> Choice:
    """Run operators' schedules on the simulated runtime and choose among them; raises Cancelled.

    Only those that may be chosen are run, or ``every`` one to be shown.
    """
    ray_installed = importlib.util.find_spec("ray") is not None
    names = _operators(physical) if every else choosing.eligible(physical, ray_installed)

    def load_seconds(group: int) -> float:
        # Called for every load of every simulated worker: with 100,000 groups, the place to look up now and then.
        if cancelled():
            raise Cancelled("planning was interrupted; nothing was stored")
        return physical.load_seconds(group)

    workers = physical.workers
    while True:
        candidates = [_candidate(physical, name, workers, load_seconds, cancelled) for name in names]
        eligible = choosing.eligible(physical, ray_installed)
        fewer = choosing.affordable(physical, [each for each in candidates if each.operator in eligible], workers)
        if fewer == workers:
            return _on_threads(physical, choosing.choose(physical, candidates, ray_installed, workers))
        workers = fewer


def estimate(physical: PhysicalPlan, choice: Choice) -> float:
    """Return the estimated seconds of the run: the simulated makespan, or all the work where one thread does it."""
    if choosing.threads(physical, choice) == choice.workers:
        return choice.chosen.makespan
    loads = sum(physical.load_seconds(unit.group) for unit in physical.units)
    return physical.serial_seconds + loads * choice.chosen.loads / max(1, choice.chosen.units)


def _on_threads(physical: PhysicalPlan, choice: Choice) -> Choice:
    """Say so where several workers are one thread."""
    if choosing.threads(physical, choice) == choice.workers:
        return choice
    return replace(choice, why_workers=f"{choice.why_workers}; in process, one thread is as fast as several here")


def settled(physical: PhysicalPlan, choice: Choice) -> PhysicalPlan:
    """Return the plan with the packs that the chosen operator runs."""
    return planned_for(physical, choice.operator, choice.simulated)


def _operators(physical: PhysicalPlan) -> list[str]:
    """Return the operators that run such learners anywhere."""
    return [name for name in OPERATORS[1:] if legality.runtimes(name, physical.bound.learner.access)]


def plan_ahead(physical: PhysicalPlan, name: str, workers: int, cancelled: Callable[[], bool]) -> None:
    """Find an exact schedule, which is remembered; it takes seconds in a library that hears no interrupt.

    Raises Cancelled; the thread that searches then ends by itself.
    """
    if name != "mop" or physical.bound.options.scheduler != "exact":
        return
    search = threading.Thread(target=operator, args=(name, physical.units, physical.workload(workers)), daemon=True)
    search.start()
    while search.is_alive():
        search.join(timeout=0.1)
        if cancelled():
            raise Cancelled("planning was interrupted; nothing was stored")


def _simulated(physical: PhysicalPlan, name: str, workers: int, load_seconds: Callable[[int], float]) -> Timeline:
    scheduled = operator(name, physical.units, physical.workload(workers))
    return simulate(scheduled, workers, load_seconds, costs=costs_of(physical))


def costs_of(physical: PhysicalPlan) -> Costs:
    """Return what moving rows, states and sums takes: of one statement's packs, by the planner's coefficients."""
    learner, machine, sizes = physical.bound.learner, physical.rates.machine, physical.stats.groups
    width, outputs = physical.stored, physical.outputs

    @functools.cache
    def of_pack(numbers: tuple[int, ...]) -> tuple[int, int]:
        configs = tuple(physical.bound.configs[number] for number in numbers)
        return cost.state_bytes(learner, configs, width, outputs), cost.sums_bytes(learner, configs, width, outputs)

    def share(group: int, blocks: Blocks) -> float:
        rows = sizes[group].n_rows
        return rows_in(blocks, rows, physical.block_rows) / rows if rows else 1.0

    def exchange(step: Step) -> Exchange:
        """Kingpin 3.2: every tree's histograms leaf by leaf, or every batch's gradients, go around once per worker."""
        state, sums = of_pack(step.unit.configs)
        configs = physical.configs_of(step.unit)
        passes = max(cost.passes_of(config, physical.epochs) for config in configs)
        if learner.access is Access.SAMPLING:
            leaves = max(cost.leaves_of(config) for config in configs)
            return Exchange(float(sums * passes * leaves), float(passes * leaves * len(configs)))
        rows = sizes[step.unit.group].n_rows
        batches = max(cost.steps_per_pass(learner, config, rows) for config in configs)
        return Exchange(float(state * batches * passes), float(batches * passes * len(configs)))

    def overhead(step: Step) -> float:
        kept = sizes[step.unit.group].n_rows * len(step.unit.configs) if step.kind == "evaluate" else 0
        rows_kept = kept if step.blocks is None else kept * share(step.unit.group, step.blocks)
        return physical.step_seconds + physical.kept_row_seconds * rows_kept

    return Costs(
        share=share,
        row_bytes=lambda group: float(cost.row_bytes(width) * sizes[group].n_rows),
        most_rows_held=float(cost.row_bytes(width) * physical.block_rows) if _read_in_blocks(physical) else math.inf,
        state_bytes=lambda unit: float(of_pack(unit.configs)[0]),
        sums_bytes=lambda unit: float(of_pack(unit.configs)[1]),
        exchange=exchange,
        overhead=overhead,
        bandwidth=machine.network,
        latency=machine.latency,
    )


def _read_in_blocks(physical: PhysicalPlan) -> bool:
    """Whether a worker holds a block of a group at a time, as the rows are in files and the learner wants sums."""
    return physical.bound.learner.access is Access.ALGEBRAIC and not fits_in_memory(physical.bound, physical.stats)


def _candidate(
    physical: PhysicalPlan,
    name: str,
    workers: int,
    load_seconds: Callable[[int], float],
    cancelled: Callable[[], bool],
) -> Candidate:
    """Return what the planner chooses by; the one place that reads a simulated run."""
    physical = planned_for(physical, name, workers)
    plan_ahead(physical, name, workers, cancelled)
    timeline = _simulated(physical, name, workers, load_seconds)
    return Candidate(
        operator=name,
        units=len(physical.units),
        loads=timeline.loads,
        makespan=timeline.makespan,
        idle=timeline.idle_share,
        network_bytes=int(timeline.network_bytes),
        peak_bytes=int(max(timeline.peak_bytes, default=0)),
        used=max(1, len({interval.worker for interval in timeline.intervals})),
    )


def schedule_of(physical: PhysicalPlan, choice: Choice) -> tuple[Bar, ...]:
    """Return the simulated schedule of the chosen operator, for a chart."""
    timeline = _simulated(physical, choice.operator, choice.simulated, physical.load_seconds)
    return tuple(
        Bar(
            interval.worker,
            interval.start,
            interval.end,
            interval.unit.group,
            unit_label(physical, interval.unit),
            interval.kind,
        )
        for interval in timeline.intervals
    )
