"""How much memory a run may take."""

from __future__ import annotations

import math
import os
import re
import sys
from pathlib import Path
from typing import Any

#: The share of the machine's memory that a run may take unless the user says otherwise.
DEFAULT_SHARE = 0.8
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B\s*", re.IGNORECASE)
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_size(value: Any) -> int:
    """Return the bytes of a size such as '8GB' (10^9) or '8GiB' (2^30), as DuckDB reads it; ValueError otherwise."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be a size such as '8GB' or '500 MiB', got {value!r}")
    number, prefix, binary = match.groups()
    size = float(number) * (1024 if binary else 1000) ** " KMGT".index(prefix.upper() or " ")
    if size < 1:
        raise ValueError(f"must be at least one byte, got {value!r}")
    return int(size)


def default_limit() -> int:
    """Return 80% of the memory that this process may have: the container's limit, or the machine's."""
    known = min([_physical(), *(_limit_in(Path(name)) for name in _CGROUPS)])
    return int(DEFAULT_SHARE * known) if math.isfinite(known) else sys.maxsize


def _physical() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # no such call on Windows
        return math.inf


def _limit_in(path: Path) -> float:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return math.inf
    return float(text) if text.isdigit() else math.inf
