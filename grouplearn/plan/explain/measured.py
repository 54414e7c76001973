"""EXPLAIN ANALYZE: the run as recorded in ``grouplearn.units``, beside its estimate."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from grouplearn.amounts import amount_of_bytes, counted, rounded_seconds, share
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.plan.cost.coefficients import corrected
from grouplearn.plan.cost.pilot import PILOT_SECONDS, pilot_ratio
from grouplearn.plan.explain.facts import unit_groups, unit_label
from grouplearn.plan.explain.gantt import Bar
from grouplearn.plan.operator_choice import Choice
from grouplearn.plan.physical import PhysicalPlan

#: The kind of work that was lost with its worker: it kept a worker busy, but is not part of any unit.
LOST = "lost"


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One unit, or one step of it, as it ran: seconds since the run began, bytes of rows and products sent to it."""

    unit: int
    worker: int
    started: float
    ended: float
    moved: int = 0
    kind: str = "unit"


@dataclass(frozen=True, slots=True)
class MeasuredUnit:
    """Processor seconds that a unit took, and the mean epochs of its trials."""

    seconds: float
    epochs: float


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the comparison: seconds of makespan and per unit (median, worst, all), idle share, workers, units, bytes
    of rows and products that workers took."""

    makespan: float
    idle: float
    workers: int
    units: int
    work: float
    median: float
    worst: float
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """Estimate and measurement of one run; ``bars`` are the units as they ran, ``known`` the corrected coefficients."""

    estimated: Side
    measured: Side
    known: Coefficients
    ratio: float | None
    verdict: str
    bars: tuple[Bar, ...]


def compare(
    physical: PhysicalPlan,
    choice: Choice,
    rows: Iterable[MeasuredStep],
    before: Coefficients,
    epochs: Mapping[int, float],
) -> Measured:
    """Return estimate beside measurement; ``rows`` has a unit once for each of its groups or steps.

    For the correction see ``asked_for``.

    A worker is idle when it runs no unit between the first unit's start and the last one's end.
    """
    rows = list(rows)
    ran = sorted({replace(row, moved=0) for row in rows}, key=lambda row: (row.started, row.worker, row.unit))
    moved = sum(row.moved for row in rows)
    estimates = _estimates(physical, choice)
    seconds: dict[int, float] = {}
    for row in (each for each in ran if each.kind != LOST):
        seconds[row.unit] = seconds.get(row.unit, 0.0) + row.ended - row.started
    made = _estimated_parts(physical, choice, epochs)
    pairs = [
        (made[unit][0], _of_training(took, made[unit][1])) for unit, took in sorted(seconds.items()) if unit in made
    ]
    after, ratio = corrected(before, pairs), pilot_ratio(pairs)
    bars = tuple(_bar(physical, row) for row in ran)
    verdict = _verdict(physical.bound.learner.shown_way, ratio, len(pairs))
    chosen = choice.chosen
    estimated = replace(_part(chosen.makespan, chosen.idle, chosen.used, estimates), moved=chosen.network_bytes)
    measured = replace(_measured_part(ran, seconds, choice.workers), moved=moved)
    return Measured(estimated, measured, after, ratio, verdict, bars)


def asked_for(physical: PhysicalPlan, choice: Choice, ran: Mapping[int, MeasuredUnit]) -> float | None:
    """Return the correction factor that a run's unit times suggest; None if the run says nothing about estimates.

    It corrects seconds of training, not how many epochs a learner needs: that depends on the rows, and one slowly converging
    model would spoil the plans of all others; nor what rows are expected to take before they train. Short units count together.
    A run that ended early or trained other units than planned does not count.
    """
    options = physical.bound.options
    if (
        physical.bound.search is not None
        or options.training.within is not None
        or options.training.early_stopping is not None
    ):
        return None
    pairs: list[tuple[float, float]] = []
    estimated = measured = 0.0
    epochs = {unit: each.epochs for unit, each in ran.items()}
    for unit, (training, loading) in _estimated_parts(physical, choice, epochs).items():
        took = _of_training(ran[unit].seconds, loading) if unit in ran else math.nan
        estimated, measured = estimated + training, measured + took
        if estimated >= PILOT_SECONDS:
            pairs.append((estimated, measured))
            estimated = measured = 0.0
    known = [pair for pair in pairs if not math.isnan(pair[1])]
    after = corrected(physical.rates.of(physical.bound.learner.way), known).correction
    return None if pilot_ratio(known) is None else after


def comparison(measured: Measured) -> list[tuple[str, str, str]]:
    """Return rows of text: name, estimate, measurement."""
    sides = (measured.estimated, measured.measured)
    rows = [
        ("run time", [rounded_seconds(side.makespan) for side in sides]),
        ("idle", [share(side.idle) for side in sides]),
        ("workers with work", [f"{side.workers:,}" for side in sides]),
        ("units", [f"{side.units:,}" for side in sides]),
        ("rows and sums moved", [amount_of_bytes(side.moved) for side in sides]),
        ("work", [rounded_seconds(side.work) for side in sides]),
        ("median unit", [rounded_seconds(side.median) for side in sides]),
        ("longest unit", [rounded_seconds(side.worst) for side in sides]),
    ]
    return [(name, estimate, seen) for name, (estimate, seen) in rows]


def _estimates(physical: PhysicalPlan, choice: Choice) -> dict[int, float]:
    """Return the estimated seconds of each unit with its share of the loads."""
    return {unit: sum(parts) for unit, parts in _estimated_parts(physical, choice, {}).items()}


def _estimated_parts(
    physical: PhysicalPlan, choice: Choice, epochs: Mapping[int, float]
) -> dict[int, tuple[float, float]]:
    """Return the estimated seconds of each unit's training and of its share of the loads; ``epochs`` replaces a trial's."""
    per_unit = choice.chosen.loads / max(1, choice.chosen.units)
    return {
        unit.id: (physical.seconds_of(unit, epochs.get(unit.id)), per_unit * physical.load_seconds(unit.group))
        for unit in physical.units
    }


def _of_training(measured: float, loading: float) -> float:
    """Return the seconds that training took of those measured: all but what loading should have taken, and at least half, as that
    is an estimate, too, which no correction changes: with it, runs would ask for ever smaller ones."""
    return max(measured - loading, 0.5 * measured)


def _part(makespan: float, idle: float, workers: int, seconds: Mapping[int, float]) -> Side:
    values = list(seconds.values()) or [0.0]
    return Side(makespan, idle, workers, len(seconds), sum(values), statistics.median(values), max(values))


def _measured_part(ran: list[MeasuredStep], seconds: Mapping[int, float], workers: int) -> Side:
    makespan = max((row.ended for row in ran), default=0.0) - min((row.started for row in ran), default=0.0)
    used = len({row.worker for row in ran})
    busy = sum(row.ended - row.started for row in ran)
    capacity = max(workers, used) * makespan
    return _part(makespan, max(0.0, 1 - busy / capacity) if capacity > 0 else 0.0, used, seconds)


def _bar(physical: PhysicalPlan, row: MeasuredStep) -> Bar:
    if row.unit >= len(physical.units):
        return Bar(row.worker, row.started, row.ended, 0, f"unit {row.unit}")
    unit = physical.units[row.unit]
    label, name = unit_label(physical, unit), unit_groups(physical, unit)
    return Bar(row.worker, row.started, row.ended, unit.group, label, row.kind, name)


def _verdict(learner: str, ratio: float | None, units: int) -> str:
    if ratio is None:
        say = "says" if units == 1 else "say"
        return f"{counted(units, 'unit')} this short {say} nothing about the estimates of {learner}"
    return (
        f"{learner} took {ratio:.2g} times its estimate (median of {counted(units, 'unit')}); "
        "later estimates of it are corrected"
    )
