"""ASHA: asynchronous successive halving, emulated at barriers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from grouplearn.learners.contract.config import Config
from grouplearn.search.hyperband import Bracket, Rung
from grouplearn.search.procedure import WORST, Judgment, TrialBudget, ranked


class Asha:
    """Asynchronous successive halving (Li et al. 2020, algorithm 2) with ``slots`` trials in training at a time.

    Rung k is at a budget of ``min(R, r η^k)``. A free slot takes the best trial that is among the best 1/η of a rung and
    was not promoted from it, from the highest such rung; else a new configuration. As Cerebro emulates ASHA (6.3), there
    are as many trials in training as there would be workers; a round ends when the first of them reaches its rung, as if
    all epochs took equally long. When no configuration is left and nothing can be promoted, the best trial of the highest
    rung continues, so that one trial has the whole budget in the end. With ``whole`` a trial reaches its rung in one round:
    it is trained anew at each, so that a part would be useless.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        rungs: Sequence[int],
        factor: int,
        slots: int,
        seed: int = 0,
        whole: bool = False,
    ) -> None:
        self._configs, self._factor, self._slots = configs, factor, slots
        self._rungs, self._seed, self._whole = rungs, seed, whole
        self._recorded: list[dict[int, float]] = [{} for _ in self._rungs]
        self._promoted: list[set[int]] = [set() for _ in self._rungs]
        self._running: dict[int, int] = {}
        self._reached: dict[int, int] = {}
        self._next = 0
        self._lost: list[set[int]] = [set() for _ in self._rungs]
        self._judged: tuple[Judgment, ...] = ()

    def begin(self) -> tuple[TrialBudget, ...]:
        """Return the first configurations, one per slot."""
        self._fill()
        return self._round()

    def on(self, values: Mapping[int, float]) -> tuple[TrialBudget, ...]:
        """Record the trials that reached their rung, and fill free slots."""
        for trial, rung in list(self._running.items()):
            if values[trial] == WORST or self._reached[trial] >= self._rungs[rung]:
                del self._running[trial]
                self._recorded[rung][trial] = values[trial]
        promoted = [set(trials) for trials in self._promoted]
        self._fill()
        self._judged = (*self._passes(promoted, values), *self._losses())
        return self._round()

    @property
    def waiting(self) -> frozenset[int]:
        """The trials that may still be promoted, as further trials reach their rung."""
        return frozenset(trial for trials in self._in_reach() for trial in trials) if self._running else frozenset()

    @property
    def judged(self) -> tuple[Judgment, ...]:
        """Which trials were promoted at the last barrier or had the whole budget, and which can no longer be."""
        return self._judged

    def _passes(self, promoted_before: Sequence[set[int]], values: Mapping[int, float]) -> Iterator[Judgment]:
        last = len(self._rungs) - 1
        for rung, (before, now) in enumerate(zip(promoted_before, self._promoted, strict=True)):
            yield from (Judgment(trial, rung, passed=True) for trial in sorted(now - before))
        finished = (trial for trial in ranked(self._recorded[last], self._seed) if trial in values)
        yield from (Judgment(trial, last, passed=True) for trial in finished)

    def _losses(self) -> Iterator[Judgment]:
        for rung, in_reach in enumerate((*self._in_reach(), ranked(self._recorded[-1], self._seed))):
            lost = self._recorded[rung].keys() - self._promoted[rung] - set(in_reach) - self._lost[rung]
            self._lost[rung] |= lost
            yield from (Judgment(trial, rung, passed=False) for trial in sorted(lost))

    def _in_reach(self) -> list[list[int]]:
        """Return by rung the trials that can still become one of its best 1/η, given how many can ever reach it."""
        found, most = [], len(self._configs)
        for recorded, promoted in zip(self._recorded[:-1], self._promoted[:-1], strict=True):
            best = ranked(recorded, self._seed)[: max(1, most // self._factor)]
            found.append([trial for trial in best if trial not in promoted])
            most = len(promoted) + len(found[-1]) + most - len(recorded)
        return found

    def _fill(self) -> None:
        while len(self._running) < self._slots and self._take():
            pass

    def _take(self) -> bool:
        """Give a free slot a trial; return whether there was one."""
        for rung in range(len(self._rungs) - 2, -1, -1):
            best = ranked(self._recorded[rung], self._seed)[: len(self._recorded[rung]) // self._factor]
            free = [trial for trial in best if trial not in self._promoted[rung]]
            if free:
                self._promote(free[0], rung)
                return True
        if self._next < len(self._configs):
            self._running[self._next], self._reached[self._next] = 0, 0
            self._next += 1
            return True
        return not self._running and self._finish_one()

    def _finish_one(self) -> bool:
        """Promote the best unpromoted trial of the highest rung that has one, until one had the whole budget."""
        if ranked(self._recorded[-1], self._seed):
            return False
        for rung in range(len(self._rungs) - 2, -1, -1):
            free = [trial for trial in ranked(self._recorded[rung], self._seed) if trial not in self._promoted[rung]]
            if free:
                self._promote(free[0], rung)
                return True
        return False

    def _promote(self, trial: int, rung: int) -> None:
        self._promoted[rung].add(trial)
        self._running[trial] = rung + 1

    def _round(self) -> tuple[TrialBudget, ...]:
        """Train all running trials until the first of them reaches its rung."""
        if not self._running:
            return ()
        missing = {trial: self._rungs[rung] - self._reached[trial] for trial, rung in self._running.items()}
        for trial, lacks in missing.items():
            self._reached[trial] += lacks if self._whole else min(missing.values())
        return tuple(TrialBudget(trial, self._configs[trial], self._reached[trial]) for trial in sorted(self._running))


def rungs(budget: int, factor: int, least: int) -> tuple[int, ...]:
    """Return the budgets of the rungs: least, least·η, ... and finally the whole budget."""
    found = []
    reached = least
    while reached < budget:
        found.append(reached)
        reached *= factor
    return (*found, budget)


def bracket(trials: int, rungs: Sequence[int], factor: int) -> Bracket:
    """Return about how many trials reach each rung."""
    return tuple(Rung(max(1, trials // factor**place), budget) for place, budget in enumerate(rungs))


def most_budget(trials: int, rungs: Sequence[int], factor: int, anew: bool = False) -> int:
    """Return about what a search takes, summed over trials: as synchronous halving (trained ``anew`` at rungs)."""
    total, reached, left = 0, 0, trials
    for rung in rungs:
        total += max(1, left) * (rung - reached)
        reached, left = 0 if anew else rung, left // factor
    return total


def most_trainings(trials: int, rungs: Sequence[int], factor: int) -> int:
    """Return about how many times trials train, all rungs together."""
    return sum(max(1, trials // factor**place) for place in range(len(rungs)))
