"""How many processors the process may use: its affinity, or its container's quota."""

from __future__ import annotations

import functools
import math
import os
from contextlib import suppress

from grouplearn.data.memory import control_groups

#: Files with the quota and its period, in version 1 and version 2 of control groups.
_QUOTAS = (("cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us")), ("", ("cpu.max",)))


@functools.cache
def processors() -> int:
    """Return how many threads can compute at the same time; a quota of 1.5 processors counts as two."""
    return max(1, min([_bound(), *_quotas()]))


def _bound() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not available on Windows and macOS
        return os.cpu_count() or 1


def _quotas() -> list[int]:
    """Return the quotas of the process's control groups in whole processors (``max`` or -1 means none)."""
    found = []
    for controller, names in _QUOTAS:
        for group in control_groups(controller):
            with suppress(OSError, ValueError):
                quota, period = " ".join((group / name).read_text() for name in names).split()
                if float(quota) > 0:
                    found.append(math.ceil(float(quota) / float(period)))
    return found
