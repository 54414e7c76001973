"""What the first units of a run say about the estimate of the others.

A module of its own because progress displays need it, and they are loaded with every connection.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np  # for its median: importing the statistics module takes 8 ms of the 85 that opening a connection takes

#: The most by which one pilot run may correct an estimate: beyond it, something else is wrong.
MOST_CORRECTION = 10.0
#: Units that a pilot run needs, and the least estimated seconds of a unit that counts: shorter ones measure mostly the
#: clock and the threads.
PILOT_UNITS, PILOT_SECONDS = 3, 0.01


def pilot_ratio(measurements: Sequence[tuple[float, float]]) -> float | None:
    """Return the clipped median of measured / estimated, None if too few units count."""
    ratios = [measured / estimated for estimated, measured in measurements if estimated >= PILOT_SECONDS]
    if len(ratios) < PILOT_UNITS:
        return None
    return min(MOST_CORRECTION, max(1 / MOST_CORRECTION, float(np.median(ratios))))
