"""From a bound TRAIN to a choice: the physical plan, and the schedule of every operator on the simulated runtime."""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import duckdb

from grouplearn.amounts import two_digits
from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.run import compatibility
from grouplearn.bind.run.options import OPERATORS
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.rows.recorded_runs import repeated_by
from grouplearn.data import shard
from grouplearn.extract.counts.statistics import statistics
from grouplearn.extract.extract import fits_in_memory
from grouplearn.failures import StatementInterrupted
from grouplearn.interrupting import with_checks
from grouplearn.plan import calibration, operator_choice
from grouplearn.plan.cost import durations as cost
from grouplearn.plan.epoch_rounds import by_rounds
from grouplearn.plan.explain.facts import unit_groups, unit_label
from grouplearn.plan.explain.gantt import Bar
from grouplearn.plan.hopping_packs import check_units, planned_for
from grouplearn.plan.miniature import Miniature, miniature
from grouplearn.plan.operator_choice import Candidate, Choice
from grouplearn.plan.physical import PhysicalPlan, plan
from grouplearn.plan.replaying import repeated
from grouplearn.runtime.simulated import Costs, Exchange, Timeline, simulate
from grouplearn.schedule.messages import BlockRange, Step, Unit
from grouplearn.schedule.operators import BASELINE, operator, searches
from grouplearn.schedule.sharded.partition import rows_in

#: Other operators are not planned if they could save at most so many seconds: planning them takes longer.
_NOTHING_TO_GAIN = 0.02


def planned(connection: duckdb.DuckDBPyConnection, checker: SqlChecker, bound: BoundTrain) -> PhysicalPlan:
    """Return the physical plan of a bound statement: a new one, or that of the run that it replays."""
    repeats = repeated_by(connection, checker, bound)
    physical = plan(bound, statistics(checker, bound), calibration.load(checker.outside))
    _refuse_uncalibrated(checker, physical)
    return check_units(checker, physical) if repeats is None else repeated(checker, physical, repeats)


def _refuse_uncalibrated(checker: SqlChecker, physical: PhysicalPlan) -> None:
    """Raise BindError if the probabilities of a label cannot be calibrated."""
    bound = physical.bound
    if bound.options.training.calibrate is None:
        return
    span = next(each.name.span for each in bound.statement.options if each.name.value.casefold() == "calibrate")
    if physical.label.scores_classes:
        message = f"calibrate is for probabilities of two classes, and the label has {len(physical.stats.classes)}"
        raise checker.error(message, span, "Predict one of them: PREDICT label = 'a class'.")
    if physical.family.named(physical.metric).threshold:
        message = f"{physical.metric} chooses a threshold of probabilities before they are calibrated"
        raise checker.error(message, span, "OPTIMIZE another metric, and give m_predict a threshold.")


def choose(physical: PhysicalPlan, cancelled: Callable[[], bool], *, every: bool = False) -> Choice:
    """Simulate the schedules of operators and choose among them; raises StatementInterrupted.

    Only eligible operators are simulated, or ``every`` one, to be shown.
    """
    ray_installed = finds_ray(physical)
    names = _operators(physical) if every else operator_choice.eligible(physical, ray_installed)

    workers = physical.workers
    while True:
        candidates = _candidates(physical, names, workers, cancelled, every=every)
        eligible = operator_choice.eligible(physical, ray_installed)
        fewer = operator_choice.affordable(
            physical, [each for each in candidates if each.operator in eligible], workers
        )
        if fewer == workers:
            return _on_threads(physical, operator_choice.choose(physical, candidates, ray_installed, workers))
        workers = fewer


def finds_ray(physical: PhysicalPlan) -> bool:
    """Return whether Ray is installed and there is enough work for it: looking takes longer than the rest of a small plan."""
    return operator_choice.repays_ray(physical) and importlib.util.find_spec("ray") is not None


