"""How many cases are tried, and what is done about one that fails."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings


def trying(examples: int, shrink: bool = True) -> settings:
    """Return how to try so many cases, or as many as ``GROUPLEARN_EXAMPLES`` says; a case that fails is made small."""
    phases = (
        Phase.explicit,
        Phase.generate,
        *((Phase.shrink,) if shrink and "GROUPLEARN_FIRST" not in os.environ else ()),
    )
    return settings(
        max_examples=int(os.environ.get("GROUPLEARN_EXAMPLES", examples)),
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        phases=phases,
    )
