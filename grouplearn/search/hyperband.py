"""Hyperband: successive halving in several brackets that trade the number of trials for their first budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grouplearn.learners.contract.config import Config
from grouplearn.search.procedure import Judgment, TrialBudget, ranked


@dataclass(frozen=True, slots=True)
class Rung:
    """``trials`` trials train until each has had ``budget``: epochs, or parts of the rows."""

    trials: int
    budget: int


Bracket = tuple[Rung, ...]


def brackets(budget: int, factor: int) -> tuple[Bracket, ...]:
    """Return the brackets s = s_max, ..., 0 of Hyperband (Li et al. 2018, algorithm 1) for R = budget, η = factor.

    ``s_max = ⌊log_η R⌋``, ``n = ⌈(s_max + 1) η^s / (s + 1)⌉``, and rung i has ``⌊n η^-i⌋`` trials with a budget of
    ``R η^(i-s)`` each, rounded to whole numbers.
    """
    most = 0
    while factor ** (most + 1) <= budget:
        most += 1
    sizes = ((s, -(-(most + 1) * factor**s // (s + 1))) for s in range(most, -1, -1))
    return tuple(_bracket(size, s, budget, factor) for s, size in sizes)


def _bracket(trials: int, s: int, budget: int, factor: int) -> Bracket:
    return tuple(
        Rung(max(1, trials // factor**place), max(1, round(budget * factor ** (place - s)))) for place in range(s + 1)
    )


def brackets_of(trials: int, budget: int, factor: int) -> tuple[Bracket, ...]:
    """Return Hyperband's brackets shrunk to ``trials`` trials in all, in proportion, the most exploring first."""
    whole = brackets(budget, factor)
    wanted = sum(bracket[0].trials for bracket in whole)
    sizes, rest, weight = [], min(trials, wanted), wanted
    for bracket in whole:
        size = min(rest, math.ceil(rest * bracket[0].trials / weight)) if weight else 0
        sizes.append(size)
        rest, weight = rest - size, weight - bracket[0].trials
    numbered = zip(range(len(whole) - 1, -1, -1), sizes, strict=True)
    return tuple(_bracket(size, s, budget, factor) for s, size in numbered if size)


class _Halving:
    """One bracket: after each rung the best ``rungs[i + 1].trials`` trials continue."""

    def __init__(self, rungs: Bracket, configs: Mapping[int, Config], seed: int) -> None:
        self._rungs, self._configs, self._seed, self._place = rungs, configs, seed, 0
        self.going = tuple(configs)

    def trials(self) -> Iterator[TrialBudget]:
        for trial in self.going:
            yield TrialBudget(trial, self._configs[trial], self._rungs[self._place].budget)

    def advance(self, values: Mapping[int, float]) -> tuple[Judgment, ...]:
        """Halve the trials; return their rung's judgment of each."""
        rung, before = self._place, self.going
        self._place += 1
        best = ranked({trial: values[trial] for trial in before}, self._seed)
        over = self._place == len(self._rungs)
        passed = set(best if over else best[: self._rungs[self._place].trials])
        self.going = () if over else tuple(sorted(passed))
        return tuple(Judgment(trial, rung, trial in passed) for trial in before)


class Hyperband:
    """All brackets advance by one rung per round, so that as many trials as possible run in parallel.

    ``configs`` are distributed to the brackets in order.
    """

    def __init__(self, configs: Sequence[Config], budget: int, factor: int, seed: int = 0) -> None:
        self._brackets: list[_Halving] = []
        self._judged: tuple[Judgment, ...] = ()
        first = 0
        for rungs in brackets_of(len(configs), budget, factor):
            numbers = range(first, first + rungs[0].trials)
            self._brackets.append(_Halving(rungs, {number: configs[number] for number in numbers}, seed))
            first += rungs[0].trials

    def begin(self) -> tuple[TrialBudget, ...]:
        """Return the first rung of every bracket."""
        return tuple(go for bracket in self._brackets for go in bracket.trials())

    def on(self, values: Mapping[int, float]) -> tuple[TrialBudget, ...]:
        """Halve every bracket; return their next rungs."""
        halved = [bracket.advance(values) for bracket in self._brackets if bracket.going]
        self._judged = tuple(judgment for judgments in halved for judgment in judgments)
        return self.begin()

    @property
    def waiting(self) -> frozenset[int]:
        """A trial goes on at once or never."""
        return frozenset()

    @property
    def judged(self) -> tuple[Judgment, ...]:
        """The judgments of the last rungs."""
        return self._judged


def most_budget(trials: int, budget: int, factor: int, anew: bool = False) -> int:
    """Return what a whole search takes, summed over trials: continued trials train only the difference, or all ``anew``."""
    total = 0
    for bracket in brackets_of(trials, budget, factor):
        reached = 0
        for rung in bracket:
            total += rung.trials * (rung.budget - reached)
            reached = 0 if anew else rung.budget
    return total


def most_trainings(trials: int, budget: int, factor: int) -> int:
    """Return how many times trials train, all rungs together."""
    return sum(rung.trials for bracket in brackets_of(trials, budget, factor) for rung in bracket)
