"""TPE: tree-structured Parzen estimators propose each configuration from earlier results, by optuna's sampler."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from grouplearn.failures import not_installed
from grouplearn.learners.contract.config import Config
from grouplearn.search.procedure import WORST, TrialBudget, WithoutRungs
from grouplearn.search.space import Choices, Dimension

#: Configurations drawn at random before the first estimate: optuna's default.
STARTUP = 10
#: optuna's seeds are limited to those of numpy's RandomState.
_SEEDS = 2**32


class Tpe(WithoutRungs):
    """Proposes ``trials`` configurations one after the other (Bergstra et al. 2011), each trained to the end.

    The first ten are drawn at random independently of results, so they form one round. For a seed the configurations are
    those of a loop over optuna's ``ask`` and ``tell`` with ``TPESampler(seed=seed)``.
    """

    def __init__(self, dimensions: Sequence[Dimension], base: Config, trials: int, epochs: int, seed: int) -> None:
        optuna = _optuna()
        self._optuna, self._dimensions, self._base = optuna, dimensions, base
        self._trials, self._epochs = trials, epochs
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed % _SEEDS))
        self._asked: dict[int, Any] = {}

    def begin(self) -> tuple[TrialBudget, ...]:
        """Return the configurations drawn at random."""
        return tuple(self._ask() for _ in range(min(STARTUP, self._trials)))

    def on(self, values: Mapping[int, float]) -> tuple[TrialBudget, ...]:
        """Learn how the round did; return the next configuration."""
        failed = self._optuna.trial.TrialState.FAIL
        for trial in sorted(values):
            value = values[trial]
            if value == WORST:
                self._study.tell(self._asked.pop(trial), state=failed)
            else:
                self._study.tell(self._asked.pop(trial), value)
        return (self._ask(),) if len(self._study.trials) < self._trials else ()

    def _ask(self) -> TrialBudget:
        asked = self._study.ask(self._distributions())
        self._asked[asked.number] = asked
        config = dict(self._base)
        for dimension in self._dimensions:
            value = asked.params[_label(dimension)]
            names = dimension.names if isinstance(dimension, Choices) else (dimension.name,)
            point = dimension.points[value] if isinstance(dimension, Choices) else (value,)
            config.update(zip(names, point, strict=True))
        return TrialBudget(asked.number, config, self._epochs)

    def _distributions(self) -> dict[str, Any]:
        return {_label(dimension): self._distribution(dimension) for dimension in self._dimensions}

    def _distribution(self, dimension: Dimension) -> Any:
        of = self._optuna.distributions
        if isinstance(dimension, Choices):
            return of.CategoricalDistribution(range(len(dimension.points)))
        if dimension.integer:
            return of.IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
        return of.FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def check_installed() -> None:
    """Raise NotInstalled, with the exact command, when optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise not_installed("OVER TPE", "the package optuna", "search")


def _label(dimension: Dimension) -> str:
    return ",".join(dimension.names) if isinstance(dimension, Choices) else dimension.name


def _optuna() -> Any:
    check_installed()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
