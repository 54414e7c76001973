"""Population based training: losers continue from a copy of a winner's state, with slightly changed hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from grouplearn.interrupting import check_interrupt
from grouplearn.learners.contract.config import Config
from grouplearn.search.procedure import TrialBudget, WithoutRungs, ranked
from grouplearn.search.space import Choices, Dimension, Range, distinct_points, drawn, identity

#: Share of the population that is replaced, and share that is copied (truncation selection, Jaderberg et al. 2017, 4.1.1).
QUANTILE = 0.2
#: Factors by which numbers change, and the probability of drawing one anew instead.
FACTORS, RESAMPLE = (0.8, 1.2), 0.25
#: How often a copy whose hyperparameters another trial has or had is changed otherwise: few values may leave nothing else.
ATTEMPTS = 100


class Pbt(WithoutRungs):
    """Population based training (Jaderberg et al. 2017): after every ``interval`` epochs the worst fifth stops.

    Each is replaced by a new trial that continues a copy of a random one of the best fifth. Its numbers are the original's
    times 0.8 or 1.2, listed values become neighbours, or with probability 1/4 are drawn anew. ``alike`` says whether a
    state fits two configurations; a hyperparameter whose change would not fit is kept. As long as there are others, no two
    trials have the same hyperparameters.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        dimensions: Sequence[Dimension],
        epochs: int,
        interval: int,
        seed: int,
        alike: Callable[[Config, Config], bool],
    ) -> None:
        self._dimensions, self._most, self._interval, self._alike = dimensions, epochs, interval, alike
        self._population: dict[int, Config] = dict(enumerate(configs))
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._epochs, self._seed = min(interval, epochs), seed
        self._next = len(configs)
        self._had = {identity(config) for config in configs}
        self._points = math.prod(map(distinct_points, dimensions))

    def begin(self) -> tuple[TrialBudget, ...]:
        """Return the population, to train to the first barrier."""
        return self._round({})

    def on(self, values: Mapping[int, float]) -> tuple[TrialBudget, ...]:
        """Replace the worst by changed copies of the best; the last barrier ends the search."""
        best = ranked(values, self._seed)
        if self._epochs >= self._most or not best:
            return ()
        self._epochs = min(self._epochs + self._interval, self._most)
        return self._round(self._replaced(best))

    def _replaced(self, best: Sequence[int]) -> dict[int, int]:
        """Change the population; return the parents of its new members."""
        count = max(1, int(len(self._population) * QUANTILE)) if len(self._population) > 1 else 0
        judged = set(best)
        failed = [trial for trial in self._population if trial not in judged]
        worst = best[max(len(best) - max(0, count - len(failed)), min(count, len(best))) :]
        parents: dict[int, int] = {}
        for trial in sorted((*failed, *worst)):
            check_interrupt()
            parent = best[int(self._generator.integers(min(max(1, count), len(best))))]
            del self._population[trial]
            self._population[self._next] = self._changed_copy(self._population[parent])
            parents[self._next] = parent
            self._next += 1
        return parents

    def _changed_copy(self, config: Config) -> Config:
        """Return a change of ``config`` that no trial has had; the more attempts it takes, the more is drawn anew."""
        for attempt in range(ATTEMPTS if len(self._had) < self._points else 1):
            changed = self._explored(config, max(RESAMPLE, attempt / ATTEMPTS))
            if identity(changed) not in self._had:
                break
        self._had.add(identity(changed))
        return changed

    def _explored(self, config: Config, resample: float) -> Config:
        changed = dict(config)
        for dimension in self._dimensions:
            attempt = {**changed, **_changed(dimension, changed, resample, self._generator)}
            changed = attempt if self._alike(config, attempt) else changed
        return changed

    def _round(self, parents: Mapping[int, int]) -> tuple[TrialBudget, ...]:
        members = sorted(self._population.items())
        return tuple(TrialBudget(trial, config, self._epochs, parents.get(trial)) for trial, config in members)


def _changed(dimension: Dimension, config: Config, resample: float, generator: np.random.Generator) -> Config:
    if generator.random() < resample:
        return drawn(dimension, generator)
    if isinstance(dimension, Range):
        return {dimension.name: _moved(dimension, config, generator)}
    return _neighbour(dimension, config, generator)


def _moved(dimension: Range, config: Config, generator: np.random.Generator) -> float | int:
    value, factor = float(config[dimension.name]), FACTORS[int(generator.integers(2))]  # type: ignore[arg-type]
    moved = value * factor if value >= 0 else value * (2 - factor)
    if dimension.integer:
        step = 1 if factor > 1 else -1
        whole = round(moved) if round(moved) != round(value) else round(value) + step
        return min(int(dimension.high), max(int(dimension.low), whole))
    return min(dimension.high, max(dimension.low, moved))


def _neighbour(dimension: Choices, config: Config, generator: np.random.Generator) -> Config:
    point = tuple(config[name] for name in dimension.names)
    place = dimension.points.index(point) + (1 if generator.integers(2) else -1)
    chosen = dimension.points[min(len(dimension.points) - 1, max(0, place))]
    return dict(zip(dimension.names, chosen, strict=True))
