"""How much memory a TRAIN may take: given by the user, or a share of what the machine or its container has."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: Share of the memory that rows and training may take when the user sets no limit; DuckDB and others need the rest.
MEMORY_SHARE = 0.6
#: Rows that take more than this share of the limit are kept in files: while a group trains, its rows exist up to three
#: more times (sliced, encoded column by column, and as a design matrix), and a group can be all rows.
ROWS_SHARE = 0.25

_CGROUPS = Path("/sys/fs/cgroup")
#: Where a limit stands, in the first and the second version of control groups.
_LIMIT_FILES = (("memory", "memory.limit_in_bytes"), ("", "memory.max"))


def memory_limit(given: int | None = None) -> int:
    """Return bytes: ``given``, or 60% of physical memory or of the control group's limit, whichever is smaller."""
    return int(MEMORY_SHARE * min(_physical(), *_container_limits())) if given is None else given


def rows_stay_in_memory(n_bytes: int, limit: int) -> bool:
    """Return whether rows of ``n_bytes`` are kept in memory under a memory limit of ``limit`` bytes."""
    return n_bytes <= ROWS_SHARE * limit


def _physical() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _container_limits() -> list[int]:
    """Return the limits of the process's control groups; a group without one says ``max`` or a huge number."""
    limits, groups = [_physical()], _groups_of_process()
    for controller, name in _LIMIT_FILES:
        for group in {"", groups.get(controller, "").strip("/")}:
            with suppress(OSError, ValueError):
                limits.append(int((_CGROUPS / controller / group / name).read_text()))
    return limits


def _groups_of_process() -> dict[str, str]:
    """Return the control group of each controller; the one of the second version has the name ``""``."""
    with suppress(OSError):
        lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
        return {name: group for _, names, group in lines for name in names.split(",")}
    return {}