def _candidates(
    physical: PhysicalPlan,
    names: Sequence[str],
    workers: int,
    cancelled: Callable[[], bool],
    *,
    every: bool,
) -> list[Candidate]:
    """Return the candidates: only the baseline if no operator can be faster or load rows less often, or if so little is to
    be done that none can save time.
    """
    small = miniature(physical, workers)

    def candidate(name: str) -> Candidate:
        own = by_rounds(planned_for(physical, name, workers), name, workers)
        its = small if own is physical else miniature(own, workers)
        return _candidate(its, name, workers, cancelled)

    if every or BASELINE not in names or len(names) == 1:
        return [candidate(name) for name in names]
    whole = candidate(BASELINE)
    loads = sum(small.load_seconds(group) for group in {unit.group for unit in small.physical.units})
    least = (physical.serial_seconds + loads) / workers
    gains_nothing = whole.makespan - least <= _NOTHING_TO_GAIN or two_digits(whole.makespan) <= two_digits(least)
    if gains_nothing and operator_choice.fits(physical, whole):
        return [whole]
    return [whole if name == BASELINE else candidate(name) for name in names]


def estimate(physical: PhysicalPlan, choice: Choice) -> float:
    """Return the estimated seconds of the run: the simulated makespan, or all the work on one thread."""
    if operator_choice.threads(physical, choice) == choice.workers:
        return choice.chosen.makespan
    found = physical.alike
    loads = sum(
        physical.load_seconds(groups[0]) * len(tasks.first) for tasks in found for groups in with_checks(tasks.groups)
    )
    return physical.serial_seconds + loads * choice.chosen.loads / max(1, choice.chosen.units)


def _on_threads(physical: PhysicalPlan, choice: Choice) -> Choice:
    """Add to the reason if several workers are one thread."""
    if operator_choice.threads(physical, choice) == choice.workers:
        return choice
    return replace(choice, why_workers=f"{choice.why_workers}; in process, one thread is as fast as several here")


def settled(physical: PhysicalPlan, choice: Choice) -> PhysicalPlan:
    """Return the plan with the packs of the chosen operator."""
    return planned_for(physical, choice.operator, choice.simulated)


def _operators(physical: PhysicalPlan) -> list[str]:
    """Return the operators that run learners of this access pattern on any runtime."""
    return [name for name in OPERATORS[1:] if compatibility.runtimes(name, physical.bound.learner)]


def plan_ahead(physical: PhysicalPlan, name: str, workers: int, cancelled: Callable[[], bool]) -> None:
    """Find an exact schedule, which is cached; its library takes seconds and cannot be interrupted.

    Raises StatementInterrupted; the thread that searches then ends by itself.
    """
    if not searches(name, physical.bound.options.of_operators):
        return
    search = threading.Thread(target=operator, args=(name, physical.units, physical.workload(workers)), daemon=True)
    search.start()
    while search.is_alive():
        search.join(timeout=0.1)
        if cancelled():
            raise StatementInterrupted("planning was interrupted; nothing was stored")


def _simulated(small: Miniature, name: str, workers: int, load_seconds: Callable[[int], float]) -> Timeline:
    scheduled = operator(name, small.physical.units, small.physical.workload(workers))
    return simulate(scheduled, workers, load_seconds, costs=costs_of(small))


def costs_of(small: Miniature) -> Costs:
    """Return the costs of moving a statement's rows, states and sums, by the planner's coefficients."""
    physical = small.physical
    learner, machine, sizes = physical.bound.learner, physical.rates.machine, physical.stats.rows
    width, outputs = physical.width, physical.outputs
    of_pack = functools.cache(physical.pack_bytes)

    def share(group: int, blocks: BlockRange) -> float:
        rows = sizes[group]
        return rows_in(blocks, rows, physical.block_rows) / rows if rows else 1.0

    def exchange(step: Step) -> Exchange:
        """Kingpin 3.2: every worker sends each tree's histograms, leaf by leaf, or each batch's gradients around once."""
        configs, rows, own = physical.configs_of(step.unit), sizes[step.unit.group], learner.cost
        passes = max(own.passes(config, physical.epochs) for config in configs)
        rounds = passes * max(own.rounds(config, rows) for config in configs)
        values = own.exchanged_values(configs, width, outputs)
        return Exchange(float(cost.VALUE_BYTES * values * rounds), float(rounds * len(configs)))

    def overhead(step: Step) -> float:
        kept = sizes[step.unit.group] * len(step.unit.configs) if step.kind == "evaluate" else 0
        rows_kept = kept if step.blocks is None else kept * share(step.unit.group, step.blocks)
        within = step.blocks if step.round is not None and step.kind == "work" else None
        of_cells = physical.cell_seconds(sizes[step.unit.group], within) if within else 0.0
        return physical.step_seconds + of_cells + physical.kept_row_seconds * rows_kept

    row_bytes, in_blocks = physical.row_bytes, not fits_in_memory(physical.bound, physical.stats)

    def rows_held(group: int) -> float:
        """Return the bytes that a worker holds of a group: one block at a time for sums over rows in files; bins take less."""
        rows = small.largest_of(group)
        if in_blocks and learner.access.held == "block":
            rows = min(rows, physical.block_rows)
        elif in_blocks and learner.access.held == "some":
            rows = min(rows, shard.SUMMED_ROWS)
        elif in_blocks and learner.access.held == "bins":
            return float(min(row_bytes * rows, cost.binned_bytes(physical.stored, row_bytes, rows)))
        return float(row_bytes * rows)

    helps = learner.access.shared > 0 and not in_blocks
    here = helps and operator_choice.executor(physical, finds_ray(physical))[0] == "local"

    def shared(unit: Unit) -> float:
        several = here and sizes[unit.group] > physical.block_rows
        return learner.access.shared if several else 0.0

    return Costs(
        share=share,
        row_bytes=lambda group: float(row_bytes * sizes[group]),
        most_rows_held=rows_held,
        groups=small.tasks_of,
        state_bytes=lambda unit: float(of_pack(unit.configs).state),
        sums_bytes=lambda unit: float(of_pack(unit.configs).sums),
        gradient_bytes=lambda unit: float(of_pack(unit.configs).gradients),
        exchange=exchange,
        overhead=overhead,
        shared=shared,
        bandwidth=machine.network,
        latency=machine.latency,
        exchange_latency=physical.round_seconds,
    )


