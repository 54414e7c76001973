"""How much is tried where every case trains models: some of it each time, all of it with ``GROUPLEARN_THOROUGH=1``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

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
