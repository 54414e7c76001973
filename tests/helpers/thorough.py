"""How much is tried where every case trains models: some of it each time, all of it with ``GROUPLEARN_THOROUGH=1``."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
THOROUGH = "GROUPLEARN_THOROUGH" in os.environ


def some(cases: Sequence[T], most: int) -> Sequence[T]:
    """Return at most so many cases, the first and the last among them and others at even distances; or all."""
    if THOROUGH or len(cases) <= most:
        return cases
    return [cases[round(place * (len(cases) - 1) / (most - 1))] for place in range(most)]


def enough(thorough: int, few: int) -> int:
    """Return how many examples to try."""
    return thorough if THOROUGH else few


def every_other(cases: Iterable[T], first: int = 0) -> list[T]:
    """Return every other case, or all; of a product whose last values are odd in number, each value occurs."""
    return list(cases)[0 if THOROUGH else first :: 1 if THOROUGH else 2]


def covering(*dimensions: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return cases in which any two values of two dimensions meet, or the whole product.

    Greedy: each case is the first of those that bring together most that had not met.
    """
    cases = list(itertools.product(*dimensions))
    if THOROUGH:
        return cases
    meets = [frozenset(itertools.combinations(enumerate(map(repr, case)), 2)) for case in cases]
    missing, chosen = set().union(*meets), set()
    while missing:
        best = max(range(len(cases)), key=lambda number: len(meets[number] & missing))
        missing -= meets[best]
        chosen.add(best)
    return [cases[number] for number in sorted(chosen)]
