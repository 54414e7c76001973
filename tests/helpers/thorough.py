"""How much is tried where every case trains models: some of it each time, all of it with ``GROUPLEARN_THOROUGH=1``.

A test that is marked ``thorough`` is left out else: it starts a cluster, a shell or a process for a second example of what
another test shows. Of the cases of one that is marked ``examples(n)`` n are tried.
"""

from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
THOROUGH = "GROUPLEARN_THOROUGH" in os.environ


def some(cases: Sequence[T], most: int) -> Sequence[T]:
    """Return at most so many cases, the first and the last among them and others at even distances; or all."""
    if THOROUGH or len(cases) <= most:
        return cases
    if most == 1:
        return cases[:1]
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


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that are not tried, by their marks."""
    if THOROUGH:
        return []
    cases: dict[tuple[str, str], list[pytest.Item]] = collections.defaultdict(list)
    for item in items:
        cases[str(item.path), getattr(item, "originalname", item.name)].append(item)
    tried = {each for together in cases.values() for each in _tried(together)}
    return [each for each in items if each not in tried]


def _tried(cases: Sequence[pytest.Item]) -> Sequence[pytest.Item]:
    """Return those of a test's cases that are tried: a case may be marked by itself."""
    quick = [each for each in cases if each.get_closest_marker("thorough") is None]
    examples = cases[0].get_closest_marker("examples")
    return some(quick, examples.args[0]) if examples else quick
