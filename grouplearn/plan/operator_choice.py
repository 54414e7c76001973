"""The planner's choice: the fastest legal operator that fits into memory, where it runs, and on how many workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn.amounts import amount_of_bytes, counted, rounded_seconds, share, two_digits
from grouplearn.bind.clauses import search
from grouplearn.bind.run import compatibility
from grouplearn.data.memory import memory_limit
from grouplearn.interrupting import with_checks
from grouplearn.plan.epoch_rounds import describe_rounds
from grouplearn.plan.physical import RAY_REPAYS_SECONDS, RAY_REPAYS_WITHIN, PhysicalPlan
from grouplearn.schedule.operators import BASELINE, OPERATORS

_AS_ASKED = "as asked"
#: By how much estimated makespans may differ and count as equal.
_ALIKE = 0.05


@dataclass(frozen=True, slots=True)
class Candidate:
    """An operator as the simulation ran it: makespan in seconds, idle share of worker time, loads of a group.

    ``network_bytes`` is the total, ``peak_bytes`` that of the worker that needs most, ``used`` the workers that had any work,
    ``helping`` the most of the others that helped one of these.
    """

    operator: str
    units: int
    loads: int
    makespan: float
    idle: float
    network_bytes: int = 0
    peak_bytes: int = 0
    used: int = 1
    helping: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """What will run where, and why: ``reason`` is for the executor, ``why`` for the operator, ``why_workers`` for the
    workers.

    ``refused`` says why an operator cannot be chosen; ``simulated`` is the number of workers in the candidates' schedules.
    """

    operator: str
    executor: str
    workers: int
    reason: str
    candidates: tuple[Candidate, ...]
    why: str = ""
    why_workers: str = ""
    refused: tuple[tuple[str, str], ...] = ()
    simulated: int = 1

    @property
    def chosen(self) -> Candidate:
        """The candidate that was chosen."""
        return next(each for each in self.candidates if each.operator == self.operator)


def threads(physical: PhysicalPlan, choice: Choice) -> int:
    """Return the number of worker threads: in process one, as several would wait for each other's interpreter lock, unless
    the statement asks for more. Work that threads cannot speed up needs processes: executor = 'ray'.
    """
    if choice.executor != "local" or physical.bound.options.placement.workers is not None:
        return choice.workers
    return choice.workers if _values_of_a_unit(physical) >= physical.bound.learner.access.threaded_from else 1


def _values_of_a_unit(physical: PhysicalPlan) -> float:
    """Return the feature values of an average unit, counted for each config and epoch where these run one after another."""
    epochs = physical.epochs if physical.bound.learner.access.visits else 0
    rows = (
        int(tasks.rows.sum()) * (epochs * len(unit.configs) or 1) for tasks in physical.alike for unit in tasks.first
    )
    return sum(rows) * len(physical.bound.items) / max(1, len(physical.units))


def eligible(physical: PhysicalPlan, ray_installed: bool) -> tuple[str, ...]:
    """Return the operators that ``choose`` picks from: the one asked for, or all that can run the learner there and make
    the same models as one worker."""
    asked, learner = physical.bound.options.placement.operator, physical.bound.learner
    if asked != "auto":
        return (asked,)
    place, _ = executor(physical, ray_installed)
    return tuple(
        name
        for name in OPERATORS
        if compatibility.refusal_reason(name, learner, place) is None
        and not compatibility.changes_models(name, learner)
    )


def affordable(physical: PhysicalPlan, candidates: Sequence[Candidate], workers: int) -> int:
    """Return how many workers to plan for: ``workers`` if that number was asked for or some operator fits into memory on
    them, else the most on which the operator with the smallest memory fits.
    """
    limit = _limit(physical)
    if physical.bound.options.placement.workers is not None or any(_needed(each) <= limit for each in candidates):
        return workers
    least = min(each.peak_bytes for each in candidates)
    return max(1, min(workers - 1, limit // max(1, least)))


def choose(
    physical: PhysicalPlan, candidates: Sequence[Candidate], ray_installed: bool, simulated: int | None = None
) -> Choice:
    """Pick the legal operator that fits into memory and has the smallest simulated makespan on this many workers.

    Makespans within a twentieth of the smallest count as equal, as estimates are no better than that: the operator with fewer
    loads wins, then the first in the registry. Ray is picked only where the work repays starting it.
    """
    options, learner = physical.bound.options, physical.bound.learner
    place, reason = executor(physical, ray_installed)
    refused = {each.operator: why for each in candidates if (why := _refusal(each, physical, place)) is not None}
    if options.placement.operator != "auto":
        best, why = _asked(physical, candidates, place)
        places = compatibility.runtimes(best.operator, learner)
        if place not in places:
            place, reason = (
                places[0],
                f"{best.operator} of a learner that trains on {learner.access.words} runs nowhere else",
            )
    else:
        fitting = [each for each in candidates if each.operator not in refused]
        best = _quickest(fitting) if fitting else _smallest(candidates, physical, place)
        why = _why(physical, best, fitting) if fitting else _nothing_fits(best, _limit(physical))
    for name in (best.operator, options.placement.operator):
        refused.pop(name, None)
    planned = simulated or physical.workers
    workers, why_workers = _workers(physical, best, planned)
    return Choice(
        operator=best.operator,
        executor=place,
        workers=workers,
        reason=reason,
        candidates=tuple(candidates),
        why=why,
        why_workers=why_workers,
        refused=tuple(sorted(refused.items())),
        simulated=planned,
    )


def _asked(physical: PhysicalPlan, candidates: Sequence[Candidate], executor: str) -> tuple[Candidate, str]:
    """Return the operator that is asked for; if there are too few packs to hop (cerebro 5.7), say so and name a faster
    one."""
    asked = next(each for each in candidates if each.operator == physical.bound.options.placement.operator)
    hops = OPERATORS[asked.operator].plan.shards is not None
    if not hops or asked.units >= physical.workers or physical.recorded is not None:
        return asked, _AS_ASKED + describe_rounds(physical, asked.operator)
    why = f"{_AS_ASKED}; {counted(asked.units, 'pack')} cannot keep {physical.workers} workers busy"
    learner = physical.bound.learner
    # An epoch of averaged models is worth less than one of these operators, so they are not compared.
    alike = [each for each in candidates if not OPERATORS[each.operator].how(learner.access).means]
    quickest = _quickest([each for each in alike if executor in compatibility.runtimes(each.operator, learner)])
    if quickest is asked:
        return asked, why
    takes, its = rounded_seconds(quickest.makespan), rounded_seconds(asked.makespan)
    return asked, f"{why}: {quickest.operator} takes {takes} and {asked.operator} {its}"


def fits(physical: PhysicalPlan, candidate: Candidate) -> bool:
    """Whether an operator fits into the memory there is."""
    return _needed(candidate) <= _limit(physical)


def _limit(physical: PhysicalPlan) -> int:
    return memory_limit(physical.bound.options.placement.memory_limit)


def _needed(candidate: Candidate) -> int:
    return candidate.peak_bytes * candidate.used


def repays_ray(physical: PhysicalPlan) -> bool:
    """Return whether there is enough work for several workers to start Ray; otherwise it need not be looked for."""
    return physical.serial_seconds >= RAY_REPAYS_SECONDS and physical.workers > 1


def executor(physical: PhysicalPlan, ray_installed: bool) -> tuple[str, str]:
    """Return the executor that the statement asks for or that fits the work, and why."""
    if physical.bound.options.placement.executor != "auto":
        enclosed = physical.bound.options.placement.enclosed
        return (
            physical.bound.options.placement.executor,
            f"other processes may not be used: {enclosed}" if enclosed else _AS_ASKED,
        )
    within = physical.bound.options.training.within
    if within is not None and within < RAY_REPAYS_WITHIN:
        return "local", f"WITHIN {within:g} SECONDS is too short a time to start Ray in (from {RAY_REPAYS_WITHIN:g} s)"
    repays = repays_ray(physical)
    work = f"about {rounded_seconds(physical.serial_seconds)} of work"
    reason = f"{work} {'repays' if repays else 'does not repay'} starting Ray (from {RAY_REPAYS_SECONDS:g} s)"
    if repays and not ray_installed:
        reason += ", but ray is not installed: pip install 'grouplearn[ray]'"
    return ("ray" if repays and ray_installed else "local"), reason


def _refusal(candidate: Candidate, physical: PhysicalPlan, executor: str) -> str | None:
    learner = physical.bound.learner
    illegal = compatibility.refusal_reason(candidate.operator, learner, executor)
    limit = _limit(physical)
    if illegal is None and not search.may_run(physical.bound.search, learner, candidate.operator):
        return search.ORDER_CHANGES
    if illegal is None and compatibility.changes_models(candidate.operator, learner):
        what = compatibility.depends_on(candidate.operator)
        return f"its models would depend on {what}; WITH (operator = '{candidate.operator}') asks for it"
    if illegal is not None or _needed(candidate) <= limit:
        return illegal
    needed = f"{amount_of_bytes(_needed(candidate))} on {counted(candidate.used, 'worker')}"
    return f"needs {needed}, and the memory limit is {amount_of_bytes(limit)}"


def _quickest(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate of the smallest makespan, or of those about as quick the one that loads least."""
    least = min(each.makespan for each in candidates)
    return min((each for each in candidates if each.makespan <= least * (1 + _ALIKE)), key=lambda each: each.loads)


