"""How much memory a TRAIN may take: given by the user, or a share of what the machine or its container has."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

#: Share of the memory that rows and training may take when the user sets no limit; DuckDB and others need the rest.
MEMORY_SHARE = 0.6
#: Rows that take more than this share of the limit are kept in files: while a group trains, its rows exist up to three
#: more times (sliced, encoded column by column, and as a design matrix), and a group can be all rows.
ROWS_SHARE = 0.25

_CGROUPS = Path("/sys/fs/cgroup")
#: Where a limit stands, in the first and the second version of control groups.
_LIMIT_FILES = (("memory", "memory.limit_in_bytes"), ("", "memory.max"))
#: When the cycle collector looks at young objects, at those that have outlived one look, and at all of them.
_COLLECTIONS = (50_000, 50, 100)
#: What libraries say that have no memory left, in errors of many types; a thread needs some for its stack.
_SAID = ("can't allocate memory", "bad_alloc", "bad allocation", "can't start new thread")
_collecting = threading.Lock()
_rare = 0
_usual: tuple[int, int, int] | None = None


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the cycle collector look seldom in the body: of hundred thousands of groups, looks take a tenth of a statement.

    It is the process's own, so that what the user has set stays where it is rarer or off, and comes back after the last body.
    """
    global _rare, _usual
    with _collecting:
        _rare += 1
        usual = gc.get_threshold()
        if _rare == 1 and 0 < usual[0] < _COLLECTIONS[0]:
            _usual = usual
            gc.set_threshold(*_COLLECTIONS)
    try:
        yield
    finally:
        with _collecting:
            _rare -= 1
            if _rare == 0 and _usual is not None:
                if gc.get_threshold() == _COLLECTIONS:  # else somebody has set it since
                    gc.set_threshold(*_usual)
                _usual = None


def give_back() -> None:
    """Return memory that was freed to the system: glibc keeps much of it, where other C libraries have no such function."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def ran_out(error: BaseException) -> bool:
    """Return whether an error says that the process, not DuckDB within its limit, has no memory left."""
    short = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    return short or any(each in str(error) for each in _SAID)


def memory_limit(given: int | None = None) -> int:
    """Return bytes: ``given``, or 60% of physical memory or of the control group's limit, whichever is smaller."""
    return int(MEMORY_SHARE * min(_limits(int(time.monotonic())))) if given is None else given


def rows_stay_in_memory(n_bytes: int, limit: int) -> bool:
    """Return whether rows of ``n_bytes`` are kept in memory under a memory limit of ``limit`` bytes."""
    return n_bytes <= ROWS_SHARE * limit


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # no such call on Windows
        return sys.maxsize


@lru_cache(maxsize=1)
def _limits(_second: int) -> list[int]:
    """Return physical memory and the limits of the process's control groups, of which one without says ``max`` or a huge number.

    A statement asks a dozen times, so they are read once a second: they can change while the process runs.
    """
    limits = [_physical()]
    for controller, name in _LIMIT_FILES:
        for group in control_groups(controller):
            with suppress(OSError, ValueError):
                limits.append(int((group / name).read_text()))
    return limits


def control_groups(controller: str) -> list[Path]:
    """Return the directories of the control groups that limit the process, of a controller or (``""``) of the second version."""
    own = _groups_of_process().get(controller, "").strip("/")
    return [_CGROUPS / controller / group for group in sorted({"", own})]


def _groups_of_process() -> dict[str, str]:
    """Return the control group of each controller; the one of the second version has the name ``""``."""
    with suppress(OSError):
        lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
        return {name: group for _, names, group in lines for name in names.split(",")}
    return {}
