"""ASHA: asynchronous successive halving, emulated at barriers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grouplearn.learners.base import Config
from grouplearn.search.procedure import WORST, Go, ranked


class Asha:
    """Asynchronous successive halving (Li et al. 2020, algorithm 2) with ``slots`` trials in training at a time.

    Rung k is at ``min(R, r η^k)`` epochs. A slot that becomes free takes the best trial that is among the best 1/η of a
    rung and was not promoted from it, of the highest rung that has one; else a new configuration. As Cerebro emulates ASHA
    (6.3), there are as many trials in training as there would be workers; a round ends when the first trial in training
    reaches its rung, as if every epoch took equally long. Where no configuration is left and nothing can be promoted, the
    best trial of the highest rung goes on, so that one trial has the whole budget in the end.
    """

    def __init__(self, configs: Sequence[Config], epochs: int, factor: int, least: int, slots: int) -> None:
        self._configs, self._factor, self._slots = configs, factor, slots
        self._rungs = rungs(epochs, factor, least)
        self._recorded: list[dict[int, float]] = [{} for _ in self._rungs]
        self._promoted: list[set[int]] = [set() for _ in self._rungs]
        self._running: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._next = 0

    def begin(self) -> tuple[Go, ...]:
        """Return the first configurations, one per slot."""
        self._fill()
        return self._round()

    def on(self, values: Mapping[int, float]) -> tuple[Go, ...]:
        """Note the trials that reached their rung, fill the slots that are free."""
        for trial, rung in list(self._running.items()):
            if values[trial] == WORST or self._epochs[trial] >= self._rungs[rung]:
                del self._running[trial]
                self._recorded[rung][trial] = values[trial]
        self._fill()
        return self._round()

    def _fill(self) -> None:
        while len(self._running) < self._slots and self._take():
            pass

    def _take(self) -> bool:
        """Give a free slot something to do; return whether there was something."""
        for rung in range(len(self._rungs) - 2, -1, -1):
            best = ranked(self._recorded[rung])[: len(self._recorded[rung]) // self._factor]
            free = [trial for trial in best if trial not in self._promoted[rung]]
            if free:
                self._promote(free[0], rung)
                return True
        if self._next < len(self._configs):
            self._running[self._next], self._epochs[self._next] = 0, 0
            self._next += 1
            return True
        return not self._running and self._finish_one()

    def _finish_one(self) -> bool:
        """Promote the best of the highest rung that was reached, unless that is the last one."""
        reached = [rung for rung, recorded in enumerate(self._recorded) if ranked(recorded)]
        if not reached or reached[-1] == len(self._rungs) - 1:
            return False
        rung = reached[-1]
        self._promote(ranked(self._recorded[rung])[0], rung)
        return True

    def _promote(self, trial: int, rung: int) -> None:
        self._promoted[rung].add(trial)
        self._running[trial] = rung + 1

    def _round(self) -> tuple[Go, ...]:
        """Train all that is running until the first of them is at its rung."""
        if not self._running:
            return ()
        length = min(self._rungs[rung] - self._epochs[trial] for trial, rung in self._running.items())
        for trial in self._running:
            self._epochs[trial] += length
        return tuple(Go(trial, self._configs[trial], self._epochs[trial]) for trial in sorted(self._running))


def rungs(epochs: int, factor: int, least: int) -> tuple[int, ...]:
    """Return the epochs of the rungs: least, least·η, ... and at the end all of them."""
    found = []
    reached = least
    while reached < epochs:
        found.append(reached)
        reached *= factor
    return (*found, epochs)


def most_epochs(trials: int, epochs: int, factor: int, least: int) -> int:
    """Return about how many epochs a search takes, summed over trials: those of synchronous halving."""
    total, reached, left = 0, 0, trials
    for rung in rungs(epochs, factor, least):
        total += max(1, left) * (rung - reached)
        reached, left = rung, left // factor
    return total