def _smallest(candidates: Sequence[Candidate], physical: PhysicalPlan, executor: str) -> Candidate:
    """Return the legal candidate that needs least memory: limits are about estimates, so the run may still fit."""
    learner = physical.bound.learner
    legal = [
        each
        for each in candidates
        if executor in compatibility.runtimes(each.operator, learner)
        and not compatibility.changes_models(each.operator, learner)
        and search.may_run(physical.bound.search, learner, each.operator)
    ]
    return min(legal, key=lambda each: (each.peak_bytes, each.makespan, each.loads))


def _nothing_fits(best: Candidate, limit: int) -> str:
    return (
        f"no operator fits into {amount_of_bytes(limit)}; this one needs least, "
        f"{amount_of_bytes(best.peak_bytes)} per worker"
    )


def _workers(physical: PhysicalPlan, best: Candidate, planned: int) -> tuple[int, str]:
    """Return how many workers, and why: as asked, or the cores, fewer if memory or work is short."""
    if physical.bound.options.placement.workers is not None:
        return physical.workers, _AS_ASKED
    workers = max(1, min(planned, best.used + best.helping))
    if workers < planned:
        return workers, f"there is no work for more of the {physical.workers} cores"
    if planned < physical.workers:
        return workers, f"the memory limit of {amount_of_bytes(_limit(physical))} has no room for more"
    helps = "; idle workers help the others" if best.used < workers else ""
    return workers, f"the cores of this machine{helps}"


