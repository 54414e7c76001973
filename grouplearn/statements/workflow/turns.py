"""WITHIN for a grid: units train in turns, so that every group has a model before any has all the time that it wants.

In the first turn each unit has a share of a quarter of the time, in proportion to its estimated cost. Those that did not end
go on in further turns, which share half of what is left. Where the time is enough for everything, models are those of one
long training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from grouplearn.schedule.messages import Unit
from grouplearn.statements.workflow.search_progress import later
from grouplearn.train.job import Forwarding, Job, Observer, UnitResult, UnitTurns
from grouplearn.train.results.trials import STOPPED, Trials

#: The parts of the time left that units share in the first turn and in later ones. What the first leaves is also for what
#: shares do not count: reading rows, an epoch that was longer than the share, measuring.
_FIRST, _LATER = 0.25, 0.5

#: Runs units of a job, telling an observer.
Run = Callable[[Job, tuple[Unit, ...], Observer], object]


def in_turns(
    run: Run, job: Job, units: Sequence[Unit], before: Sequence[UnitResult], workers: int, observer: Observer
) -> tuple[UnitResult, ...]:
    """Run the units that are not done ``before`` until they are, or the job's deadline has passed.

    Return the results of those that trained now, and of those without other results. ``observer`` gets the progress of each in
    every turn.
    """
    turns = _Turns(observer, {result.unit.id: result for result in before})
    left = tuple(unit for unit in units if turns.wants_more(unit))
    part = _FIRST
    while left:
        reached = {unit.id: content for unit in left if (content := turns.reached(unit)) is not None}
        # One that cannot go on would begin again and again in shares: later it has as long as it wants.
        sharing = left if part == _FIRST else [unit for unit in left if unit.id in reached]
        turn = UnitTurns(_shares(sharing, part * job.training.left(), left, workers), reached)
        turns.begin()
        run(replace(job, training=replace(job.training, turn=turn)), left, turns)
        left = () if job.training.expired() else tuple(unit for unit in left if turns.wants_more(unit))
        part = _LATER
    return tuple(turns.ran.values())


def is_cut(result: UnitResult) -> bool:
    """Return whether a unit wants more time."""
    return bool((result.trials.status == STOPPED).any())


class FinalResults(Forwarding):
    """An observer that tells another the end of a unit once: when it is done, or at ``end`` what it has come to."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._cut: dict[int, UnitResult] = {}

    def unit_done(self, result: UnitResult) -> None:
        """Forward a unit that is done."""
        self._cut.pop(result.unit.id, None)
        if is_cut(result):
            self._cut[result.unit.id] = result
        else:
            self.observer.unit_done(result)

    def end(self) -> None:
        """Forward the units for which there is no more time."""
        for result in self._cut.values():
            self.observer.unit_done(result)


class _Turns(Forwarding):
    """An observer that adds what units reach in one turn to what they had: ``ran`` are those that trained, by unit."""

    def __init__(self, observer: Observer, before: dict[int, UnitResult]) -> None:
        super().__init__(observer)
        self._before = before
        self._began, self._offset = time.monotonic(), 0.0
        self.ran: dict[int, UnitResult] = {}

    def begin(self) -> None:
        """A turn begins."""
        self._offset = time.monotonic() - self._began

    def wants_more(self, unit: Unit) -> bool:
        latest = self._latest(unit)
        return latest is None or is_cut(latest)

    def reached(self, unit: Unit) -> bytes | None:
        latest = self._latest(unit)
        return None if latest is None else latest.reached

    def unit_done(self, result: UnitResult) -> None:
        """Forward what a unit has reached, unless it had no time."""
        before = self._latest(result.unit)
        if before is not None and not result.facts and is_cut(result):
            return
        merged = _further(before, later(result, self._offset))
        self.ran[result.unit.id] = merged
        self.observer.unit_done(merged)

    def _latest(self, unit: Unit) -> UnitResult | None:
        return self.ran.get(unit.id) or self._before.get(unit.id)


def _shares(units: Sequence[Unit], seconds: float, all_units: Sequence[Unit], workers: int) -> Mapping[int, float]:
    """Return the seconds of each unit if workers have so many together; nothing where every unit has a worker for itself."""
    if len(all_units) <= workers:
        return {}
    total = sum(unit.cost for unit in all_units)
    if total <= 0:  # of networks of the user's own there are no estimates
        return {unit.id: max(0.0, seconds) * workers / len(all_units) for unit in units}
    return {unit.id: max(0.0, seconds) * workers * unit.cost / total for unit in units}


def _further(before: UnitResult | None, result: UnitResult) -> UnitResult:
    """Return a unit's result after a further turn; a trial that began again and came less far keeps its earlier model."""
    if before is None:
        return result
    earlier, latest = before.trials.ordered(), result.trials.ordered()
    lost = (latest.status == STOPPED) & (latest.epochs < earlier.epochs)
    trials = Trials.joined([earlier, latest]).take(np.arange(len(latest)) + np.where(lost, 0, len(latest)))
    trials = replace(trials, seconds=earlier.seconds + latest.seconds)
    processor, loaded = before.processor + result.processor, before.loaded + result.loaded
    return replace(result, trials=trials, facts=result.facts or before.facts, processor=processor, loaded=loaded)
