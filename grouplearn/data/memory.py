"""How much memory a TRAIN may use: as the user says, or a share of the machine's or container's."""

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

#: Default share of memory for rows and training; DuckDB and others need the rest.
MEMORY_SHARE = 0.6
#: Rows above this share of the limit go to files: while a group trains, its rows exist up to three more times (sliced,
#: encoded by column, and as a design matrix), and one group can be all rows.
ROWS_SHARE = 0.25

_CGROUPS = Path("/sys/fs/cgroup")
#: Files with the limit, in version 1 and version 2 of control groups.
_LIMIT_FILES = (("memory", "memory.limit_in_bytes"), ("", "memory.max"))
#: Thresholds of the garbage collector's generations.
_COLLECTIONS = (50_000, 50, 100)
#: Texts of out-of-memory errors of libraries, which have many types; a new thread needs memory for its stack.
_SAID = ("can't allocate memory", "bad_alloc", "bad allocation", "can't start new thread")
_collecting = threading.Lock()
_rare = 0
_usual: tuple[int, int, int] | None = None


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector run rarely in the body: with 100,000 groups it takes a tenth of a statement.

    The setting is global: rarer user settings are kept, and the user's are restored after the last body.
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
                if gc.get_threshold() == _COLLECTIONS:  # else somebody has changed it since
                    gc.set_threshold(*_usual)
                _usual = None


def give_back() -> None:
    """Return freed memory to the system, which glibc would keep; a no-op with other C libraries."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def ran_out(error: BaseException) -> bool:
    """Return whether an error says that the process has no memory left, not DuckDB within its own limit."""
    short = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    return short or any(each in str(error) for each in _SAID)


def memory_limit(given: int | None = None) -> int:
    """Return ``given`` bytes, or 60% of physical memory or of the control group's limit, whichever is smaller."""
    return int(MEMORY_SHARE * min(_limits(int(time.monotonic())))) if given is None else given


def rows_stay_in_memory(n_bytes: int, limit: int) -> bool:
    """Return whether rows of ``n_bytes`` are kept in memory under a memory limit of ``limit`` bytes."""
    return n_bytes <= ROWS_SHARE * limit


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not available on Windows
        return sys.maxsize


@lru_cache(maxsize=1)
def _limits(_second: int) -> list[int]:
    """Return physical memory and the limits of the process's control groups (``max`` or a huge number means none).

    Limits can change while the process runs, and a statement asks a dozen times: they are read once a second.
    """
    limits = [_physical()]
    for controller, name in _LIMIT_FILES:
        for group in control_groups(controller):
            with suppress(OSError, ValueError):
                limits.append(int((group / name).read_text()))
    return limits


def control_groups(controller: str) -> list[Path]:
    """Return the directories of the process's control groups, for a controller or (``""``) version 2."""
    own = _groups_of_process().get(controller, "").strip("/")
    return [_CGROUPS / controller / group for group in sorted({"", own})]


def _groups_of_process() -> dict[str, str]:
    """Return the control group of each controller; version 2 has the key ``""``."""
    with suppress(OSError):
        lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
        return {name: group for _, names, group in lines for name in names.split(",")}
    return {}
