"""Progress of a search for its observers: epochs as they run, trials when they have ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from grouplearn.schedule.messages import Unit
from grouplearn.train.job import Forwarding, Observer, Progress, UnitResult
from grouplearn.train.results.ledger import Ledger
from grouplearn.train.results.trials import TrialResult, Trials

_Key = tuple[int, int]


class Ends:
    """Reports each trial once, at the barrier after which it neither trains nor waits."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._going: dict[_Key, UnitResult] = {}

    def show(self, results: Iterable[UnitResult], going: Set[_Key], trials: Mapping[_Key, TrialResult]) -> None:
        """Report the trials that have ended: of a round's results, and of the trials that waited until now."""
        for result in results:
            if not result.unit.is_final:
                self._progress.unit_done(result)
            else:
                self._going |= {(result.unit.group, config): result for config in result.unit.configs}
        ended: dict[int, list[_Key]] = defaultdict(list)
        for key, result in self._going.items():
            if key not in going:
                ended[result.unit.id].append(key)
        for keys in ended.values():
            result = [self._going.pop(key) for key in keys][-1]
            unit = replace(result.unit, configs=tuple(config for _, config in keys))
            own = Trials.of(unit.group, [trials[key] for key in keys], result.trials.names)
            self._progress.unit_done(replace(result, unit=unit, trials=own))


class Epochs(Forwarding):
    """Forwards epochs as they run, and writes the ledger; trials end only at barriers. ``offset``: see ``later``."""

    def __init__(self, observer: Observer, offset: float, ledger: Ledger | None) -> None:
        super().__init__(observer)
        self._offset, self._ledger = offset, ledger

    def unit_done(self, result: UnitResult) -> None:
        """Write the ledger."""
        if self._ledger is not None:
            self._ledger.add(later(result, self._offset))

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        """Forward them."""
        if self._ledger is not None:
            self._ledger.flush_when_due()
        super().epochs_done(unit, epochs)


def later(result: UnitResult, offset: float) -> UnitResult:
    """Return a round's result as one of the whole run: without states to continue from, in the run's own time."""
    steps = tuple(replace(step, started=step.started + offset, ended=step.ended + offset) for step in result.steps)
    lost = tuple(replace(each, started=each.started + offset, ended=each.ended + offset) for each in result.lost)
    return replace(result, started=result.started + offset, ended=result.ended + offset, steps=steps, lost=lost)
