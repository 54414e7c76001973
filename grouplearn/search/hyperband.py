"""Hyperband: successive halving in several brackets that trade the number of trials for their first budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grouplearn.learners.base import Config
from grouplearn.search.procedure import Go, ranked


@dataclass(frozen=True, slots=True)
class Rung:
    """``trials`` trials are trained until each has had ``epochs`` epochs."""

    trials: int
    epochs: int


Bracket = tuple[Rung, ...]


def brackets(epochs: int, factor: int) -> tuple[Bracket, ...]:
    """Return the brackets s = s_max, ..., 0 of Hyperband (Li et al. 2018, algorithm 1) for R = epochs, η = factor.

    ``s_max = ⌊log_η R⌋``, ``n = ⌈(s_max + 1) η^s / (s + 1)⌉``, and rung i has ``⌊n η^-i⌋`` trials with ``R η^(i-s)`` epochs
    each, rounded to whole epochs.
    """
    most = 0
    while factor ** (most + 1) <= epochs:
        most += 1
    sizes = ((s, -(-(most + 1) * factor**s // (s + 1))) for s in range(most, -1, -1))
    return tuple(_bracket(size, s, epochs, factor) for s, size in sizes)


def _bracket(trials: int, s: int, epochs: int, factor: int) -> Bracket:
    return tuple(
        Rung(max(1, trials // factor**place), max(1, round(epochs * factor ** (place - s)))) for place in range(s + 1)
    )


def brackets_of(trials: int, epochs: int, factor: int) -> tuple[Bracket, ...]:
    """Return Hyperband's brackets shrunk to ``trials`` trials in all, in proportion, the most exploring first."""
    whole = brackets(epochs, factor)
    wanted = sum(bracket[0].trials for bracket in whole)
    sizes, rest, weight = [], min(trials, wanted), wanted
    for bracket in whole:
        size = min(rest, math.ceil(rest * bracket[0].trials / weight)) if weight else 0
        sizes.append(size)
        rest, weight = rest - size, weight - bracket[0].trials
    numbered = zip(range(len(whole) - 1, -1, -1), sizes, strict=True)
    return tuple(_bracket(size, s, epochs, factor) for s, size in numbered if size)


class _Halving:
    """One bracket: after each rung the best ``rungs[i + 1].trials`` trials go on."""

    def __init__(self, rungs: Bracket, configs: Mapping[int, Config]) -> None:
        self._rungs, self._configs, self._place = rungs, configs, 0
        self.going = tuple(configs)

    def trials(self) -> Iterator[Go]:
        for trial in self.going:
            yield Go(trial, self._configs[trial], self._rungs[self._place].epochs)

    def advance(self, values: Mapping[int, float]) -> None:
        self._place += 1
        over = self._place == len(self._rungs)
        best = ranked({trial: values[trial] for trial in self.going})
        self.going = () if over else tuple(sorted(best[: self._rungs[self._place].trials]))


class Hyperband:
    """All brackets advance by one rung per round, so that workers have as much to do as there is.

    ``configs`` are shared out to the brackets in order.
    """

    def __init__(self, configs: Sequence[Config], epochs: int, factor: int) -> None:
        self._brackets: list[_Halving] = []
        first = 0
        for rungs in brackets_of(len(configs), epochs, factor):
            numbers = range(first, first + rungs[0].trials)
            self._brackets.append(_Halving(rungs, {number: configs[number] for number in numbers}))
            first += rungs[0].trials

    def begin(self) -> tuple[Go, ...]:
        """Return the first rung of every bracket."""
        return tuple(go for bracket in self._brackets for go in bracket.trials())

    def on(self, values: Mapping[int, float]) -> tuple[Go, ...]:
        """Halve every bracket; return their next rungs."""
        for bracket in self._brackets:
            if bracket.going:
                bracket.advance(values)
        return self.begin()


def most_epochs(trials: int, epochs: int, factor: int) -> int:
    """Return the epochs of a whole search, summed over trials: a trial that goes on trains only what it lacks."""
    total = 0
    for bracket in brackets_of(trials, epochs, factor):
        reached = 0
        for rung in bracket:
            total += rung.trials * (rung.epochs - reached)
            reached = rung.epochs
    return total
