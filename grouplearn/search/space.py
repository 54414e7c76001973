"""A search space with its values computed, and the configurations that GRID and RANDOM draw from it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grouplearn.learners.contract.config import Config, Value


@dataclass(frozen=True, slots=True)
class Choices:
    """Points listed for one or more parameters together: ``(p, q) IN ((1, 2), (3, 4))``."""

    names: tuple[str, ...]
    points: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Range:
    """``name BETWEEN low AND high [LOG]``; ``integer`` draws integers, both ends included."""

    name: str
    low: float
    high: float
    log: bool = False
    integer: bool = False


Dimension = Choices | Range

#: More configurations are a mistake, not a search.
MAX_CONFIGS = 100_000


def combinations(dimensions: Sequence[Choices]) -> int:
    """Return how many combinations the listed points have, repeats counted."""
    return math.prod(len(dimension.points) for dimension in dimensions)


def grid(dimensions: Sequence[Choices], fixed: Config) -> tuple[Config, ...]:
    """Return every combination of the listed points, the last dimension varying fastest, repeats left out."""
    points = itertools.product(*(dimension.points for dimension in dimensions))
    configs = [_config(dimensions, combination, fixed) for combination in points]
    return tuple(_distinct(configs))


def random(dimensions: Sequence[Dimension], fixed: Config, trials: int, seed: int) -> tuple[Config, ...]:
    """Return ``trials`` configurations drawn independently per dimension; the first n of a larger draw are the same.

    Listed points are drawn uniformly, ranges uniformly or, with LOG, uniformly in the logarithm. When every dimension is
    listed and there are no more combinations than trials, all combinations are returned instead.
    """
    listed = [dimension for dimension in dimensions if isinstance(dimension, Choices)]
    if len(listed) == len(dimensions) and combinations(listed) <= trials:
        return grid(listed, fixed)
    configs: dict[object, Config] = {}
    most = min(trials, math.prod(map(distinct_points, dimensions)))
    generator = np.random.Generator(np.random.PCG64(seed))
    # Drawing one configuration at a time keeps a prefix stable; the bound stops spaces with few distinct points.
    for _ in range(100 * trials):
        combination = [_draw(dimension, generator) for dimension in dimensions]
        config = _config(dimensions, combination, fixed)
        configs[identity(config)] = config
        if len(configs) == most:
            break
    return tuple(configs.values())


def drawn(dimension: Dimension, generator: np.random.Generator) -> Config:
    """Return values drawn for the parameters of one dimension."""
    return _config([dimension], [_draw(dimension, generator)], {})


def distinct_points(dimension: Dimension) -> float:
    """Return how many different points a dimension has, which may be infinite."""
    if isinstance(dimension, Choices):
        return len(set(dimension.points))
    if dimension.integer:
        return int(dimension.high) - int(dimension.low) + 1
    return math.inf if dimension.low < dimension.high else 1


def identity(config: Config) -> object:
    """Return what is equal for equal configurations, and for no others."""
    return tuple(sorted(config.items()))


def _draw(dimension: Dimension, generator: np.random.Generator) -> tuple[Value, ...]:
    if isinstance(dimension, Choices):
        return dimension.points[int(generator.integers(len(dimension.points)))]
    low, high = dimension.low, dimension.high
    if dimension.integer and not dimension.log:
        return (int(generator.integers(int(low), int(high), endpoint=True)),)
    position = float(generator.random())
    if dimension.log:
        drawn = math.exp(math.log(low) + position * (math.log(high) - math.log(low)))
    else:
        drawn = low + position * (high - low)
    return (min(int(high), max(int(low), round(drawn))) if dimension.integer else drawn,)


def _config(dimensions: Sequence[Dimension], combination: Sequence[tuple[Value, ...]], fixed: Config) -> Config:
    config = dict(fixed)
    for dimension, point in zip(dimensions, combination, strict=True):
        names = dimension.names if isinstance(dimension, Choices) else (dimension.name,)
        config.update(zip(names, point, strict=True))
    return config


def _distinct(configs: Sequence[Config]) -> list[Config]:
    return list({identity(config): config for config in configs}.values())
