"""How many cases are tried, and what is done about one that fails."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings


def wanted(examples: int) -> int:
    """Return how many cases to try: so many, or as ``GROUPLEARN_EXAMPLES`` says."""
    return int(os.environ.get("GROUPLEARN_EXAMPLES", examples))


def trying(examples: int, shrink: bool = True) -> settings:
    """Return how to try so many cases; one that fails is made small."""
    phases = (
        Phase.explicit,
        Phase.generate,
        *((Phase.shrink,) if shrink and "GROUPLEARN_FIRST" not in os.environ else ()),
    )
    return settings(
        max_examples=examples,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        phases=phases,
    )