def _candidate(small: Miniature, name: str, workers: int, cancelled: Callable[[], bool]) -> Candidate:
    """Return the planner's summary of a simulated run, which is not kept otherwise."""
    plan_ahead(small.physical, name, workers, cancelled)

    def load(group: int) -> float:
        # Called for every load of every simulated worker, so a good place to check for interrupts.
        if cancelled():
            raise StatementInterrupted("planning was interrupted; nothing was stored")
        return small.load_seconds(group)

    if small.epochs == small.physical.epochs:
        timeline = _simulated(small, name, workers, load)
        makespan, idle, sent = timeline.makespan, timeline.idle_share, timeline.network_bytes
    else:
        half = _simulated(small.shortened(small.epochs // 2), name, workers, load)
        timeline = _simulated(small.shortened(small.epochs), name, workers, load)
        makespan, idle, sent = _extrapolated(half, timeline, small)
    return Candidate(
        operator=name,
        units=small.n_units,
        loads=timeline.loads,
        makespan=makespan,
        idle=idle,
        network_bytes=int(sent),
        peak_bytes=int(max(timeline.peak_bytes, default=0)),
        used=max(1, len({interval.worker for interval in timeline.intervals})),
        helping=timeline.helping,
    )


def _extrapolated(half: Timeline, timeline: Timeline, small: Miniature) -> tuple[float, float, float]:
    """Return makespan, idle share and bytes sent for all epochs, extrapolated from the second half."""
    further = (small.physical.epochs - small.epochs) / (small.epochs - small.epochs // 2)

    def of_all(before: float, now: float) -> float:
        return now + further * (now - before)

    def busy(of: Timeline) -> float:
        return (1 - of.idle_share) * of.makespan

    makespan = of_all(half.makespan, timeline.makespan)
    idle = 1 - of_all(busy(half), busy(timeline)) / makespan if makespan > 0 else 0.0
    return makespan, max(0.0, idle), of_all(half.network_bytes, timeline.network_bytes)


def schedule_of(physical: PhysicalPlan, choice: Choice) -> tuple[Bar, ...]:
    """Return the simulated schedule of the chosen operator, for a chart."""
    rounds = by_rounds(physical, choice.operator, choice.simulated)
    whole = Miniature(physical, physical.epochs, len(physical.units))
    if rounds is not physical:  # only the first of many rounds
        whole = miniature(rounds, choice.simulated)
        whole = whole.shortened(whole.epochs)
    timeline = _simulated(whole, choice.operator, choice.simulated, physical.load_seconds)
    return tuple(
        Bar(
            interval.worker,
            interval.start,
            interval.end,
            interval.unit.group,
            unit_label(physical, interval.unit),
            interval.kind,
            unit_groups(physical, interval.unit),
        )
        for interval in timeline.intervals
    )