def _why(physical: PhysicalPlan, best: Candidate, fitting: Sequence[Candidate]) -> str:
    """Return the reason for the choice: what makes the others slower."""
    others = [each for each in fitting if each is not best]
    if not others:
        return "the only operator that may run here"
    second = _quickest(others)
    if second.makespan <= best.makespan * (1 + _ALIKE):
        fewest = f"it loads rows {_times(best.loads)}" if best.loads < second.loads else "it comes first"
        hardly = two_digits(min(each.makespan for each in others)) < two_digits(best.makespan)
        return f"no operator is {'clearly ' * hardly}faster, and {fewest}"
    grouped = next((each for each in others if each.operator == BASELINE), None)
    if grouped is not None and _waits(grouped, best):
        return _skewed(physical, grouped)
    difference = f"{second.operator} takes {rounded_seconds(second.makespan)}"
    if second.loads > best.loads:
        difference += f", as it loads rows {_times(second.loads)} and this one {_times(best.loads)}"
    return f"the fastest, {rounded_seconds(best.makespan)}; {difference}"


def _waits(grouped: Candidate, best: Candidate) -> bool:
    waits = grouped.idle >= best.idle + 0.05 and grouped.used > 1
    return not grouped.helping and (waits or grouped.used < best.used)


def _skewed(physical: PhysicalPlan, grouped: Candidate) -> str:
    sizes = physical.stats.rows
    largest = sizes.index(max(sizes))
    busy = physical.load_seconds(largest) + sum(
        float(tasks.seconds[number].sum())
        for tasks in physical.alike
        for number, groups in enumerate(with_checks(tasks.groups))
        if largest in groups
    )
    rows = share(sizes[largest] / max(1, physical.stats.n_rows))
    others = "the other waits" if physical.workers == 2 else "others wait"
    return (
        f"the largest group has {rows} of the rows, and {BASELINE} would keep one worker busy with it for "
        f"{rounded_seconds(busy)} of {rounded_seconds(grouped.makespan)} while {others}"
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
