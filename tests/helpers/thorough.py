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


def covering(*dimensions: Iterable[Any], together: int = 2) -> list[tuple[Any, ...]]:
    """Return cases in which any values of any so many dimensions meet at least once; or the whole product."""
    cases = list(itertools.product(*dimensions))
    return cases if THOROUGH else covering_of(cases, together)


def covering_of(cases: Sequence[tuple[Any, ...]], together: int = 2) -> list[tuple[Any, ...]]:
    """Return some of the cases, in which any values that meet in so many places of a case meet at least once; or all.

    Greedy: at each step the first of the cases that bring most that is new.
    """
    if THOROUGH:
        return list(cases)
    meets = [frozenset(itertools.combinations(enumerate(map(repr, case)), together)) for case in cases]
    missing, chosen = set().union(*meets), set()
    while missing:
        best = max(range(len(cases)), key=lambda number: len(meets[number] & missing))
        missing -= meets[best]
        chosen.add(best)
    return [cases[number] for number in sorted(chosen)]
