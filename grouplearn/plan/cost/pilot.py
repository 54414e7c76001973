"""What the first units of a run say about the estimate of the others.

It is a module of its own because progress displays need it, and these are loaded whenever a connection is opened.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np  # its median: the module statistics is read in 8 ms, of the 85 that opening a connection takes of its own

#: A pilot run may correct an estimate by at most this factor in one go: beyond it, something else is wrong.
MOST_CORRECTION = 10.0
#: Units that a pilot run needs before it says anything, and the estimated seconds from which a unit says something: in
#: shorter ones the clock and the threads are most of it.
PILOT_UNITS, PILOT_SECONDS = 3, 0.01


def pilot_ratio(measurements: Sequence[tuple[float, float]]) -> float | None:
    """Return the clipped median of measured / estimated, None where too few units say anything."""
    ratios = [measured / estimated for estimated, measured in measurements if estimated >= PILOT_SECONDS]
    if len(ratios) < PILOT_UNITS:
        return None
    return min(MOST_CORRECTION, max(1 / MOST_CORRECTION, float(np.median(ratios))))
