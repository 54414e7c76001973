"""How many processors the process may use: those that it is bound to, or as many as its container has time of."""

from __future__ import annotations

import functools
import math
import os
from contextlib import suppress

from grouplearn.data.memory import control_groups

#: Where the quota and its period stand, in the first and the second version of control groups.
_QUOTAS = (("cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us")), ("", ("cpu.max",)))


@functools.cache
def processors() -> int:
    """Return how many threads can compute at the same time; a quota of one and a half processors lets two run."""
    return max(1, min([_bound(), *_quotas()]))


def _bound() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # no such call on Windows and macOS
        return os.cpu_count() or 1


def _quotas() -> list[int]:
    """Return what the process's control groups grant, in whole processors; one without a quota says ``max`` or -1."""
    found = []
    for controller, names in _QUOTAS:
        for group in control_groups(controller):
            with suppress(OSError, ValueError):
                quota, period = " ".join((group / name).read_text() for name in names).split()
                if float(quota) > 0:
                    found.append(math.ceil(float(quota) / float(period)))
    return found
